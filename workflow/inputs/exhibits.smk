# The tables and figures of the study, and what they are made from.

from sage.exhibits import (
    EVERY_REPORT,
    figures_of,
    frames_of,
    own_file,
    shows,
    tables_of,
)

SHOWN = [*STUDY.study.exhibits, *EVERY_REPORT]

TABLES = {
    table: (name, suffix)
    for name in SHOWN
    for table, suffix in tables_of(STUDY, name, PAPER).items()
}
FIGURES = {
    figure: (name, suffix)
    for name in SHOWN
    for figure, suffix in figures_of(STUDY, name).items()
}
PIECES = TABLES | FIGURES


def exhibit_files(name):
    """The files of an exhibit: its tables and figures, or its measurement if it has none."""
    files = [
        RESULTS.table(table) for table, (owner, _) in TABLES.items() if owner == name
    ]
    files += [
        RESULTS.figure(figure)
        for figure, (owner, _) in FIGURES.items()
        if owner == name
    ]
    return files or RESULTS.measured(name)


def exhibit_line(name):
    """What `snakemake --list` says of an exhibit: its title, or what its files contain."""
    exhibit = shows(STUDY, name)
    return getattr(exhibit, "title", "") or exhibit.contents.partition(". ")[0]


def piece_of(wildcards):
    """The exhibit of a table or figure, and the suffix to the exhibit's name."""
    return PIECES[wildcards.get("table") or wildcards.get("figure")]


def measured_of(wildcards):
    """The folders of an exhibit's frames."""
    return frames_of(STUDY, piece_of(wildcards)[0], RESULTS)


def paper_of(wildcards):
    """The paper's tables, for the table that compares the exhibit with them."""
    name, suffix = piece_of(wildcards)
    return [] if suffix in shows(STUDY, name).tables() else sorted(PAPER.glob("*.*"))


def showing_code(wildcards):
    exhibit = shows(STUDY, piece_of(wildcards)[0])
    own = own_file(exhibit)
    return beside_snakefile([own]) if own else code_of(type(exhibit).__module__)


def shown_study(wildcards):
    """The part of the study that a table or figure depends on."""
    name, _ = piece_of(wildcards)
    part = STUDY.seen_by() if name in EVERY_REPORT else STUDY.seen_by(name)
    return part.model_dump(mode="json")


def contents(wildcards):
    return shows(STUDY, piece_of(wildcards)[0]).contents


def table_category(wildcards):
    return shows(STUDY, piece_of(wildcards)[0]).category or "Tables"


def figure_category(wildcards):
    return shows(STUDY, piece_of(wildcards)[0]).category or "Figures"
