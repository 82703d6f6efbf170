rule sample:
    input:
        base=result("models/{model}/base"),
        policy=trained_policy,
        problems=result("problems/{benchmark}.jsonl"),
        code=code_of("sage.evaluation.samples", *engine_modules()),
    output:
        samples=result("samples/{model}/{algorithm}/seed{seed}/{benchmark}.parquet"),
        manifest=result("samples/{model}/{algorithm}/seed{seed}/{benchmark}.json"),
    log:
        log_of("samples/{model}/{algorithm}/seed{seed}/{benchmark}"),
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        evaluation=evaluation_settings,
        batch_size=batch_size,
        shard_size=shard_size,
        shards=sample_shards,
        device=SETTINGS.device,
    script:
        "../scripts/sample.py"


rule metrics:
    input:
        samples=all_samples(),
        code=code_of("sage.evaluation.metrics"),
    output:
        pass_at_k=result("metrics/pass_at_k.parquet"),
        rates=result("metrics/rates.parquet"),
        comparisons=result("metrics/comparisons.parquet"),
        support=result("metrics/support.parquet"),
        diversity=result("metrics/diversity.parquet"),
        paper_reading=result("metrics/paper_reading.parquet"),
    log:
        log_of("metrics"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/metrics.py"


# The same of one exhibit, so that a table or figure needs no runs but those it shows.
rule exhibit_metrics:
    input:
        samples=exhibit_samples,
        code=code_of("sage.evaluation.metrics"),
    output:
        pass_at_k=result("metrics/{exhibit}/pass_at_k.parquet"),
        comparisons=result("metrics/{exhibit}/comparisons.parquet"),
        paper_reading=result("metrics/{exhibit}/paper_reading.parquet"),
    log:
        log_of("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("accuracy")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/metrics.py"


use rule exhibit_metrics as exhibit_curves with:
    output:
        pass_at_k=result("metrics/{exhibit}/pass_at_k.parquet"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("ablation", "curves")),
