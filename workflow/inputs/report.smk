# What the ledger of claims and the page read.

from sage.exhibits import kind_of


def evidence():
    """What was measured for the exhibits that claims are tested on."""
    names = [name for name in STUDY.study.exhibits if kind_of(STUDY, name).evidence]
    return [RESULTS.measured(name) for name in names]


def page_sources():
    """Templates, style and script of the page, and the paper's tables."""
    folder = PROJECT / "reports"
    ends = "j2", "css", "js", "csv", "yaml"
    files = {path for end in ends for path in folder.rglob(f"*.{end}")}
    files -= set((folder / "kept").rglob("*"))  # runs to compare with
    return beside_snakefile(files)
