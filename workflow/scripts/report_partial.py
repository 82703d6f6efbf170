from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.claims.tests import read_claims
    from sage.exhibits import load_study
    from sage.report.make import write_exhibits, write_partial
    from sage.results import Results
    from sage.runtime.files import from_repository
    from sage.study import load_settings

    # Not by params: no setting makes an early page again once its runs are there.
    settings = load_settings(snakemake.config)
    study = load_study(settings.study, from_repository("config"), settings.set)
    results, reports = Results(Path(settings.results) / study.name), from_repository("reports")
    if snakemake.params.get("exhibits"):
        write_exhibits(study, results, reports, snakemake.params.exhibits)
    else:
        write_partial(study, results, reports, read_claims(study.study.claims))
    for made in snakemake.output:
        Path(made).touch()
