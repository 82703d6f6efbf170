# What the rule of sampling reads.

from functools import cache


@cache
def code_with_engine(engine):
    """The code that samples and grades, with an engine, which is imported by name."""
    return code_of("sage.evaluation.samples", f"sage.sampling.{engine}_engine")


def sampling_code(wildcards):
    return code_with_engine(STUDY.evaluation(wildcards.model).engine)


def trained_policy(wildcards):
    """The folder of a trained policy; empty for the row `base`."""
    return [] if wildcards.algorithm == BASE else RESULTS.policy(run_of(wildcards))


def evaluation_settings(wildcards):
    return STUDY.evaluation(wildcards.model).decisive()


def batch_size(wildcards):
    return STUDY.evaluation(wildcards.model).batch_size


def shard_size(wildcards):
    return STUDY.evaluation(wildcards.model).shard_size


def sample_shards(wildcards):
    """The folder of sampled completions, in shards; not declared, like checkpoints."""
    return RESULTS.sample_shards(run_of(wildcards), wildcards.benchmark)


def samples_of_all(wildcards):
    """Samples of all methods of a model on a benchmark."""
    return [
        RESULTS.samples(run, benchmark)
        for run, benchmark in STUDY.evaluated_runs(wildcards.model)
        if benchmark == wildcards.benchmark
    ]


def all_evaluated():
    """Folders of the metrics of every model and benchmark."""
    pairs = [(m, name) for m in STUDY.study.models for _, name in STUDY.evaluated(m)]
    return [RESULTS.evaluated(*pair) for pair in dict.fromkeys(pairs)]
