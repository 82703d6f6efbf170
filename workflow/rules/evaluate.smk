# Samples of every policy, what exhibits measure with a model, and how often the grader may err
# (`snakemake audit --cores 1`).


rule sample:
    """Graded samples of a policy on its benchmarks."""
    input:
        base=RESULTS.rl_start("{model}"),
        policy=lambda w: [] if w.algorithm == BASE else RESULTS.policy(run_of(w)),
        problems=lambda w: problem_files(benchmarks_of(w)),
        code=sampling_code,
    output:
        samples=directory(RESULTS.drawn(RUN)),
    log:
        RESULTS.log("samples/{model}/{algorithm}/seed{seed}"),
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
        shards=lambda w: RESULTS.sample_shards(run_of(w)),
        device=SETTINGS.device,
    script:
        "../scripts/sample.py"


rule measure_with_model:
    """What an exhibit measures with a model; the report measures the others."""
    input:
        unpack(inputs_of),
        code=measuring_code,
    output:
        folder=directory(RESULTS.measured("{exhibit}")),
    log:
        RESULTS.log("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(WITH_MODEL),
    priority: 3  # as `sample_priority`
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        exhibit=exhibit_settings,
        settings=lambda w: kind_of(STUDY, w.exhibit).settings(STUDY, w.exhibit),
        files=lambda w: files_of(w.exhibit),
        shards=lambda w: RESULTS.exhibit_shards(w.exhibit),
        device=SETTINGS.device,
    script:
        "../scripts/measure.py"


rule audit_grading:
    """How often the grader may err on the study's samples."""
    input:
        samples=all_drawn(),
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
