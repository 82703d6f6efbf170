"""What the paper's own tables show, tested from its means and deviations alone; no model is run.

The deviations are over evaluation seeds of one training run, so a test covers the noise of
evaluation: not that of training, nor of the choice of problems.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from sage.exhibits.kind import Display, Kind
from sage.exhibits.paper_values import COLUMNS, paper_values, read_mapping
from sage.fields import Name, Positive
from sage.rendering.numbers import p_text, percent, points
from sage.rendering.table import (
    Column,
    Record,
    TableDocument,
    cell_of,
    points_cell,
    table_of,
    titled,
    titled_by,
)
from sage.study import ResolvedStudy
from sage.study.exhibit import Rows

MEAN = "mean"
"""In place of a benchmark: the mean over all of them, each with the same weight."""

CONTRASTS = ["quantity", "algorithm", "other", "benchmark", "benchmarks", "value", "low", "high"]
CONTRASTS += ["p", "error", "df"]
"""`value` is algorithm minus other, a difference of shares with its 95 % interval and p, its
standard error and the degrees of freedom of that."""

POOLED = "pooled"
"""In place of a table: the mean over comparisons of several."""

COVERS = (
    "Deviations are over evaluation seeds of one training run: they cover the noise of evaluation, "
    "not that of training or of problems."
)


class PaperTests(Kind):
    """The paper's tables, tested from its own numbers.

    Differences of one method from others by Welch's t, adjusted after Holm; guided methods beside
    the same without a guide, in every table and pooled; how much the best cell of an ablation gains
    by chance; and how many solutions the shares of reasoning patterns stand for. Deviations are
    over evaluation seeds alone.
    """

    algorithm: Name
    """the method that is tested, and varied in the ablation"""
    algorithms: Rows
    """what it is compared with"""
    pairs: dict[Name, Name]
    """guided methods, each with the same algorithm without the guide"""
    problems: Positive
    """problems behind the shares of patterns [problems]"""
    samples: Positive
    """of each problem, behind the shares of patterns [samples]"""

    needs: ClassVar[tuple[str, ...]] = ()
    of_policies: ClassVar[bool] = False

    def named(self) -> list[str]:
        named = [self.algorithm, *self.algorithms, *self.pairs, *self.pairs.values()]
        return [*dict.fromkeys(named)]

    def methods_of(self, study: ResolvedStudy) -> list[str]:
        return self.named()

    def evaluated(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """Nothing: it is made from the paper's tables alone."""
        return []

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        return [("Source", "the paper’s tables (reports/paper); nothing was run for it")]

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        others = {"_pairs": self.guided, "_best": self.best, "_patterns": self.patterns}
        return {"": self.differences, **others}

    def paper(self, display: Display, kind: str) -> pd.DataFrame:
        """The paper's values of a kind for its model, accuracy on the model's benchmarks only.

        Raises ValueError if the paper has none.
        """
        values = paper_values(display.paper, display.study)
        values = values[(values["model"] == self.model) & (values["kind"] == kind)]
        if kind == "accuracy":
            own = display.study.model(self.model).benchmarks
            values = values[values["benchmark"].isin(own) & values["algorithm"].isin(display.rows)]
        if values.empty:
            raise ValueError(f"{display.name}: reports/paper has no {kind} of {self.model}")
        return values

    def differences(self, display: Display) -> TableDocument:
        """Its method minus the others, on each benchmark and on their mean."""
        from sage.evaluation.intervals import holm

        pairs = [(self.algorithm, other) for other in self.algorithms]
        frame = contrasts(self.paper(display, "accuracy"), pairs)
        of_means = frame["benchmark"] == MEAN
        for family in (of_means, ~of_means):
            frame.loc[family, "p_holm"] = holm(frame.loc[family, "p"].to_numpy())
        columns: list[Column] = []
        for quantity in frame["quantity"].unique():
            columns += [
                (quantity, "Difference", cell_of(points_cell, quantity)),
                (quantity, "p", cell_of(p_text, quantity, ends=["p"])),
                (quantity, "Holm", cell_of(p_text, quantity, ends=["p_holm"])),
            ]
        titles = {MEAN: "Mean over benchmarks", **display.titles}
        groups = (
            (titles[str(name)], titled_by(rows, "quantity", "other"))
            for name, rows in frame.groupby("benchmark", sort=False)
        )
        caption = (
            f"{display.heading}: {display.title(self.algorithm)} minus each method, in points with "
            f"95 % intervals, by Welch’s t. Holm: p adjusted over the {of_means.sum()} differences "
            f"of means, and over the {(~of_means).sum()} of single benchmarks. {COVERS}"
        )
        return TableDocument(frame, table_of("Minus", columns, groups, display.study), caption)

    def guided(self, display: Display) -> TableDocument:
        """Each guided method minus the same without the guide, in each table, and their pools."""
        algorithms, own = display.study.algorithms, []
        for table in itertools.chain(*read_mapping(display.paper).values()):
            if table.kind != "accuracy":
                continue
            cells = pd.read_csv(display.paper / table.file).assign(seeds=table.seeds)
            pairs = [pair for pair in self.pairs.items() if {*pair} <= {*cells["algorithm"]}]
            own.append(contrasts(cells, pairs).assign(table=table.file.removesuffix(".csv")))
        each = pd.concat(own).query("benchmark == @MEAN").sort_values("table", kind="stable")
        kinds = [
            [algorithms[name].kl for name in each[side].tolist()] for side in ("algorithm", "other")
        ]
        each["kl"] = [
            "same" if one == other else "changed" for one, other in zip(*kinds, strict=True)
        ]
        each["at"] = np.where(each["quantity"] == "pass@1", "pass@1", "pass@k")
        pools = []
        for at, some in each.groupby("at", sort=False):
            for kl, chosen in (("any", some), ("same", some[some["kl"] == "same"])):
                for weights in ("precision", "equal"):
                    tested = pooled(chosen, precision=weights == "precision")
                    key = {"table": POOLED, "at": at, "kl": kl, "weights": weights}
                    pools.append({**key, "comparisons": len(chosen), **tested})
        frame = pd.concat([each, pd.DataFrame(pools)], ignore_index=True)
        names = ["table", "at", "quantity", "algorithm", "other", "kl", "weights", "comparisons"]
        frame = frame[[*names, "value", "low", "high", "p", "p_normal", "error", "df"]]
        columns: list[Column] = [
            ("", "Difference", lambda row: points_cell(row["value"], row["low"], row["high"])),
            ("", "p", lambda row: p_text(row["p"])),
            ("", "p, normal", lambda row: p_text(row["p_normal"])),
            ("", "KL term", lambda row: str(row["kl"])),
        ]
        frame["title"] = [self._title_of(display, row) for row in frame.to_dict("records")]
        groups = ((str(at), titled(rows, "title")) for at, rows in frame.groupby("at", sort=False))
        caption = (
            f"{display.heading}: guided methods minus the same algorithm without the guide, mean "
            "over the benchmarks of a table, in points with 95 % intervals by Welch’s t. Where the "
            "KL term is changed, the method without the guide has none, so the guide alone is not "
            "tested. Pools are weighted by precision or equally. p, normal: with the deviations "
            f"taken as exact, which five seeds do not allow. {COVERS}"
        )
        return TableDocument(
            frame.drop(columns="title"), table_of("Comparison", columns, groups), caption
        )

    def _title_of(self, display: Display, row: Record) -> str:
        if row["table"] == POOLED:
            all_or = "All" if row["kl"] == "any" else "KL term unchanged"
            return f"{all_or}, {row['comparisons']:.0f} pooled by {row['weights']} weights"
        names = " − ".join(display.title(row[side]) for side in ("algorithm", "other"))
        return f"{names} ({row['table'].replace('table', 'Table ')}, {row['quantity']})"

    def best(self, display: Display) -> TableDocument:
        """The best cell of the ablation beside what the best of as many gains under no effect."""
        accuracy = self.paper(display, "accuracy")
        accuracy = accuracy[accuracy["algorithm"] == self.algorithm]
        tested = accuracy.set_index(["benchmark", "quantity"]).to_dict("index")
        guide = display.study.algorithms[self.algorithm].guide
        rows = []
        for table in read_mapping(display.paper)[self.model]:
            if table.kind != "ablation" or not table.seeds or guide is None:
                continue
            cells = pd.read_csv(display.paper / table.file)
            varied = cells[[*cells.columns.difference(COLUMNS)]]
            cells["kept"] = (varied == pd.Series(guide.settings)[varied.columns]).all(axis=1)
            for key, own in cells.groupby(["benchmark", "quantity"], sort=False):
                benchmark, quantity = key
                noise, kept = tested[key], own.loc[own["kept"], "value"].iloc[0]
                error = noise["std"] / math.sqrt(table.seeds)
                row = best_of(own["value"].to_numpy(float), error, int(noise["seeds"]) - 1)
                rows.append({"benchmark": benchmark, "quantity": quantity, "kept": kept, **row})
        if not rows:
            raise ValueError(f"{display.name}: reports/paper has no ablation of {self.model}")
        frame = pd.DataFrame(rows)
        columns: list[Column] = [
            ("", "Mean", lambda row: percent(row["mean"])),
            ("", "Highest", lambda row: percent(row["highest"])),
            ("", "Gain", lambda row: points(row["gain"])),
            ("", "By chance", lambda row: points(row["by_chance"])),
            ("", "p", lambda row: p_text(row["p"])),
            ("", "The paper’s choice", lambda row: percent(row["kept"])),
        ]
        caption = (
            f"{display.heading}: the {frame['cells'].iloc[0]} settings of the paper’s ablation on "
            f"{display.titles[str(frame['benchmark'].iloc[0])]}, among which it chose on the test "
            "set. Gain: the highest minus the mean. By chance: the gain expected if no setting had "
            "an effect, from the deviation that the paper states for its choice in the main table. "
            f"p: whether the settings differ more than that (F-test). {COVERS}"
        )
        shown = table_of("Metric", columns, [("", titled(frame, "quantity"))])
        return TableDocument(frame, shown, caption)

    def patterns(self, display: Display) -> TableDocument:
        """How many solutions the shares of patterns stand for."""
        accuracy = self.paper(display, "accuracy")
        values = accuracy.set_index(["benchmark", "algorithm", "quantity"])["value"].to_dict()
        ks = sorted(int(name.removeprefix("pass@")) for name in accuracy["quantity"].unique())
        shares, drawn, rows = self.paper(display, "patterns"), self.problems * self.samples, []
        for (benchmark, name), own in shares.groupby(["benchmark", "algorithm"], sort=False):
            at_one, at_most = (values[benchmark, name, f"pass@{k}"] for k in (ks[0], ks[-1]))
            solved, expected = round(at_most * self.problems), at_one * drawn
            whole = smallest_total(own["value"].to_numpy(dtype=float))
            for pattern, value in zip(own["quantity"], own["value"], strict=True):
                most = math.floor((value + HALF_DIGIT) * solved * self.samples)
                worth = value * solved
                rows.append((name, pattern, value, solved, worth, most, whole, expected))
        names = ["algorithm", "pattern", "value", "solved", "worth", "most", "whole", "expected"]
        frame = pd.DataFrame(rows, columns=names)
        columns: list[Column] = [
            ("", "Share", lambda row: percent(row["value"])),
            ("", "Problems’ worth", lambda row: f"{row['worth']:.1f} of {row['solved']}"),
            ("", "Solutions at most", lambda row: f"{row['most']}"),
            ("", "Needed if of all", lambda row: f"{row['whole']}"),
            ("", "Right by pass@1", lambda row: f"{row['expected']:.0f}"),
        ]
        groups = (
            (str(pattern).replace("_", " ").capitalize(), titled(own))
            for pattern, own in frame.groupby("pattern", sort=False)
        )
        caption = (
            f"{display.heading}: shares of right solutions with a pattern, as counts. A share is a "
            "mean over solved problems, at most as many as pass@k at the largest k says (at other "
            "limits of length). Problems’ worth: share times these problems. Solutions at most: "
            f"if each had {self.samples} right solutions. Needed if of all: the fewest right "
            "solutions of which the three shares could be rounded fractions; right by pass@1: how "
            f"many of the {drawn} samples it expects."
        )
        return TableDocument(frame, table_of("Method", columns, groups, display.study), caption)


HALF_DIGIT = 0.0005
"""Half of the last digit of the paper's shares."""


def contrasts(cells: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """`pairs` of methods, first minus second, on the mean over benchmarks and on each: CONTRASTS.

    `cells` has benchmark, algorithm, quantity, value, std and seeds (evaluation seeds that std is
    over). Methods are taken as independent (Welch's t-test). Raises KeyError for a method that a
    quantity lacks.
    """
    rows = []
    for quantity, own in cells.groupby("quantity"):
        wide = own.pivot(index="benchmark", columns="algorithm", values=["value", "std", "seeds"])
        benchmarks = own["benchmark"].unique()
        for name, some in [(MEAN, [*benchmarks]), *((each, [each]) for each in benchmarks)]:
            for pair in pairs:
                value, std, seeds = (
                    wide[part].loc[some, [*pair]].to_numpy(dtype=float)
                    for part in ("value", "std", "seeds")
                )
                of_means = std**2 / seeds / len(some) ** 2
                tested = welch(float((value[:, 0] - value[:, 1]).mean()), of_means, seeds - 1)
                rows.append((quantity, *pair, name, len(some), *tested))
    return pd.DataFrame(rows, columns=CONTRASTS)


def pooled(rows: pd.DataFrame, precision: bool) -> dict[str, float]:
    """The mean of independent differences (CONTRASTS), as `welch` has it, and p by the normal law.

    Weighted by 1/error², for which all errors must be above 0, or equally.
    """
    from sage.evaluation.intervals import p_of_distance

    value, error = rows["value"].to_numpy(float), rows["error"].to_numpy(float)
    weights = error**-2.0 if precision else np.ones_like(error)
    weights /= weights.sum()
    tested = welch(float(weights @ value), (weights * error) ** 2, rows["df"].to_numpy(float))
    named = dict(zip(["value", "low", "high", "p", "error", "df"], tested, strict=True))
    return {**named, "p_normal": p_of_distance(named["value"], named["error"], math.inf)}


def welch(value: float, variances: np.ndarray, df: np.ndarray) -> tuple[float, ...]:
    """A value with its 95 % interval, two-sided p against 0, standard error and its df.

    `variances` of its independent parts, each with `df` degrees of freedom (Welch, Satterthwaite).
    """
    from sage.evaluation.intervals import p_of_distance, student

    error = math.sqrt(variances.sum())
    own_df = float(variances.sum() ** 2 / (variances**2 / df).sum()) if error else math.inf
    half = student(own_df, 0.975) * error
    p = p_of_distance(abs(value), error, own_df)
    return value, value - half, value + half, p, error, own_df


def best_of(values: np.ndarray, error: float, df: int) -> dict[str, float]:
    """What the highest of `values` `[N]` gains over their mean, and what it would by chance.

    `error` is the standard error of each, from a deviation with `df` degrees of freedom. `p` is
    that of their spread under no effect (F-test).
    """
    from scipy.special import fdtrc

    spread = float(values.var(ddof=1)) / error**2
    return {
        "cells": len(values),
        "mean": float(values.mean()),
        "highest": float(values.max()),
        "gain": float(values.max() - values.mean()),
        "by_chance": highest_of_normals(len(values)) * error,
        "p": float(fdtrc(len(values) - 1, df, spread)),
    }


def highest_of_normals(n: int) -> float:
    """The expected highest of `n` independent standard normal numbers."""
    from scipy.special import ndtr

    at = np.linspace(0.0, 10.0, 2001)  # E max, by parts on each side of 0
    return float(np.trapezoid(1.0 - ndtr(at) ** n - ndtr(-at) ** n, at))


def smallest_total(shares: np.ndarray) -> int:
    """The smallest whole number of which each share, to three digits, is a rounded fraction."""
    total = 1
    while (np.abs(np.round(shares * total) / total - shares) > HALF_DIGIT + 1e-12).any():
        total += 1
    return total
