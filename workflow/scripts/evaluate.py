from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.evaluation.metrics import write_metrics

    samples = [Path(path) for path in snakemake.input.samples]
    write_metrics(
        samples,
        snakemake.params.bootstrap,
        Path(snakemake.output.folder),
        problems=Path(snakemake.input.problems),
    )
