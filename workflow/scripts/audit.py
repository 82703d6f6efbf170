from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.evaluation.audit import write_audit

    write_audit(
        {name: [Path(p) for p in paths] for name, paths in snakemake.params.samples.items()},
        {Path(path).stem: Path(path) for path in snakemake.input.problems},
        Path(snakemake.output.counts),
        Path(snakemake.output.suspects),
    )
