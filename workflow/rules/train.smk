# RL: one run per model, method and training seed.


rule registered:
    """Prints what the study asks, as it was written down before any job."""
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
    """RL: one run of a model, method and training seed."""
    input:
        parent=RESULTS.rl_start("{model}"),
        reference=kl_reference,
        problems=lambda w: STUDY.training_problems(RESULTS, w.model),
        code=lambda w: code_of(
            "rl", "sage.training.rl", sets=[STUDY.rl(w.model).problems]
        ),
        choices=lambda w: code_of_algorithms([w.algorithm]),
    output:
        policy=directory(RESULTS.policy(RUN)),
    log:
        RESULTS.log("models/{model}/{algorithm}/seed{seed}"),
    # Long jobs first: a run that starts last leaves the other cores without work.
    priority: first_pages_before(1)
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
        # Not declared: Snakemake deletes failed outputs, and a run goes on from its checkpoints.
        scratch=lambda w: RESULTS.rl_scratch(run_of(w)),
        snapshots=lambda w: STUDY.snapshots(w.model, w.algorithm),
    script:
        "../scripts/rl.py"
