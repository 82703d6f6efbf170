# The exhibits of the study: what each needs, its tables and figures. The registry of `sage.exhibits`
# knows it of each kind.

from sage.claims import CONTRASTS
from sage.exhibits import (
    EVERY_REPORT,
    in_every_report,
    figures_of,
    kind_of,
    own_files,
    shows,
    tables_of,
)
from sage.report.needs import files_needed

SHOWN = [*STUDY.study.exhibits, *in_every_report(STUDY)]
MEASURED = [name for name in SHOWN if shows(STUDY, name).measures]
WITH_MODEL = [name for name in MEASURED if shows(STUDY, name).with_model]
WITHOUT_MODEL = [name for name in MEASURED if name not in WITH_MODEL]
TABLES = {table: name for name in SHOWN for table in tables_of(STUDY, name, PAPER)}
FIGURES = {figure: name for name in SHOWN for figure in figures_of(STUDY, name)}


def files_of(exhibit):
    """The files that an exhibit is measured from, by name, as plain data."""
    files = kind_of(STUDY, exhibit).inputs(STUDY, RESULTS, exhibit)
    return {name: [str(path) for path in paths] for name, paths in files.items()}


def made_by_jobs(files):
    """What jobs make of these files: samples come in the folder of their policy."""
    drawn = RESULTS.folder / "samples"
    paths = [path.parent if path.is_relative_to(drawn) else path for path in files]
    return [*dict.fromkeys(paths)]


def inputs_of(wildcards):
    """What a measurement with a model waits for, by name."""
    files = kind_of(STUDY, wildcards.exhibit).inputs(STUDY, RESULTS, wildcards.exhibit)
    return {name: made_by_jobs(paths) for name, paths in files.items()}


def needed_by(*names):
    """What jobs make for exhibits before these can be shown."""
    return made_by_jobs(
        path for name in names for path in files_needed(STUDY, RESULTS, name)
    )


@cache
def drawn_beside():
    """Samples that exhibits wait for which draw with a model, and so take long themselves."""
    return {*needed_by(*WITH_MODEL)}


def sample_priority(wildcards):
    """Before RL what an exhibit waits for that draws itself: one that starts last runs alone."""
    folder = RESULTS.drawn(run_of(wildcards))
    return first_pages_before(3 * (folder in drawn_beside()))(wildcards)


def measuring_code(wildcards):
    """The code that decides what is measured, and a user's own files."""
    exhibit = kind_of(STUDY, wildcards.exhibit)
    rows = [method for method in STUDY.methods_of(wildcards.exhibit) if method != BASE]
    script = PROJECT / "workflow/scripts/measure.py"
    code = with_own_tasks({*exhibit.code(STUDY), *own_files(exhibit), script})
    return beside_snakefile(code) + code_of_algorithms(rows)


def exhibit_settings(wildcards):
    """Its own settings without its title, which changes no result."""
    return {**STUDY.study.exhibits[wildcards.exhibit].model_dump(), "title": ""}


def exhibit_files(name, results):
    """The files of an exhibit: its tables and figures, or its measurement if it has none."""
    tables = [results.table(table) for table, owner in TABLES.items() if owner == name]
    figures = [
        results.figure(figure) for figure, owner in FIGURES.items() if owner == name
    ]
    return tables + figures or [results.measured(name)]


def exhibit_line(name):
    """What `snakemake --list` says of an exhibit: its title, or what its files contain."""
    exhibit = shows(STUDY, name)
    return getattr(exhibit, "title", "") or exhibit.contents.partition(". ")[0]


def said_of(name, heading):
    """What `snakemake --report` says of a table or figure of an exhibit."""
    labels = {"exhibit": name, "shows": exhibit_line(name)}
    return {"category": shows(STUDY, name).category or heading, "labels": labels}


def file_of_claims():
    """The file that the study's claims are in; none where the study has its own."""
    asked = STUDY.study.claims
    return [from_repository(asked)] if isinstance(asked, str) else []


def report_code():
    """The code that measures and shows exhibits and makes the page, and a user's own files."""
    exhibits = [shows(STUDY, name) for name in SHOWN]
    own = {file for exhibit in exhibits for file in own_files(exhibit)}
    modules = {type(exhibit).__module__ for exhibit in exhibits}
    for name in WITHOUT_MODEL:
        own |= kind_of(STUDY, name).code(STUDY) if name not in EVERY_REPORT else set()
    code = code_of("report", "sage.report.make", *modules)
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
