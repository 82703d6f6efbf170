from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.evaluation.metrics import join_metrics

    join_metrics(
        [Path(path) for path in snakemake.input.evaluated],
        {name: Path(path) for name, path in snakemake.output.items()},
        snakemake.params.bases,
        snakemake.params.bootstrap,
    )
