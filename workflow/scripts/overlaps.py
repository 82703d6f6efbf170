from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.problems.contamination import write_contamination
    from sage.problems.record import read_problem_sets

    write_contamination(
        read_problem_sets(snakemake.input.training),
        read_problem_sets(snakemake.input.benchmarks),
        snakemake.params.ngram,
        snakemake.params.share,
        Path(snakemake.output.folder),
    )
