from pathlib import Path

from sage.exhibits import load_study, restore_study
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.study.written import lineage
from sage.tools.check import Machine, lacking
from sage.tools.plan import costs, plan
from sage.tools.plan_text import exhibit_lines, gpu_memory_lines, render_plan, total

config, option = Path(snakemake.params.config), snakemake.params.option
study, results = restore_study(snakemake.params.study), Results(Path(snakemake.params.folder))
below = [load_study(str(parent), config) for parent in lineage(option, config)]
stages = plan(study, results, below)
lines = [
    render_plan(study, stages, snakemake.params.gpu_limit),
    *exhibit_lines(costs(study, stages, results)),
]
if below:
    other, *others = below
    there = Results(results.folder.parent / other.name)
    said = total(plan(other, there, others))
    lines.append(f"The study that it extends, {other.name}: {said}.")
params = snakemake.params
machine = Machine(results, params.device, params.gpu_limit, params.executor)
text = "\n".join([*lines, *gpu_memory_lines(study, results), *lacking(study, machine)])
write_text_atomic(Path(snakemake.log[0]), text + "\n")
print(text)
