from pathlib import Path

from sage.exhibits import restore_study
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.tools.plan import plan, render_plan

study = restore_study(snakemake.params.study)
text = render_plan(study, plan(study, Results(Path(snakemake.params.folder))))
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
