from pathlib import Path

from sage.exhibits import restore_study
from sage.report.partial import write_partial
from sage.results import Results

study, results = restore_study(snakemake.params.study), Results(Path(snakemake.params.folder))
page = write_partial(study, results, Path("reports"), Path(study.study.claims))
print(f"The report of the results so far: {page}")
