# Samples of every policy, and metrics of the whole study.


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


# Measured once, shown by many exhibits.
rule evaluate:
    """All metrics of a model's methods on a benchmark."""
    input:
        samples=samples_of_all,
        problems=RESULTS.problems("{benchmark}"),
        code=code_of("evaluate", "sage.evaluation.metrics"),
    output:
        folder=directory(RESULTS.evaluated("{model}", "{benchmark}")),
    log:
        RESULTS.log("evaluation/{model}/{benchmark}"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/evaluate.py"


rule metrics:
    """pass@k, comparisons and support of the whole study."""
    input:
        evaluated=all_evaluated(),
        code=code_of("metrics", "sage.evaluation.metrics"),
    output:
        counts=RESULTS.metrics("counts"),
        pass_at_k=RESULTS.metrics("pass_at_k"),
        rates=RESULTS.metrics("rates"),
        comparisons=RESULTS.metrics("comparisons"),
        support=RESULTS.metrics("support"),
        paper_reading=RESULTS.metrics("paper_reading"),
        chance=RESULTS.metrics("chance"),
    log:
        RESULTS.log("metrics"),
    conda:
        ENVIRONMENT
    params:
        bases=STUDY.study.bases,
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/metrics.py"
