# The exhibits of the study: what their measurement reads, their tables and figures, and what the
# ledger of claims and the page read. The registry of `sage.exhibits` knows it of each kind.

from sage.exhibits import (
    EVERY_REPORT,
    in_every_report,
    figures_of,
    frames_of,
    kind_of,
    own_files,
    shows,
    tables_of,
)

# Exhibits with a measurement of their own; the others show metrics.
MEASURED = [name for name in STUDY.study.exhibits if kind_of(STUDY, name).measures]
WITH_MODEL = [name for name in MEASURED if kind_of(STUDY, name).with_model]
WITHOUT_MODEL = [name for name in MEASURED if name not in WITH_MODEL]
SHOWN = [*STUDY.study.exhibits, *in_every_report(STUDY)]

# Of samples alone the report takes a job; runs and measurements are jobs of their own.
IN_ONE_JOB = not STUDY.training_sets() and not MEASURED

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


def inputs_of(wildcards):
    """The files that an exhibit is measured from, by name."""
    name = wildcards.exhibit
    return dict(kind_of(STUDY, name).inputs(STUDY, RESULTS, name))


@cache
def drawn_beside():
    """Samples that exhibits wait for which draw with a model, and so take long themselves."""
    inputs = [kind_of(STUDY, name).inputs(STUDY, RESULTS, name) for name in WITH_MODEL]
    return {str(path) for each in inputs for path in each.get("samples", [])}


def sample_priority(wildcards):
    """Before RL what an exhibit waits for that draws itself: one that starts last runs alone."""
    file = RESULTS.samples(run_of(wildcards), wildcards.benchmark)
    return first_pages_before(3 * (str(file) in drawn_beside()))(wildcards)


def measuring_code(wildcards):
    """The code that decides what is measured, and a user's own files."""
    exhibit = kind_of(STUDY, wildcards.exhibit)
    rows = [method for method in STUDY.methods_of(wildcards.exhibit) if method != BASE]
    script = PROJECT / "workflow/scripts/measure.py"
    code = with_own_tasks({*exhibit.code(STUDY), *own_files(exhibit), script})
    files = beside_snakefile(code)
    return files + (code_of_algorithms(rows) if exhibit.with_model else [])


def exhibit_settings(wildcards):
    """Its own settings without its title, which changes no result."""
    return {**STUDY.study.exhibits[wildcards.exhibit].model_dump(), "title": ""}


def exhibit_files(name):
    """The files of an exhibit: its tables and figures, or its measurement if it has none."""
    tables = [
        RESULTS.table(table) for table, (owner, _) in TABLES.items() if owner == name
    ]
    figures = [
        RESULTS.figure(figure)
        for figure, (owner, _) in FIGURES.items()
        if owner == name
    ]
    return tables + figures or RESULTS.measured(name)


def exhibit_line(name):
    """What `snakemake --list` says of an exhibit: its title, or what its files contain."""
    exhibit = shows(STUDY, name)
    return getattr(exhibit, "title", "") or exhibit.contents.partition(". ")[0]


def piece_of(wildcards):
    """The exhibit of a table or figure, and the suffix to the exhibit's name."""
    return PIECES[wildcards.get("table") or wildcards.get("figure")]


def shown_by(wildcards):
    """The exhibit of a table or figure, as it is shown."""
    return shows(STUDY, piece_of(wildcards)[0])


def measured_of(wildcards):
    """The folders of an exhibit's frames."""
    return frames_of(STUDY, piece_of(wildcards)[0], RESULTS)


def paper_of(wildcards):
    """The paper's tables, for what is made of them or compares an exhibit with them."""
    _, suffix = piece_of(wildcards)
    shown = shown_by(wildcards)
    own = suffix in shown.tables() and not shown.of_paper
    return [] if own else sorted(PAPER.glob("*.*"))


def shown_study(wildcards):
    """The part of the study that a table or figure depends on."""
    name, _ = piece_of(wildcards)
    part = STUDY.seen_by() if name in EVERY_REPORT else STUDY.seen_by(name)
    return part.model_dump(mode="json")


def evidence():
    """What was measured for the exhibits that claims are tested on."""
    names = [name for name in STUDY.study.exhibits if kind_of(STUDY, name).evidence]
    return [RESULTS.measured(name) for name in names]


def file_of_claims():
    """The file that the study's claims are in; none where the study has its own."""
    asked = STUDY.study.claims
    return [from_repository(asked)] if isinstance(asked, str) else []


def shown_code():
    """The code that shows all exhibits, and a user's own files."""
    exhibits = [shows(STUDY, name) for name in SHOWN]
    own = {file for exhibit in exhibits for file in own_files(exhibit)}
    modules = {type(exhibit).__module__ for exhibit in exhibits}
    code = code_of("whole_page", "sage.report.partial", *modules)
    return sorted({*code, *beside_snakefile(own)})


def page_sources():
    """Templates, style and script of the page, and the paper's tables."""
    folder = PROJECT / "reports"
    ends = "j2", "css", "js", "csv", "yaml"
    places = folder, folder / "partials", folder / "paper"  # beside them are kept runs
    files = {
        path for end in ends for place in places for path in place.glob(f"*.{end}")
    }
    return beside_snakefile(files)
