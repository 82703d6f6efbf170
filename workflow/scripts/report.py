from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.claims.tests import read_claims
    from sage.exhibits import restore_study
    from sage.report.make import write_report
    from sage.results import Results
    from sage.runtime.files import from_repository

    study = restore_study(snakemake.params.study)
    write_report(
        study,
        Results(Path(snakemake.params.folder)),
        from_repository("reports"),
        read_claims(study.study.claims),
    )
