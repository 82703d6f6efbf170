from pathlib import Path

from sage.runtime.job import job

with job(snakemake) as manifest:
    from sage.fetched_bases import adopt_base

    adopt_base(Path(snakemake.input.checkpoint), Path(snakemake.output.checkpoint), manifest)
