from pathlib import Path

from sage.exhibits import load_study, restore_study
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.study.written import extended
from sage.tools.plan import plan, render_plan, total

config, option = Path(snakemake.params.config), snakemake.params.option
study, results = restore_study(snakemake.params.study), Results(Path(snakemake.params.folder))
text = render_plan(study, plan(study, results), snakemake.params.gpu_limit)
if parent := extended(option, config):
    other = load_study(str(parent), config)
    there = Results(results.folder.parent / other.name)
    text += f"\nThe study that it extends, {other.name}: {total(plan(other, there))}."
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
