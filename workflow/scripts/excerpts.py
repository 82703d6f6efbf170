from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.report.browser import write_excerpts

    write_excerpts(
        [Path(path) for path in snakemake.input.samples],
        {Path(path).stem: Path(path) for path in snakemake.input.problems},
        Path(snakemake.output.excerpts),
    )
