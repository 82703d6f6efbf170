from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.training.examples import find_solutions, write_solutions

    solutions = find_solutions(**snakemake.params.examples, source=snakemake.params.source)
    write_solutions(solutions, Path(snakemake.output.examples))
