# Samples of every policy.


rule sample:
    """Graded samples of a policy on a benchmark."""
    input:
        base=RESULTS.rl_start("{model}"),
        policy=lambda w: [] if w.algorithm == BASE else RESULTS.policy(run_of(w)),
        problems=RESULTS.problems("{benchmark}"),
        code=sampling_code,
    output:
        samples=RESULTS.samples(RUN, "{benchmark}"),
        manifest=RESULTS.sample_manifest(RUN, "{benchmark}"),
    log:
        RESULTS.log("samples/{model}/{algorithm}/seed{seed}/{benchmark}"),
    priority: first_pages_before(0)
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        evaluation=lambda w: STUDY.evaluation(w.model).decisive(),
        batch_size=lambda w: STUDY.evaluation(w.model).batch_size,
        # Not declared, like checkpoints of training.
        shards=lambda w: RESULTS.sample_shards(run_of(w), w.benchmark),
        device=SETTINGS.device,
    script:
        "../scripts/sample.py"
