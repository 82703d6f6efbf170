from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.problems.record import write_problems
    from sage.tasks import draw_problems

    problems = draw_problems(snakemake.wildcards.benchmark, snakemake.params.problem_set)
    write_problems(problems, Path(snakemake.output.problems))
