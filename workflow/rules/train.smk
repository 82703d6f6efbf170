# RL: one run per model, method and training seed.


# Shows what the study asks, which `onstart` writes down before any job.
rule registered:
    log:
        RESULTS.log("registered"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        file=RESULTS.registered,
    script:
        "../scripts/registered.py"


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
        RESULTS.log("models/{model}/{algorithm}/seed{seed}"),
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
