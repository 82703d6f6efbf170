from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.claims.tests import read_claims
    from sage.exhibits import load_study
    from sage.report.partial import write_partial
    from sage.results import Results
    from sage.runtime.files import from_repository
    from sage.study import load_settings

    # Not by params: no setting makes an early page again once its runs are there.
    settings = load_settings(snakemake.config)
    study = load_study(settings.study, from_repository("config"), settings.set)
    results = Results(Path(settings.results) / study.name)
    write_partial(study, results, from_repository("reports"), read_claims(study.study.claims))
    Path(snakemake.output.done).touch()
