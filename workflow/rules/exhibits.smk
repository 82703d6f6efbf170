# The files of tables and figures, and what the report is made from.

from sage.reporting.layout import (
    FIGURE_KINDS,
    SETTINGS_TABLES,
    TABLE_KINDS,
    THEORY_FIGURES,
    THEORY_TABLES,
    used_problem_sets,
)


def table_files():
    """CSV files of every table: the study's exhibits, the settings and the theory."""
    readings = [f"{name}_reading" for name in exhibits_of("accuracy")]
    names = [*exhibits_of(*TABLE_KINDS), *readings, *SETTINGS_TABLES, *THEORY_TABLES]
    return [result(f"report/tables/{name}.csv") for name in names]


def figure_files():
    """SVG files of every figure: the study's exhibits and the theory."""
    names = [*exhibits_of(*FIGURE_KINDS), *THEORY_FIGURES]
    return [result(f"report/figures/{name}.svg") for name in names]


def measured_exhibits():
    """Metrics of the exhibits that claims are tested on."""
    names = exhibits_of("patterns", "perplexity", "step_times")
    return [result(f"metrics/{name}.parquet") for name in names]


def sample_manifests():
    """Manifests that lie beside the samples."""
    return [str(Path(path).with_suffix(".json")) for path in all_samples()]


def page_sources():
    """Templates, style and script of the page, and the paper's tables."""
    folder = Path(workflow.basedir) / "reports"
    ends = "j2", "css", "js", "csv", "yaml"
    found = {path for end in ends for path in folder.rglob(f"*.{end}")}
    found -= set((folder / "reference").rglob("*"))  # finished runs, to compare with
    return sorted(str(path.relative_to(workflow.basedir)) for path in found)


def exhibit_files(name):
    """What belongs to an exhibit: its tables, its figure, or the case it tells."""
    made = [*table_files(), *figure_files()]
    files = [path for path in made if Path(path).stem in (name, f"{name}_reading")]
    return files or [result(f"metrics/{name}.json")]
