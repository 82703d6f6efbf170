# Files and settings that the rules read, where it takes more than a line to name them.

from functools import cache

from sage.claims.tests import first_compared, read_claims
from sage.study.without_effect import WITHOUT_EFFECT as LEFT_OUT


def code_of(script, *modules, sets=None):
    """A rule's script, and the source files that the modules depend on which it imports.

    Where these ask tasks, the user's own tasks are among them: those of the problem sets
    `sets`, by default of all.
    """
    files = {file for each in modules for file in module_files(each, WITHOUT_EFFECT)}
    files = with_own_tasks({*files, PROJECT / f"workflow/scripts/{script}.py"}, sets)
    return beside_snakefile(files)


def with_own_tasks(files, sets=None):
    """The files, with those of the user's own tasks if `sage.tasks` is among them."""
    if not any(Path(file).parent.name == "tasks" for file in files):
        return files
    names = STUDY.study.problems if sets is None else sets
    sources = {STUDY.study.problems[name].source for name in names}
    return {*files, *task_files(source for source in sources if ":" in source)}


def run_of(wildcards):
    """The policy that the wildcards name."""
    return Run(wildcards.model, wildcards.algorithm, wildcards.seed)


def beside_snakefile(files):
    """Paths as Snakemake names them: where it runs in the repository, relative to that."""
    inside = (path for path in map(Path, files) if path.is_relative_to(PROJECT))
    named = {path: from_repository(path.relative_to(PROJECT)) for path in inside}
    return sorted(str(named.get(path, path)) for path in map(Path, files))


def all_drawn():
    """Folders of the samples of every policy of the study."""
    models = STUDY.study.models
    runs = [run for model in models for run, _ in STUDY.evaluated_runs(model)]
    return [RESULTS.drawn(run) for run in dict.fromkeys(runs)]


def benchmarks_of(wildcards):
    """The benchmarks that a policy is sampled on."""
    pairs = STUDY.evaluated(wildcards.model)
    return [benchmark for method, benchmark in pairs if method == wildcards.algorithm]


# What the first page shows: empty where no headline compares methods.
FIRST = first_compared(STUDY, read_claims(STUDY.study.claims))
FIRST_RUNS = {(run.model, run.algorithm, str(run.seed)) for run, _ in FIRST}


def first_pages_before(priority):
    """The priority of a job: above all others for what the first page shows."""
    return lambda w: priority + 10 * ((w.model, w.algorithm, w.seed) in FIRST_RUNS)


def all_policies():
    """Folders of every trained policy of the study."""
    models = STUDY.study.models
    return [
        RESULTS.policy(run) for model in models for run in STUDY.trained_runs(model)
    ]


def problem_files(names):
    return [RESULTS.problems(name) for name in names]


def models_of(*sources):
    """Models whose base comes from one of `sources`."""
    models = STUDY.study.models.items()
    return [name for name, model in models if model.base.source in sources]


def base_with_repository(wildcards):
    """The folder of a base from scratch that need not be pretrained again; none without one."""
    base = kept_base(STUDY.model(wildcards.model).base, CONFIG_FOLDER / "bases")
    return beside_snakefile([base] * (SETTINGS.pretrain == "kept" and base.is_dir()))


def models_with_sft():
    return [name for name, model in STUDY.study.models.items() if model.sft]


# Sums of data files are parameters of the jobs that read them: an edited file is read again.


def sums_of_set(name):
    """Sums of the data files behind a problem set; none for one that is generated."""
    settings = STUDY.study.problems[name]
    return set_sums(settings, STUDY.benchmarks.get(getattr(settings, "benchmark", "")))


def sums_of_sft(name):
    """Sums of the data files behind a model's examples; none where a corpus draws them."""
    data = STUDY.model(name).sft.data
    return data_sums(STUDY.benchmarks[data]) if data else []


def sums_of_base(name):
    """Sums of the files of a model's own folder; none for other bases."""
    base = STUDY.model(name).base
    return base.sums() if base.source == "folder" else []


def problem_set(wildcards):
    """The set's settings without its title, which changes no result."""
    return {**STUDY.problem_set(wildcards.benchmark), "title": ""}


def other_benchmarks(wildcards):
    """Files of the benchmarks that a training set is compared with: all but itself."""
    names = STUDY.benchmark_sets()
    return problem_files(name for name in names if name != wildcards.benchmark)


def untuned_parent(wildcards):
    """The start of a model without SFT: its own base, or another model's parent."""
    base = STUDY.model(wildcards.model).base
    if base.source == "model":
        return RESULTS.rl_start(base.model)
    return RESULTS.pretrained(wildcards.model)


def example_settings(wildcards):
    """The settings that decide which examples SFT gets, besides their source."""
    sft = STUDY.model(wildcards.model).sft
    return {"data": sft.data, "examples": sft.examples, "seed": sft.seed}


def sft_source(wildcards):
    """The source of SFT's examples: the entry of a data set, or a corpus."""
    model = STUDY.model(wildcards.model)
    if model.sft.data:
        return STUDY.benchmarks[model.sft.data].model_dump()
    return (model.sft.corpus or model.base.corpus).model_dump()


def rl_settings(wildcards):
    """All but those that change no result: these reach jobs in the environment."""
    settings = STUDY.rl(wildcards.model, wildcards.algorithm)
    return settings.model_dump(exclude=set(LEFT_OUT["rl"]))


def algorithm_settings(wildcards):
    """The method's settings without its title, which changes no result."""
    return {**STUDY.algorithms[wildcards.algorithm].model_dump(), "title": ""}


def kl_reference(wildcards):
    """The checkpoint before SFT for methods that use it as reference; empty for all others."""
    if STUDY.algorithms[wildcards.algorithm].fidelity == "paper":
        return []
    return RESULTS.pretrained(wildcards.model)


def code_of_algorithms(rows):
    """The files of the classes that some methods name, including the user's own."""
    files = {file for method in rows for file in choice_files(STUDY.algorithms[method])}
    return beside_snakefile(files)


@cache
def code_with_engine(engine):
    """The code that samples and grades, with an engine, which is imported by name."""
    return code_of(
        "sample", "sage.evaluation.samples", f"sage.sampling.{engine}_engine"
    )


def sampling_code(wildcards):
    return code_with_engine(STUDY.evaluation(wildcards.model).engine)


def all_evaluated():
    """Folders of the metrics of every model and benchmark."""
    pairs = [(m, name) for m in STUDY.study.models for _, name in STUDY.evaluated(m)]
    return [RESULTS.evaluated(*pair) for pair in dict.fromkeys(pairs)]


def samples_by_benchmark():
    """Sample files of the study by the benchmark that they are of."""
    files = {}
    for model in STUDY.study.models:
        for run, benchmark in STUDY.evaluated_runs(model):
            path = str(RESULTS.samples(run, benchmark))
            files.setdefault(benchmark, []).append(path)
    return files
