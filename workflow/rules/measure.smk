# Measures each exhibit into its own folder. The registry of `sage.exhibits` knows what a kind
# needs. Exhibits that need a model have their own rule, because their jobs need other resources.

from sage.exhibits import kind_of, own_file

WITH_MODEL = [name for name in STUDY.study.exhibits if kind_of(STUDY, name).with_model]
WITHOUT_MODEL = [name for name in STUDY.study.exhibits if name not in WITH_MODEL]


def inputs_of(wildcards):
    """The files that an exhibit is measured from, by name."""
    name = wildcards.exhibit
    return dict(kind_of(STUDY, name).inputs(STUDY, RESULTS, name))


def measuring_code(wildcards):
    """The code that decides what is measured, and a user's own file."""
    exhibit = kind_of(STUDY, wildcards.exhibit)
    rows = [row for row in STUDY.rows_of(wildcards.exhibit) if row != BASE]
    own = own_file(exhibit)
    files = [
        *code_of(*exhibit.modules(STUDY)),
        *(beside_snakefile([own]) if own else []),
    ]
    return files + (code_of_algorithms(rows) if exhibit.with_model else [])


def exhibit_settings(wildcards):
    """Its own settings without its title, which changes no result."""
    return {**STUDY.study.exhibits[wildcards.exhibit].model_dump(), "title": ""}


def deciding_settings(wildcards):
    name = wildcards.exhibit
    return kind_of(STUDY, name).settings(STUDY, name)


def exhibit_shards(wildcards):
    return RESULTS.exhibit_shards(wildcards.exhibit)


rule measure:
    input:
        unpack(inputs_of),
        code=measuring_code,
    output:
        folder=directory(RESULTS.measured("{exhibit}")),
    log:
        log_of("metrics/{exhibit}"),
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
