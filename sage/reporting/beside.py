"""What stands beside an exhibit: the paper's numbers, and the paper's reading of the samples.

The paper's numbers are there for models that are the paper's own (`sage.reporting.paper`).
"""

from __future__ import annotations

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.reporting.content import PageContent
from sage.reporting.layout import PageFiles
from sage.reporting.paper import compared
from sage.reporting.paper_reading import reading_caption
from sage.reporting.views import (
    NONE,
    Cell,
    Group,
    Head,
    Part,
    Table,
    algorithm_row,
    interval_of_points,
    points,
    share_cell,
)
from sage.reporting.wording import benchmark_titles, percent
from sage.study import ResolvedStudy
from sage.study.exhibits import AblationTable, PatternTable

PAPER_CAPTIONS = {
    "accuracy": "The paper’s numbers (reports/paper) beside the measured ones, which are of the "
    "same problems. ± is the standard deviation over evaluation seeds, here of the paper’s "
    "reading. The difference is measured minus paper. Its 95 % interval is of the noise of "
    "evaluating these very policies; how training runs differ is not in it, for the paper has "
    "one. Inside: the interval holds nought, so that this noise alone could explain it.",
    "ablation": "The paper’s numbers (reports/paper) beside the measured ones. The paper gives no "
    "deviations here, so the difference has no interval.",
    "patterns": "The paper’s numbers (reports/paper) beside the measured ones. They are not alike: "
    "the phrase lists that decide here are this project’s own.",
    "gradient_norms": "The paper’s numbers (reports/paper) beside the measured ones. The paper’s "
    "are of one training run: nothing is known about how its runs differ.",
}


def paper_parts(
    study: ResolvedStudy, name: str, content: PageContent, files: PageFiles
) -> list[Part]:
    """The paper's numbers beside the measured ones, and the paper's reading of the samples."""
    parts = []
    shown, reading = study.study.exhibits[name], f"{name}_reading"
    paper = content.paper
    paper = paper[(paper["kind"] == shown.kind) & (paper["model"] == shown.model)]
    measured, on = _measured(study, name, content)
    if measured is not None and len(measured) and len(paper):
        both = compared(paper, measured, on)
        if len(both):
            caption = PAPER_CAPTIONS[shown.kind]
            view = beside_view(both, study, shown.kind)
            path = files.tables[name].as_posix()
            parts.append(Part(f"paper-{name}", caption, path, name, table=view))
    if reading in content.tables:
        parts.append(
            Part(
                anchor=f"table-{reading}",
                caption=reading_caption(study, name),
                path=files.tables[reading].as_posix(),
                target=name,
                table=reading_view(content.tables[reading], study),
                summary="The paper’s reading of the same samples",
            )
        )
    return parts


def reading_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """Two readings of the same samples, a block of rows per benchmark."""
    titles, ks = benchmark_titles(study), sorted({int(k) for k in table["k"]})
    groups = []
    for benchmark, of in table.groupby("benchmark", sort=False):
        rows = []
        for algorithm, found in of.groupby("algorithm", sort=False):
            by_k = found.set_index("k").to_dict("index")
            cells = []
            for k in ks:
                row = by_k.get(k)
                if row is None or pd.isna(row["value"]):
                    cells += [Cell(NONE, mark="nil")] * 2
                    continue
                spread = "" if pd.isna(row["std"]) else f"± {percent(row['std'])}"
                cells.append(share_cell(row["value"], row["low"], row["high"]))
                cells.append(Cell(percent(row["reading"]), spread))
            rows.append(algorithm_row(study, str(algorithm), cells))
        groups.append(Group(titles[str(benchmark)], tuple(rows)))
    heads = tuple(Head(f"pass@{k}", ("unbiased", "as in the paper")) for k in ks)
    return Table("Algorithm", heads, tuple(groups))


def beside_view(table: pd.DataFrame, study: ResolvedStudy, kind: str) -> Table:
    """Paper's value, measured value, difference, and whether evaluation noise could explain it."""
    titles = benchmark_titles(study)
    in_percent = kind != "gradient_norms"

    def number(value: float) -> str:
        return percent(value) if in_percent else f"{value:.3f}"

    def spread(std: float) -> str:
        return "" if pd.isna(std) else f"± {number(std)}"

    groups = []
    for (benchmark, quantity), of in table.groupby(["benchmark", "quantity"], sort=False):
        rows = []
        for row in of.to_dict("records"):
            difference = row["difference"]
            text = points(difference) if in_percent else f"{difference:+.3f}".replace("-", "\u2212")
            inside = {True: "yes", False: "no", None: NONE}[row["inside"]]
            cells = (
                Cell(number(row["value"]), spread(row["std"])),
                Cell(number(row["measured"]), spread(row["measured_std"])),
                Cell(text, interval_of_points(row["low"], row["high"])),
                Cell(inside, mark="nil" if inside == NONE else ""),
            )
            rows.append(algorithm_row(study, row["algorithm"], cells))
        words = str(quantity).replace("_", " ")
        heading = f"{titles[str(benchmark)]}, {words}" if benchmark else words.capitalize()
        groups.append(Group(heading, tuple(rows)))
    columns = ("Paper", "Measured", "Measured − paper", "Paper’s value inside")
    return Table("Algorithm", tuple(Head("", (name,)) for name in columns), tuple(groups))


def _measured(
    study: ResolvedStudy, name: str, content: PageContent
) -> tuple[pd.DataFrame | None, list[str]]:
    """An exhibit's values as the paper's are named, and the columns that both share."""
    shown, table = study.study.exhibits[name], content.tables.get(name)
    if table is None:
        return None, []
    if shown.kind == "accuracy":
        pass_at_k = content.metrics.get("pass_at_k")
        if pass_at_k is None:
            return None, []
        rows = pass_at_k[
            (pass_at_k["model"] == shown.model)
            & pass_at_k["algorithm"].isin(study.rows_of(name))
            & pass_at_k["benchmark"].isin(study.benchmarks_of(name))
            & (pass_at_k["train_seed"] == POOLED)
        ]
        on = ["benchmark", "algorithm", "quantity"]
        named = rows.assign(quantity=[f"pass@{k}" for k in rows["k"]])[[*on, "value"]]
        reading = content.tables.get(f"{name}_reading")
        if reading is None:
            return named, on
        noise = reading.rename(columns={"std": "measured_std", "n_eval_seeds": "measured_seeds"})
        noise = noise.assign(quantity=[f"pass@{k}" for k in noise["k"]])
        return named.merge(noise[[*on, "measured_std", "measured_seeds"]], on=on, how="left"), on
    if isinstance(shown, AblationTable):
        named = table.assign(benchmark=shown.benchmark, quantity=[f"pass@{k}" for k in table["k"]])
        return named, ["benchmark", "algorithm", "quantity"]
    if isinstance(shown, PatternTable):
        named = table.rename(columns={"pattern": "quantity", "pooled": "value"})
        return named.assign(benchmark=shown.benchmark), ["benchmark", "algorithm", "quantity"]
    if shown.kind == "gradient_norms":
        return table.rename(columns={"stage": "quantity"}), ["algorithm", "quantity"]
    return None, []
