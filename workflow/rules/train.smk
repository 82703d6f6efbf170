# RL: one run per model, algorithm and training seed.


def rl_settings(wildcards):
    return STUDY.model(wildcards.model).rl.model_dump()


def algorithm_settings(wildcards):
    return STUDY.algorithms[wildcards.algorithm].model_dump()


def training_problems(wildcards):
    return STUDY.training_problems(RESULTS, wildcards.model)


def kl_reference(wildcards):
    """The checkpoint before SFT for algorithms that use it as reference; empty for all others."""
    if STUDY.algorithms[wildcards.algorithm].fidelity == "paper":
        return []
    return RESULTS.pretrained(wildcards.model)


def snapshots(wildcards):
    return STUDY.snapshots(wildcards.model, wildcards.algorithm)


def rl_scratch(wildcards):
    """The folder of a run's checkpoints. It is not declared: Snakemake deletes failed outputs."""
    return RESULTS.rl_scratch(run_of(wildcards))


def code_of_algorithms(rows):
    """The files of the classes that some algorithms name, including the user's own."""
    files = {file for row in rows for file in choice_files(STUDY.algorithms[row])}
    return beside_snakefile(files)


def algorithm_code(wildcards):
    return code_of_algorithms([wildcards.algorithm])


rule rl:
    input:
        parent=RESULTS.parent("{model}"),
        reference=kl_reference,
        problems=training_problems,
        code=code_of("sage.training.rl"),
        choices=algorithm_code,
    output:
        policy=directory(RESULTS.policy(RUN)),
    log:
        log_of("models/{model}/{algorithm}/seed{seed}"),
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        rl=rl_settings,
        algorithm=algorithm_settings,
        device=SETTINGS.device,
        scratch=rl_scratch,
        snapshots=snapshots,
    script:
        "../scripts/rl.py"
