# What the rules of problem sets read.


def problem_set(wildcards):
    """The set's settings without its title, which changes no result."""
    return {**STUDY.problem_set(wildcards.benchmark), "title": ""}


def sums_of_set(name):
    """Sums of the data files behind a problem set; none for one that is generated."""
    settings = STUDY.study.problems[name]
    return set_sums(settings, STUDY.benchmarks.get(getattr(settings, "benchmark", "")))


def data_of_set(wildcards):
    """A parameter of the job: an edited file is read again."""
    return sums_of_set(wildcards.benchmark)


def data_of_jobs(wildcards):
    """The same for every job that reads data files, by the name of its log."""
    sets = {f"problems/{name}": sums_of_set(name) for name in STUDY.problem_sets()}
    sft = {f"models/{name}/examples": sums_of_sft(name) for name in models_with_sft()}
    folders = {
        f"models/{name}/pretrained": sums_of_base(name) for name in models_of("folder")
    }
    return sets | sft | folders


def other_benchmarks(wildcards):
    """Files of the benchmarks that a training set is compared with: all but itself."""
    names = STUDY.benchmark_sets()
    return problem_files(name for name in names if name != wildcards.benchmark)
