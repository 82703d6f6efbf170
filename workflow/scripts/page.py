from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.exhibits import restore_study
    from sage.report.loader import PageFiles
    from sage.report.page import write_page
    from sage.results import Results
    from sage.runtime.files import from_repository

    results = Results(Path(snakemake.params.folder))
    files = PageFiles(results, results, from_repository("reports"))
    write_page(restore_study(snakemake.params.study), files, Path(snakemake.output.page))
