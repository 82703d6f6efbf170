"""Sections that every report has: theory, hyperparameters, contamination, grading, coverage.

They stand beside the exhibits of `sage.reporting.sections` and are made alike: from files where
these are there, else as not run.
"""

from __future__ import annotations

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.reporting.content import PageContent
from sage.reporting.grading import STATUSES, grading_table
from sage.reporting.layout import PageFiles
from sage.reporting.looks import line_styles
from sage.reporting.sections import Section, label_of
from sage.reporting.views import (
    NONE,
    Cell,
    Group,
    Head,
    Part,
    Row,
    Table,
    grouped,
    inline_svg,
    line_key,
    plain_table,
)
from sage.reporting.wording import benchmark_titles, percent, row_title
from sage.study import BASE, ResolvedStudy

THEORY_CAPTIONS = {
    "figure1": "How each guide reshapes an anchor, drawn with the guide functions of training on "
    "a small tree of tokens at the first step.",
    "figure5": "Where three divergences take one policy: reverse KL seeks a mode, forward KL "
    "covers both, and the reverse KL to a guided anchor reaches the rarer one. Fitted, not drawn.",
    "appendix_c": "The toy example of Appendix C on a two-token tree, computed exactly with "
    "numbers of this project, for the paper’s were lost in its text.",
}
_STATUS_TITLES = {
    "correct": "Correct",
    "wrong": "Wrong",
    "unparsed": "Unparsed",
    "timeout": "Timeout",
    "gold_unparsed": "No reference",
    "truncated": "Truncated",
}
_SUPPORT = {
    "preserved": "Kept",
    "shrunk": "Lost",
    "expanded": "New",
    "neither": "Never",
    "srr": "Retention",
    "ndr": "Discovery",
    "sds": "Dynamics",
    "nscr": "Net change",
}


def theory_section(content: PageContent, files: PageFiles) -> Section:
    """Figures 1 and 5 and the toy example: what needs no run."""
    parts, missing = [], []
    for name in ("figure1", "figure5"):
        path = files.figures[name].as_posix()
        if name not in content.figures:
            missing.append(path)
            continue
        caption = f"{label_of(name)}. {THEORY_CAPTIONS[name]}"
        figure = inline_svg(content.figures[name], f"svg-{name}", THEORY_CAPTIONS[name])
        parts.append(Part(f"figure-{name}", caption, path, name, figure=figure))
    path = files.tables["appendix_c"].as_posix()
    if "appendix_c" in content.tables:
        titles = {"frequent": "Frequent completion", "rare": "Rare completion"}
        table = plain_table(content.tables["appendix_c"], "Quantity", titles)
        caption = f"Appendix C. {THEORY_CAPTIONS['appendix_c']}"
        parts.append(Part("table-appendix_c", caption, path, "appendix_c", table=table))
    else:
        missing.append(path)
    return Section("theory", "", "Theory", "theory", parts=tuple(parts), missing=tuple(missing))


def settings_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Tables 7 and 8: the hyperparameters that were used, a column per model."""
    titles = {name: model.title for name, model in study.study.models.items()}
    captions = {
        "table7": "Settings of supervised fine-tuning, as used.",
        "table8": "Settings of reinforcement learning, as used; algorithms that differ are named.",
    }
    parts, missing = [], []
    for name, caption in captions.items():
        path = files.tables[name].as_posix()
        if name in content.tables:
            table = plain_table(content.tables[name], "Setting", titles)
            text = f"{label_of(name)}. {caption}"
            parts.append(Part(f"table-{name}", text, path, name, table=table))
        else:
            missing.append(path)
    return Section(
        "hyperparameters", "", "Hyperparameters", "table7 table8", (), tuple(parts), tuple(missing)
    )


def contamination_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Which problems of training are in the benchmarks."""
    path, rule = files.contamination.as_posix(), study.study.contamination
    name, found = "contamination", content.contamination
    if found is None:
        return Section(name, "", "Contamination", name, missing=(path,))
    titles = benchmark_titles(study)
    groups = []
    for training, rows in found.groupby("training", sort=False):
        cells = [
            Row(
                titles.get(str(row["benchmark"]), str(row["benchmark"])),
                (
                    Cell(grouped(row["problems"])),
                    Cell(grouped(row["exact"]), mark="" if row["exact"] else "nil"),
                    Cell(grouped(row["ngram"]), mark="" if row["ngram"] else "nil"),
                    Cell(percent(row["share"]), mark="" if row["share"] else "nil"),
                    Cell(grouped(row["training_overlapping"])),
                ),
            )
            for row in rows.to_dict("records")
        ]
        size = grouped(int(rows["training_problems"].iloc[0]))
        heading = f"{titles.get(str(training), str(training))} ({size} problems)"
        groups.append(Group(heading, tuple(cells)))
    columns = ("Problems", "Same text", "Near", "Share (%)", "In training")
    caption = (
        "Benchmark problems that occur in the set RL trains on, in the same words or near them: "
        f"near means that at least {rule.share:g} of the problem’s {rule.ngram}-word sequences are "
        "repeated. The last column counts training problems. "
        + ("Overlapping training problems were dropped." if rule.drop else "None were dropped.")
    )
    table = Table("Benchmark", tuple(Head("", (name,)) for name in columns), tuple(groups))
    part = Part("table-contamination", caption, path, name, table=table)
    return Section(name, "", "Contamination", name, parts=(part,))


def grading_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """What became of every row's completions, folded by model."""
    path = files.metrics["rates"].as_posix()
    rates = content.metrics.get("rates")
    if rates is None:
        return Section("grading", "", "How completions were graded", "metrics", missing=(path,))
    caption = (
        "Percent of a row’s completions by status, pooled over training seeds. Unparsed: no "
        "answer could be read. Timeout: comparing answers took too long. Truncated: cut off at "
        "the token limit; these are counted under their status as well."
    )
    parts = [
        Part(
            f"table-grading-{model}",
            caption,
            path,
            "metrics",
            table=grading_view(grading_table(rates, study, model), study),
            summary=settings.title,
        )
        for model, settings in study.study.models.items()
    ]
    return Section("grading", "", "How completions were graded", "metrics", parts=tuple(parts))


def grading_view(grading: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A grading table by benchmark, in percent; a column that is nought throughout is left out."""
    titles, styles = benchmark_titles(study), line_styles(study)
    always = ("correct", "wrong", "unparsed", "truncated")
    statuses = [name for name in STATUSES if name in always or grading[name].any()]
    groups = []
    for benchmark, rows in grading.groupby("benchmark", sort=False):
        views = []
        for row in rows.to_dict("records"):
            texts = [percent(row[status]) for status in statuses]
            cells = [Cell(text, mark="nil" if text == "0.0" else "") for text in texts]
            cells.append(Cell(grouped(row["n_samples"])))
            name = row["algorithm"]
            title, key = row_title(study, name), line_key(styles[name])
            views.append(Row(title, tuple(cells), key, name == BASE))
        groups.append(Group(titles[str(benchmark)], tuple(views)))
    columns = [*(_STATUS_TITLES[status] for status in statuses), "Completions"]
    return Table("Algorithm", tuple(Head("", (name,)) for name in columns), tuple(groups))


def support_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Problems gained and lost against the base, folded by model."""
    path = files.metrics["support"].as_posix()
    title, support = "Problems kept, lost and gained", content.metrics.get("support")
    if support is None:
        return Section("support", "", title, "metrics", missing=(path,))
    parts = []
    for model, settings in study.study.models.items():
        rows = support[(support["model"] == model) & (support["train_seed"] == POOLED)]
        if rows.empty:
            continue
        epsilon = ", ".join(f"{value:.2g}" for value in sorted(set(rows["epsilon"])))
        caption = (
            "Problems solved by any sample before and after RL, added up over training seeds. "
            "Retention: of those solved before, the share still solved. Discovery: of those "
            "solved after, the share that is new. Dynamics: their harmonic mean. Net change: new "
            "minus lost over all solved. A problem counts as unsolved if its success rate is "
            f"likely below {epsilon}; it need not be nought (Wu et al. 2025)."
        )
        parts.append(
            Part(
                f"table-support-{model}",
                caption,
                path,
                "metrics",
                table=support_view(rows, study),
                summary=settings.title,
            )
        )
    return Section("support", "", title, "metrics", parts=tuple(parts))


def support_view(support: pd.DataFrame, study: ResolvedStudy) -> Table:
    """Pooled rows of the support metrics by benchmark."""
    titles, styles = benchmark_titles(study), line_styles(study)
    counts = ("preserved", "shrunk", "expanded", "neither")
    groups = []
    for benchmark, rows in support.groupby("benchmark", sort=False):
        views = []
        for row in rows.to_dict("records"):
            cells = [Cell(grouped(row[name])) for name in counts]
            for name in list(_SUPPORT)[len(counts) :]:
                known = not pd.isna(row[name])
                cells.append(Cell(f"{row[name]:.2f}" if known else NONE))
            key = line_key(styles[row["algorithm"]])
            views.append(Row(row_title(study, row["algorithm"]), tuple(cells), key))
        groups.append(Group(titles[str(benchmark)], tuple(views)))
    heads = tuple(Head("", (name,)) for name in _SUPPORT.values())
    return Table("Algorithm", heads, tuple(groups))
