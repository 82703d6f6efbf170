from pathlib import Path

from sage.runtime.job import job

with job(snakemake) as manifest:
    from sage.fetched_bases import fetch_base

    fetch_base(snakemake.params.base, Path(snakemake.output.checkpoint), manifest)
