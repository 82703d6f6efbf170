from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.exhibits import restore_study
    from sage.report.partial import write_whole
    from sage.results import Results
    from sage.runtime.files import from_repository

    write_whole(
        restore_study(snakemake.params.study),
        Results(Path(snakemake.params.folder)),
        from_repository("reports"),
    )
