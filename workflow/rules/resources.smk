# What jobs ask of the machine.

from functools import cache
from math import ceil


def model_of(wildcards):
    """The wildcard's model, or its exhibit's."""
    model = getattr(wildcards, "model", None)
    return model or STUDY.study.exhibits[wildcards.exhibit].model


def job_of(wildcards):
    """The resources that a model's jobs ask for."""
    return STUDY.model(model_of(wildcards)).job


@cache
def refused_models():
    """Models for whose adapters vLLM would end a job, hours from now."""
    names = float32_adapters(STUDY, SETTINGS.device)
    return names if names and (executor(None) == "slurm" or visible_devices()) else []


def gpus(wildcards):
    """GPUs of a job; with `device: cuda` at least one."""
    if (model := model_of(wildcards)) in refused_models():
        raise WorkflowError(
            f"models.{model}: {FLOAT32_ADAPTERS}, or run with `--config device=cpu`"
        )
    return max(job_of(wildcards).gpus, int(SETTINGS.device == "cuda"))


def executor(wildcards):
    """The executor of jobs: `local` or `slurm`."""
    return workflow.executor_plugin.name if workflow.executor_plugin else "local"


def memory(wildcards, attempt):
    return 1000 * job_of(wildcards).host_memory_gb * attempt


def minutes(wildcards, attempt):
    return 60 * job_of(wildcards).hours * attempt


def growing(amount):
    """A resource that grows with every attempt of a failed job."""
    return lambda wildcards, attempt: amount * attempt


def gpu_limit(wildcards):
    """How many GPUs jobs may use at a time: a limit set in the profile or command, else all."""
    limit = workflow.global_resources.get("gpu")
    value = limit.value if limit else None  # none where a cluster has no limit
    jobs = len(places()) if value is None else value
    return ceil(jobs / jobs_per_gpu())
