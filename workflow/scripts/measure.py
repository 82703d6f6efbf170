from pathlib import Path

from sage.runtime.job import device_of, job
from sage.runtime.shared_imports import MODELS

if __name__ == "__main__":  # vLLM's child processes run this file again, but not this part
    with job(snakemake, MODELS) as manifest:
        from sage.exhibits import measure

        params = snakemake.params
        measure(
            exhibit=params.exhibit,
            settings=params.settings,
            files={name: [*map(Path, paths)] for name, paths in params.files.items()},
            folder=Path(snakemake.output.folder),
            device=device_of(params.device),
            shards=Path(params.shards),
            manifest=manifest,
        )
