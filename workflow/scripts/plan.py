from pathlib import Path

from sage.exhibits import restore_study
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.tools.plan import plan, render_plan

study, params = restore_study(snakemake.params.study), snakemake.params
stages = plan(study, Results(Path(params.folder)))
text = render_plan(study, stages, params.gpu_limit)
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
