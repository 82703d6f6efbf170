# What the rules of problem sets read.


def problem_set(wildcards):
    """The set's settings without its title, which changes no result."""
    return {**STUDY.problem_set(wildcards.benchmark), "title": ""}


def other_benchmarks(wildcards):
    """Files of the benchmarks that a training set is compared with: all but itself."""
    names = STUDY.benchmark_sets()
    return problem_files(name for name in names if name != wildcards.benchmark)
