# The study, validated before any job, and the small functions that name files and settings.

import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The package beside the Snakefile is the one that runs, installed or not, in jobs too.
sys.path.insert(0, str(workflow.basedir))
os.environ.update(
    PYTHONPATH=os.pathsep.join(sys.path[:1] + [os.getenv("PYTHONPATH", "")])
)

from sage.runtime.dependencies import WITHOUT_EFFECT, module_files
from sage.study import BASE, StudyError, load_settings, load_study, choice_files

# Used with `--software-deployment-method conda` only.
ENVIRONMENT = "../../environment.yml"

CONFIG_FOLDER = Path(workflow.basedir) / "config"

try:
    SETTINGS = load_settings(config)
    STUDY = load_study(SETTINGS.study, CONFIG_FOLDER)
except StudyError as error:
    raise WorkflowError(str(error)) from None

if SETTINGS.mirror:
    # By the environment, not by params: where a file comes from is no reason to run again.
    os.environ.update(SAGE_MIRROR=str(Path(SETTINGS.mirror).expanduser().resolve()))


def one_of(names):
    """A wildcard's constraint: one of `names`; without any, it matches nothing."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    model=one_of(STUDY.study.models),
    algorithm=one_of([BASE, *STUDY.algorithms]),
    seed=r"\d+",
    benchmark=one_of(STUDY.study.problems),
    exhibit=one_of(STUDY.study.exhibits),


def result(path):
    """`path` inside the study's results folder."""
    return f"{SETTINGS.results}/{STUDY.name}/{path}".rstrip("/")


def log_of(path):
    """The log file of a job, named after its result."""
    return result(f"logs/{path}.log")


def code_of(*modules):
    """The source files that the given modules depend on."""
    files = {
        file for module in modules for file in module_files(module, WITHOUT_EFFECT)
    }
    return sorted(str(Path(file).relative_to(workflow.basedir)) for file in files)


def model_of(wildcards):
    """The wildcard's model, or its exhibit's."""
    model = getattr(wildcards, "model", None)
    return model or STUDY.study.exhibits[wildcards.exhibit].model


def job_of(wildcards):
    """What a job of a model asks of the machine."""
    return STUDY.model(model_of(wildcards)).job


def gpus(wildcards):
    """GPUs of a job; `device: cuda` gives one to models that ask for none."""
    return max(job_of(wildcards).gpus, int(SETTINGS.device == "cuda"))


def gpus_of_largest_job(wildcards):
    asked = [model.job.gpus for model in STUDY.study.models.values()]
    return max(*asked, int(SETTINGS.device == "cuda"))


def executor(wildcards):
    """What runs the jobs: `local`, `slurm`."""
    return workflow.executor_plugin.name if workflow.executor_plugin else "local"


def memory(wildcards, attempt):
    return 1000 * job_of(wildcards).memory_gb * attempt


def minutes(wildcards, attempt):
    return 60 * job_of(wildcards).hours * attempt


def growing(amount):
    """A resource of which a job that failed asks for more at its next attempt."""
    return lambda wildcards, attempt: amount * attempt


def study_folder(wildcards):
    return result("")


def sft_scratch(wildcards):
    return result(f"scratch/{wildcards.model}/sft")


def rl_scratch(wildcards):
    """Where a run keeps its checkpoints: undeclared, for Snakemake deletes failed outputs."""
    return result(
        f"scratch/{wildcards.model}/{wildcards.algorithm}/seed{wildcards.seed}"
    )


def problem_set(wildcards):
    return STUDY.problem_set(wildcards.benchmark)


def base_settings(wildcards):
    return STUDY.model(wildcards.model).base.model_dump()


def models_of(*sources):
    """Models whose base comes from one of `sources`."""
    return [
        name
        for name, model in STUDY.study.models.items()
        if model.base.source in sources
    ]


def models_with_sft():
    return [name for name, model in STUDY.study.models.items() if model.sft]


def sft_settings(wildcards):
    return STUDY.model(wildcards.model).sft.model_dump()


def example_settings(wildcards):
    """What decides which examples SFT gets, besides their source."""
    sft = STUDY.model(wildcards.model).sft
    return {"data": sft.data, "examples": sft.examples, "seed": sft.seed}


def sft_source(wildcards):
    """Where SFT's examples come from: the entry of a data set, or a corpus."""
    model = STUDY.model(wildcards.model)
    if model.sft.data:
        return STUDY.benchmarks[model.sft.data].model_dump()
    return (model.sft.corpus or model.base.corpus).model_dump()


def untuned_parent(wildcards):
    """What a model without SFT starts from: its own base, or another model's parent."""
    base = STUDY.model(wildcards.model).base
    if base.source == "model":
        return result(f"models/{base.model}/base")
    return result(f"models/{wildcards.model}/pretrained")


def rl_settings(wildcards):
    return STUDY.model(model_of(wildcards)).rl.model_dump()


def algorithm_settings(wildcards):
    return STUDY.algorithms[wildcards.algorithm].model_dump()


def code_of_algorithms(rows):
    """The files of the classes that some rows name, the user's own among them."""
    files = {file for row in rows for file in choice_files(STUDY.algorithms[row])}
    return sorted(
        str(
            file.relative_to(workflow.basedir)
            if file.is_relative_to(workflow.basedir)
            else file
        )
        for file in files
    )


def algorithm_code(wildcards):
    return code_of_algorithms([wildcards.algorithm])


def evaluation_settings(wildcards):
    return STUDY.evaluation(wildcards.model).decisive()


def engine_modules():
    """Modules of the sampling engines that the study uses, which are imported by name."""
    engines = {STUDY.evaluation(model).engine for model in STUDY.study.models}
    return sorted(f"sage.sampling.{engine}_engine" for engine in engines)


def batch_size(wildcards):
    return STUDY.evaluation(wildcards.model).batch_size


def shard_size(wildcards):
    return STUDY.evaluation(wildcards.model).shard_size


def sample_shards(wildcards):
    """Where drawn completions are kept, shard by shard: undeclared, as checkpoints are."""
    return result(
        f"shards/{wildcards.model}/{wildcards.algorithm}/seed{wildcards.seed}/"
        f"{wildcards.benchmark}"
    )


def training_problems(wildcards):
    """What RL trains on: the whole set, or what is left of it where overlaps are dropped."""
    folder = "problems/decontaminated" if STUDY.study.contamination.drop else "problems"
    return result(f"{folder}/{STUDY.model(model_of(wildcards)).rl.problems}.jsonl")


def training_sets():
    """Problem sets that RL trains on."""
    models = STUDY.study.models.values()
    return list(dict.fromkeys(model.rl.problems for model in models))


def benchmark_sets():
    """Problem sets that models are evaluated on."""
    pairs = [pair for model in STUDY.study.models for pair in STUDY.evaluated(model)]
    return list(dict.fromkeys(benchmark for _, benchmark in pairs))


def problem_files(names):
    return [result(f"problems/{name}.jsonl") for name in names]


def benchmarks_beside(wildcards):
    """Files of the benchmarks that a training set is held against: all but itself."""
    return problem_files(
        name for name in benchmark_sets() if name != wildcards.benchmark
    )


def kl_reference(wildcards):
    """The checkpoint before SFT for rows as released; else nothing, and the parent serves."""
    if STUDY.algorithms[wildcards.algorithm].fidelity == "paper":
        return []
    return result(f"models/{wildcards.model}/pretrained")


def trained_policy(wildcards):
    """The folder of a trained policy; nothing for the row `base`."""
    if wildcards.algorithm == BASE:
        return []
    return result(
        f"models/{wildcards.model}/{wildcards.algorithm}/seed{wildcards.seed}"
    )


def seeds_of(algorithm):
    """Training seeds of a row; the policy before RL has none and stands under seed 0."""
    return [0] if algorithm == BASE else STUDY.study.seeds


def snapshots(wildcards):
    return STUDY.snapshots(wildcards.model, wildcards.algorithm)


def policies(model, algorithms):
    """Folders of the trained policies of some rows."""
    return [
        result(f"models/{model}/{row}/seed{seed}")
        for row in algorithms
        for seed in seeds_of(row)
    ]


def samples(model, algorithms, benchmark):
    """Files of the samples of some rows on a benchmark."""
    return [
        result(f"samples/{model}/{row}/seed{seed}/{benchmark}.parquet")
        for row in algorithms
        for seed in seeds_of(row)
    ]


def all_policies():
    """Folders of every trained policy of the study."""
    return [
        path
        for model in STUDY.study.models
        for path in policies(model, STUDY.trained(model))
    ]


def all_samples():
    """Files of all samples of the study."""
    return [
        path
        for model in STUDY.study.models
        for row, benchmark in STUDY.evaluated(model)
        for path in samples(model, [row], benchmark)
    ]


def samples_by_benchmark():
    """Sample files of the study by the benchmark that they are of."""
    files = {}
    for path in all_samples():
        files.setdefault(Path(path).stem, []).append(path)
    return files


def exhibits_of(*kinds):
    """Names of the study's exhibits of some kinds."""
    return [name for name, e in STUDY.study.exhibits.items() if e.kind in kinds]


def exhibit_samples(wildcards):
    """Files of the samples that an exhibit shows."""
    model = STUDY.study.exhibits[wildcards.exhibit].model
    rows = STUDY.rows_of(wildcards.exhibit)
    return [
        path
        for benchmark in STUDY.benchmarks_of(wildcards.exhibit)
        for path in samples(model, rows, benchmark)
    ]


def exhibit_policies(wildcards):
    """Folders of the trained policies that an exhibit shows."""
    exhibit = STUDY.study.exhibits[wildcards.exhibit]
    rows = [row for row in STUDY.rows_of(wildcards.exhibit) if row != BASE]
    return policies(exhibit.model, rows)


def exhibit_problems(wildcards):
    return result(f"problems/{STUDY.study.exhibits[wildcards.exhibit].benchmark}.jsonl")


def exhibit_algorithms(wildcards):
    """The definitions of an exhibit's rows."""
    rows = STUDY.rows_of(wildcards.exhibit)
    return {row: STUDY.algorithms[row].model_dump() for row in rows}


def exhibit_guides(wildcards):
    return code_of_algorithms(STUDY.rows_of(wildcards.exhibit))


def exhibit_base(wildcards):
    return result(f"models/{STUDY.study.exhibits[wildcards.exhibit].model}/base")


def exhibit_rows(wildcards):
    return STUDY.rows_of(wildcards.exhibit)


def exhibit_settings(wildcards):
    return STUDY.study.exhibits[wildcards.exhibit].model_dump()


def exhibit_evaluation(wildcards):
    """How the model of an exhibit is sampled."""
    exhibit = STUDY.study.exhibits[wildcards.exhibit]
    return STUDY.evaluation(exhibit.model).model_dump()
