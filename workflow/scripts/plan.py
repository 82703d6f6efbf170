from pathlib import Path

from sage.exhibits import load_study, restore_study
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.study.written import lineage
from sage.tools.check import Machine, lacking
from sage.tools.plan import gpu_memory_lines, plan, render_plan, total

config, option = Path(snakemake.params.config), snakemake.params.option
study, results = restore_study(snakemake.params.study), Results(Path(snakemake.params.folder))
below = [load_study(str(parent), config) for parent in lineage(option, config)]
card, limit = snakemake.params.card, snakemake.params.gpu_limit
text = render_plan(study, plan(study, results, below, card), limit, card)
if below:
    other, *others = below
    there = Results(results.folder.parent / other.name)
    text += f"\nThe study that it extends, {other.name}: {total(plan(other, there, others, card))}."
params = snakemake.params
machine = Machine(results, params.device, params.gpu_limit, params.executor)
text = "\n".join([text, *gpu_memory_lines(study, results, card), *lacking(study, machine)])
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
