# What samples and histories show beyond pass@k; one file an exhibit.


# Seconds of work: on a cluster it is done where Snakemake runs, not queued.
localrules:
    gradient_norms,


rule patterns:
    input:
        samples=exhibit_samples,
        lists="config/patterns.yaml",
        code=code_of("sage.analysis.patterns"),
    output:
        table=result("metrics/{exhibit}.parquet"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("patterns")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        bootstrap=STUDY.study.evaluation.bootstrap,
        exhibit=exhibit_settings,
    script:
        "../scripts/patterns.py"


rule perplexity:
    input:
        base=exhibit_base,
        samples=exhibit_samples,
        problems=exhibit_problems,
        code=code_of("sage.analysis.perplexity"),
    output:
        table=result("metrics/{exhibit}.parquet"),
        manifest=result("metrics/{exhibit}.json"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("perplexity")),
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        algorithms=exhibit_rows,
        exhibit=exhibit_settings,
        device=SETTINGS.device,
    script:
        "../scripts/perplexity.py"


rule gradient_norms:
    input:
        policies=exhibit_policies,
        code=code_of("sage.analysis.dynamics"),
    output:
        table=result("metrics/{exhibit}.parquet"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("gradient_norms")),
    conda:
        ENVIRONMENT
    params:
        algorithms=exhibit_rows,
    script:
        "../scripts/gradient_norms.py"


rule step_times:
    input:
        parent=exhibit_base,
        problems=training_problems,
        code=code_of("sage.training.stopwatch"),
        guides=exhibit_guides,
    output:
        table=result("metrics/{exhibit}.parquet"),
        manifest=result("metrics/{exhibit}.json"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("step_times")),
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        rl=rl_settings,
        algorithms=exhibit_algorithms,
        exhibit=exhibit_settings,
        device=SETTINGS.device,
    script:
        "../scripts/step_times.py"


rule select_case:
    input:
        samples=exhibit_samples,
        problems=exhibit_problems,
        code=code_of("sage.analysis.case_study"),
    output:
        case=result("metrics/{exhibit}.json"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("case_study")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
    params:
        algorithms=exhibit_rows,
    script:
        "../scripts/case_study.py"


rule trajectory:
    input:
        base=exhibit_base,
        policies=exhibit_policies,
        problems=exhibit_problems,
        code=code_of("sage.evaluation.trajectory", *engine_modules()),
    output:
        table=result("metrics/{exhibit}.parquet"),
        manifest=result("metrics/{exhibit}.json"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("trajectory")),
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        algorithms=exhibit_rows,
        exhibit=exhibit_settings,
        evaluation=exhibit_evaluation,
        shards=result("shards/{exhibit}"),
        device=SETTINGS.device,
    script:
        "../scripts/trajectory.py"
