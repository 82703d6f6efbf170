# What the rules of problem sets read.


def problem_set(wildcards):
    """The set's settings without its title, which changes no result."""
    return {**STUDY.problem_set(wildcards.benchmark), "title": ""}


def sums_of_set(name):
    """Sums of the data files behind a problem set; none for one that is generated."""
    settings = STUDY.problem_set(name)
    if settings["source"] != "benchmark":
        return []
    return data_sums(STUDY.benchmarks[settings["benchmark"]], settings["levels"])


def data_of_set(wildcards):
    """A parameter of the job: an edited file is read again."""
    return sums_of_set(wildcards.benchmark)


def data_of_jobs(wildcards):
    """The same for every job that reads data files, by the name of its log."""
    sets = {f"problems/{name}": sums_of_set(name) for name in STUDY.problem_sets()}
    models = models_with_sft()
    return sets | {f"models/{name}/examples": sums_of_sft(name) for name in models}


def other_benchmarks(wildcards):
    """Files of the benchmarks that a training set is compared with: all but itself."""
    names = STUDY.benchmark_sets()
    return problem_files(name for name in names if name != wildcards.benchmark)
