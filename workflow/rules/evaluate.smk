rule sample:
    input:
        base=result("models/{model}/base"),
        policy=trained_policy,
        problems=result("problems/{benchmark}.jsonl"),
        code=code_of(
            "sage.evaluation.samples",
            *(f"sage.sampling.{engine}_engine" for engine in engines()),
        ),
    output:
        samples=result("samples/{model}/{algorithm}/seed{seed}/{benchmark}.parquet"),
        manifest=result("samples/{model}/{algorithm}/seed{seed}/{benchmark}.json"),
    log:
        log_of("samples/{model}/{algorithm}/seed{seed}/{benchmark}"),
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
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
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/metrics.py"
