from pathlib import Path

from sage.claims.tests import read_claims
from sage.exhibits import restore_study
from sage.report.partial import write_partial
from sage.results import Results
from sage.runtime.files import from_repository

study, results = restore_study(snakemake.params.study), Results(Path(snakemake.params.folder))
page = write_partial(study, results, from_repository("reports"), read_claims(study.study.claims))
print(f"The report of the results so far: {page}")
