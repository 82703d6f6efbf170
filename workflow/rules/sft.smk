# Supervised fine-tuning to the answer format, for models with an `sft` section.


rule examples:
    """What SFT trains on."""
    input:
        code=code_of("sage.training.examples"),
    output:
        examples=RESULTS.examples("{model}"),
    log:
        RESULTS.log("models/{model}/examples"),
    wildcard_constraints:
        model=one_of(models_with_sft()),
    conda:
        ENVIRONMENT
    params:
        data=data_of_sft,
        examples=example_settings,
        source=sft_source,
    script:
        "../scripts/examples.py"


rule sft:
    """Supervised fine-tuning to the answer format."""
    input:
        checkpoint=RESULTS.pretrained("{model}"),
        examples=RESULTS.examples("{model}"),
        code=code_of("sage.training.sft"),
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
        sft=sft_settings,
        source=sft_source,
        device=SETTINGS.device,
        scratch=sft_scratch,
    script:
        "../scripts/sft.py"
