# Measures each exhibit into its own folder. The registry of `sage.exhibits` knows what a kind
# needs. Exhibits that need a model have their own rule, because their jobs need other resources.


rule measure:
    """What an exhibit measures."""
    input:
        unpack(inputs_of),
        code=measuring_code,
    output:
        folder=directory(RESULTS.measured("{exhibit}")),
    log:
        RESULTS.log("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(WITHOUT_MODEL),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        exhibit=exhibit_settings,
        settings=deciding_settings,
        shards=exhibit_shards,
        device="cpu",
    script:
        "../scripts/measure.py"


use rule measure as measure_with_model with:
    wildcard_constraints:
        exhibit=one_of(WITH_MODEL),
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        exhibit=exhibit_settings,
        settings=deciding_settings,
        shards=exhibit_shards,
        device=SETTINGS.device,
