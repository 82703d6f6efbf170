# What the measurement of an exhibit reads: its kind knows.

from sage.exhibits import kind_of, own_file

# Exhibits with a measurement of their own; the others show metrics.
MEASURED = [name for name in STUDY.study.exhibits if kind_of(STUDY, name).measures]
WITH_MODEL = [name for name in MEASURED if kind_of(STUDY, name).with_model]
WITHOUT_MODEL = [name for name in MEASURED if name not in WITH_MODEL]


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
        *beside_snakefile(exhibit.code(STUDY)),
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
