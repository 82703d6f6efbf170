from pathlib import Path

from sage.runtime.job import device_of, job
from sage.runtime.shared_imports import EXHIBITS, MODELS

if __name__ == "__main__":  # vLLM's child processes run this file again, but not this part
    kinds = MODELS if snakemake.rule == "measure_with_model" else EXHIBITS
    with job(snakemake, kinds) as manifest:
        from sage.exhibits import measure

        params = snakemake.params
        files = {name: snakemake.input.get(name) for name, _ in snakemake.input._allitems() if name}
        lists = {
            name: [Path(path) for path in ([found] if isinstance(found, str) else found)]
            for name, found in files.items()
            if name != "code"
        }
        measure(
            exhibit=params.exhibit,
            settings=params.settings,
            files=lists,
            folder=Path(snakemake.output.folder),
            device=device_of(params.device),
            shards=Path(params.shards),
            manifest=manifest,
        )
