"""What the paper's own tables separate: tests of its stated means and deviations, nothing else.

The tables are those of `reports/paper` (`sage.exhibits.paper_values`), so that no run is needed.
The deviations stated there are over evaluation seeds of one trained policy: they hold neither the
noise of training again nor that of other problems, with which p would be larger. scipy is imported
where it computes; a study is read without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.exhibits.kind import Display, Kind
from sage.exhibits.paper_values import read_mapping
from sage.rendering.numbers import number_text, p_text, percent, points
from sage.rendering.table import (
    Cell,
    Column,
    Record,
    TableDocument,
    points_cell,
    table_of,
    titled,
)
from sage.study import BASE, ResolvedStudy

PAIRS = [("grpo_branch", other) for other in ("grpo", BASE, "grpo_forward_kl", "grpo_no_kl")]
PAIRS += [
    (f"{loss}_branch", other) for loss in ("bnpo", "dapo") for other in (f"{loss}_no_kl", BASE)
]
"""The branch guide and what the paper holds it against."""

CONTRASTS = ["algorithm", "other", "benchmark", "benchmarks", "quantity", "value", "low", "high"]
CONTRASTS += ["p", "p_holm"]
"""`value` is the difference of shares; `benchmark` is empty for the mean over `benchmarks`."""

CHOSEN = {"threshold": 1.2, "ratio": 0.3}
"""The cell of Table 6 that the paper trains with everywhere else (Table 8)."""

PROBLEMS, SAMPLES = {"aime": 60}, 16
"""Of Table 2: problems of its benchmark, and solutions sampled of each (appendix G)."""

NOISE = (
    "The deviations are over evaluation seeds of one trained policy each: with the noise of "
    "training again, or of other problems, p would be larger."
)


class PaperTests(Kind):
    """The paper's own tables, tested with the deviations that they state.

    The branch guide minus what the paper holds it against: differences with their 95 % intervals
    (Welch’s t over evaluation seeds), p, and p adjusted after Holm over the means of a table, or
    over its single benchmarks. The noise of training again and of other problems is not in them.
    In the table `…_grid`, the best cell of Table 6 beside what the best of equal cells gains by
    evaluation noise. In `…_patterns`, the frequencies of Table 2 as numbers of solutions.
    """

    kind: Literal["paper_tests"]

    of_policies: ClassVar[bool] = False
    of_paper: ClassVar[bool] = True

    def evaluated(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """None: it needs no run."""
        return []

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        return [("Source", "the paper’s tables, in reports/paper; no run of this study")]

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        return {
            "": partial(self._contrasts, means=True),
            "_benchmarks": partial(self._contrasts, means=False),
            "_grid": self._grid,
            "_patterns": self._patterns,
        }

    def _contrasts(self, display: Display, means: bool) -> TableDocument:
        """Contrasts of the study's models that the paper has: means, or single benchmarks."""
        frames, groups = [], []
        known = [pair for pair in PAIRS if {*pair} <= {BASE, *display.study.algorithms}]
        for model, settings in display.study.study.models.items():
            for name, cells, seeds in _accuracies(display.paper, model):
                frame = contrasts(cells, seeds, known).assign(model=model, table=name)
                frames.append(frame[(frame["benchmark"] == "") == means])
                places = [*dict.fromkeys(cells["benchmark"])]
                mean = f"mean of {len(places)} benchmarks"
                titles = {"": display.titles[places[0]] if len(places) == 1 else mean}
                start = f"{name.replace('table', 'Table ')}, {settings.title}"
                for place, here in frames[-1].groupby("benchmark", sort=False):
                    title = (titles | display.titles)[str(place)]
                    groups.append((f"{start}: {title}{_other_k(here)}", _pairs(display, here)))
        columns: list[Column] = [
            (head, column, partial(cell, place))
            for place, head in enumerate(("pass@1", "pass@256"))
            for column, cell in (("points", _difference), ("p", _p("p")), ("Holm", _p("p_holm")))
        ]
        family = "means" if means else "single benchmarks"
        caption = (
            f"{display.exhibit.title}. The branch guide minus what the paper holds it against, in "
            "points, with 95 % intervals and p by Welch’s t over evaluation seeds. Holm: p "
            f"adjusted over all {family} of a table, of both k. {NOISE}"
        )
        summary = "" if means else "The paper’s contrasts by benchmark"
        table = table_of("Contrast", columns, groups)
        return TableDocument(pd.concat(frames, ignore_index=True), table, caption, summary)

    def _grid(self, display: Display) -> TableDocument:
        """Table 6: its best cell, and what the best of equal cells would gain."""
        grid, seeds = _only(display.paper, self.model, "ablation")
        frame = best_of_grid(grid, _accuracies(display.paper, self.model)[0][1], seeds)
        columns: list[Column] = [
            ("", "mean", lambda row: percent(row["mean"])),
            ("", "best", lambda row: percent(row["best"])),
            ("Above the mean, points", "best", lambda row: points(row["gain"])),
            ("Above the mean, points", "best of equal cells", lambda row: points(row["expected"])),
            ("Above the mean, points", "chosen", lambda row: points(row["chosen"])),
            ("", "p, all equal", lambda row: p_text(row["p"])),
        ]
        rows = [
            (f"{display.titles[row['benchmark']]}, {row['quantity']}", row)
            for row in frame.to_dict("records")
        ]
        cells = int(frame["cells"].iloc[0])
        caption = (
            f"{display.exhibit.title}. Table 6: {cells} settings of the branch guide, of which one "
            "was chosen on a test set that is reported too. In percent. A cell is a mean of "
            f"{seeds} seeds, taken as evaluation seeds with the deviation that Table 1 states on "
            "the same problems (root mean square over its methods); if they are seeds of training, "
            "noise is larger. Best of equal cells: what the best is expected to have above the "
            "mean if no setting is better than another. p: F test that all are equal."
        )
        return TableDocument(frame, table_of("Quantity", columns, [("", rows)]), caption)

    def _patterns(self, display: Display) -> TableDocument:
        """Table 2 as counts."""
        patterns, _ = _only(display.paper, self.model, "patterns")
        stated = _accuracies(display.paper, self.model)[0][1]
        frame = pattern_counts(patterns, stated, PROBLEMS, SAMPLES)
        columns: list[Column] = [
            (head, column, partial(_number, key, form))
            for head, column, key, form in (
                ("", "frequency", "frequency", ".3f"),
                ("Share of right solutions", "right", "right", ".0f"),
                ("Share of right solutions", "with it", "having", ".1f"),
                ("Share of right solutions", "needed", "needed", ".0f"),
                ("Share of right solutions", "p", "p", ".2f"),
                ("Mean over problems", "solved", "solved", ".0f"),
                ("Mean over problems", "worth", "worth", ".1f"),
            )
        ]
        shown = frame[frame["algorithm"].isin([BASE, *display.study.algorithms])]
        groups = [
            (str(name).replace("_", " ").capitalize(), titled(rows))
            for name, rows in shown.groupby("pattern", sort=False)
        ]
        caption = (
            f"{display.exhibit.title}. Table 2 as counts; the paper gives frequencies alone. As "
            f"shares of right solutions: how many of {SAMPLES} a problem are right by Table 1’s "
            "pass@1, how many of them have the pattern, p of the branch guide against this method "
            "(Fisher’s exact test of rounded counts, which takes solutions of one problem as "
            "independent), and how many right solutions are needed, at least, for all frequencies "
            "of a method to be whole counts. As means over solved problems: how many 256 samples "
            f"solve (Table 1; {SAMPLES} are expected to solve fewer), and how many of them the "
            "frequency is worth. Table 2’s solutions have up to 4,096 tokens, with which more "
            "could be right than in Table 1."
        )
        return TableDocument(frame, table_of("Method", columns, groups, display.study), caption)


def contrasts(
    cells: pd.DataFrame, seeds: int, pairs: Sequence[tuple[str, str]] = PAIRS
) -> pd.DataFrame:
    """CONTRASTS of one table: each pair that it has, on each benchmark and in the mean of all.

    `cells` has benchmark, algorithm, quantity, value and std over `seeds` evaluation seeds (shares;
    n - 1 in the deviation). Welch's t with Satterthwaite's degrees of freedom; benchmarks are
    independent, and each counts the same. p is adjusted after Holm in two families: over all means,
    and over all single benchmarks. Where no deviation is above 0 interval and p are NaN. A table of
    one benchmark has its means alone.
    """
    from sage.evaluation.intervals import holm

    rows: list[dict[str, Any]] = []
    for quantity, own in cells.groupby("quantity", sort=False):
        wide = own.pivot(index="benchmark", columns="algorithm", values=["value", "std"])
        for one, other in pairs:
            if not {one, other} <= {*wide["value"]}:
                continue
            apart = (wide["value"][one] - wide["value"][other]).to_numpy()
            noise = wide["std"][[one, other]].to_numpy() ** 2 / seeds
            count = len(apart)
            places = {str(name): [i] for i, name in enumerate(wide.index)} if count > 1 else {}
            for place, chosen in {"": [*range(count)], **places}.items():
                ends = _welch(apart[chosen].mean(), noise[chosen] / len(chosen) ** 2, seeds)
                names = {"algorithm": one, "other": other, "benchmark": place}
                rows.append({**names, "benchmarks": len(chosen), "quantity": quantity, **ends})
    frame = pd.DataFrame(rows, columns=CONTRASTS)
    families = frame.groupby(frame["benchmark"] == "")["p"]
    return frame.assign(p_holm=families.transform(lambda p: holm(p.to_numpy(float))))


def _welch(value: float, noise: np.ndarray, seeds: int) -> dict[str, float]:
    """A difference with its interval and p; `noise` are squared errors of its independent parts."""
    from sage.evaluation.intervals import p_of_distance, student

    error = math.sqrt(noise.sum())
    if error == 0:
        return {"value": value, "low": math.nan, "high": math.nan, "p": math.nan}
    df = float(noise.sum() ** 2 / (noise**2 / (seeds - 1)).sum())
    half = student(df, 0.975) * error
    p = p_of_distance(value, error, df)
    return {"value": value, "low": value - half, "high": value + half, "p": p}


def expected_best(count: int) -> float:
    """The expected largest of `count` independent standard normal numbers."""
    from scipy.special import ndtr

    x = np.linspace(-10.0, 10.0, 20_001)
    density = count * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * ndtr(x) ** (count - 1)
    return float((x * density).sum() * (x[1] - x[0]))


def best_of_grid(grid: pd.DataFrame, stated: pd.DataFrame, seeds: int) -> pd.DataFrame:
    """How far the best cell of a grid is above the mean, and how far evaluation noise puts it.

    `grid` has benchmark, quantity, value (means of `seeds` seeds) and the settings of CHOSEN.
    `stated` has benchmark, quantity, std and its own number of seeds: the root mean square over
    methods is the deviation of one seed. Returns a row for each quantity: number of `cells`, their
    `mean`, the `best`, its `gain` over the mean, the gain `expected` of it if all cells are equal,
    that of the `chosen` cell, and `p` of an F test that all are equal.
    """
    from scipy.special import fdtrc

    rows = []
    for (benchmark, quantity), cells in grid.groupby(["benchmark", "quantity"], sort=False):
        here = (stated["benchmark"] == benchmark) & (stated["quantity"] == quantity)
        squares, values = stated.loc[here, "std"] ** 2, cells["value"]
        error = math.sqrt(squares.mean() / seeds)
        own = np.all([cells[name] == value for name, value in CHOSEN.items()], axis=0)
        mean, count = values.mean(), len(values)
        degrees = count - 1, int(stated.loc[here, "seeds"].sum()) - len(squares)
        rows.append(
            {
                "benchmark": benchmark,
                "quantity": quantity,
                "cells": count,
                "mean": mean,
                "best": values.max(),
                "gain": values.max() - mean,
                "expected": expected_best(count) * error,
                "chosen": float(values[own].iloc[0]) - mean,
                "p": float(fdtrc(*degrees, values.var(ddof=1) / error**2)),
            }
        )
    return pd.DataFrame(rows)


def pattern_counts(
    patterns: pd.DataFrame, stated: pd.DataFrame, problems: Mapping[str, int], samples: int
) -> pd.DataFrame:
    """Frequencies of patterns among right solutions as counts, a row for each pattern and method.

    `patterns` has benchmark, algorithm, quantity (the pattern) and value, `stated` pass@1 and
    pass@256 of the same methods. `right` solutions among `samples` of each problem follow from
    pass@1, `having` the pattern are frequency x right, and `needed` is `fewest_for` the method's
    frequencies. `solved` problems follow from pass@256, of which a frequency is `worth` frequency x
    solved. `p` is Fisher's for the branch guide against the method, NaN for itself.
    """
    from scipy.stats import fisher_exact

    shares = stated.pivot(index=["benchmark", "algorithm"], columns="quantity", values="value")
    of_each = shares.loc[[*zip(patterns["benchmark"], patterns["algorithm"], strict=True)]]
    count, frequency = patterns["benchmark"].map(problems), patterns["value"]
    right = of_each["pass@1"].to_numpy() * count * samples
    solved = of_each["pass@256"].to_numpy() * count
    own = patterns.groupby("algorithm")["value"]
    needed = patterns["algorithm"].map({name: fewest_for([*values]) for name, values in own})
    frame = patterns[["quantity", "algorithm", "value"]].assign(
        right=right,
        having=frequency * right,
        needed=needed,
        solved=solved,
        worth=frequency * solved,
    )
    frame = frame.rename(columns={"quantity": "pattern", "value": "frequency"})
    having, whole = frame["having"].round().astype(int), frame["right"].round().astype(int)
    parts = pd.DataFrame({"having": having, "rest": whole - having})
    guided = (frame["algorithm"] == PAIRS[0][0]).to_numpy()
    of_guide = parts[guided].set_index(frame.loc[guided, "pattern"])
    p = [
        fisher_exact([of_guide.loc[pattern].tolist(), counts]).pvalue
        for pattern, counts in zip(frame["pattern"], parts.to_numpy().tolist(), strict=True)
    ]
    return frame.assign(p=np.where(guided, np.nan, p))


def fewest_for(frequencies: Sequence[float], most: int = 10_000) -> int:
    """The fewest solutions of which whole counts have all these shares, rounded to three digits.

    Raises ValueError if no number up to `most` does.
    """
    shares = np.asarray(frequencies)
    for count in range(1, most + 1):
        if (np.abs(np.rint(shares * count) / count - shares) <= 0.0005 + 1e-12).all():
            return count
    raise ValueError(f"{list(frequencies)}: no number of solutions up to {most} has these shares")


def _tables(folder: Path, model: str, kind: str) -> list[tuple[str, pd.DataFrame, int]]:
    """The paper's tables of a kind for a model: name, cells and seeds (0 if not stated)."""
    return [
        (Path(table.file).stem, pd.read_csv(folder / table.file), table.seeds or 0)
        for table in read_mapping(folder).get(model, ())
        if table.kind == kind
    ]


def _only(folder: Path, model: str, kind: str) -> tuple[pd.DataFrame, int]:
    """The paper's one table of a kind for a model, and its seeds."""
    tables = _tables(folder, model, kind)
    if len(tables) != 1:
        raise ValueError(
            f"{folder / 'mapping.yaml'}: {len(tables)} tables of kind {kind} for {model}, not one; "
            "name the model that the paper has them for"
        )
    return tables[0][1:]


def _accuracies(folder: Path, model: str) -> list[tuple[str, pd.DataFrame, int]]:
    """The tables with deviations; one without its base takes it over from those before it."""
    made, bases = list[tuple[str, pd.DataFrame, int]](), pd.DataFrame({"benchmark": []})
    for name, cells, seeds in _tables(folder, model, "accuracy"):
        cells = cells.assign(seeds=seeds)
        if BASE in set(cells["algorithm"]):
            bases = pd.concat([bases, cells[cells["algorithm"] == BASE]])
        else:
            cells = pd.concat([bases[bases["benchmark"].isin(cells["benchmark"])], cells])
        made.append((name, cells, seeds))
    return made


def _pairs(display: Display, rows: pd.DataFrame) -> list[tuple[str, Record]]:
    """The records of each pair by place: pass@1, then the larger k."""
    return [
        (
            f"{display.title(str(one))} − {display.title(str(other))}",
            dict(enumerate(sorted(own.to_dict("records"), key=lambda row: _k(row["quantity"])))),
        )
        for (one, other), own in rows.groupby(["algorithm", "other"], sort=False)
    ]


def _k(quantity: str) -> int:
    return int(quantity.partition("@")[2])


def _other_k(rows: pd.DataFrame) -> str:
    """Which k stands in the column of pass@256, if it is another."""
    largest = max(map(_k, rows["quantity"]))
    return "" if largest == 256 else f" (pass@{largest} in place of pass@256)"


def _difference(place: int, row: Record) -> Cell:
    return points_cell(*(row[place][end] for end in ("value", "low", "high")))


def _number(key: str, form: str, row: Record) -> str:
    return number_text(row[key], form)


def _p(key: str) -> Callable[[int, Record], str]:
    return lambda place, row: p_text(row[place][key])
