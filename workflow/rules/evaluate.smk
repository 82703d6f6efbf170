# Samples of every policy, and how often the grader may err on them (`snakemake audit --cores 1`).


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
    priority: sample_priority
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


rule audit_grading:
    """How often the grader may err on the study's samples."""
    input:
        samples=all_samples(),
        problems=problem_files(samples_by_benchmark()),
        code=code_of("audit", "sage.evaluation.audit"),
    output:
        counts=RESULTS.audit("counts"),
        suspects=RESULTS.audit("suspects"),
    log:
        RESULTS.log("audit"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(6000),
        runtime=growing(60),
    params:
        samples=samples_by_benchmark(),
    script:
        "../scripts/audit.py"


rule audit:
    """Prints how often the grader may err on the study's samples."""
    input:
        counts=rules.audit_grading.output.counts,
        suspects=rules.audit_grading.output.suspects,
    log:
        RESULTS.log("audit_shown"),
    conda:
        ENVIRONMENT
    script:
        "../scripts/show_audit.py"
