"""Whether alignment measured on bases before training predicts what guides did: reports/alignment.

`cells.csv` has beta a_16 of a guide on a base beside what training with the guide did to pass@16,
`summary.csv` how well the one predicts the other, beside what else could. Written before the first
measurement (reports/alignment/registered.yaml).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import ANSWERS

K, DRAWS = 16, 10_000
RESAMPLES = 2_000
KEYS = ["run", "model", "algorithm"]
RIVALS = {"dose": "dose", "a_1": "predicted_1", "gap": "gap", "alike": "predicted_alike"}
"""What else could predict: the size of the dose alone, alignment with pass@1, right minus wrong,
and alignment at equal length."""


def tables(folder: Path) -> dict[Path, pd.DataFrame]:
    """Both tables of a folder, by their files."""
    made, remade = cells(folder), pd.read_csv(folder / "bases.csv")
    apart = remade[(remade["low"] > 0) | (remade["high"] < 0)]
    other = {f"{run}/{model}" for run, model in zip(apart["run"], apart["model"], strict=True)}
    judged = summary(made, pd.read_parquet(folder / "placebo.parquet"), other)
    return {folder / "cells.csv": made, folder / "summary.csv": judged}


def cells(folder: Path) -> pd.DataFrame:
    """A row for each guide on each base that was trained there, in shares.

    `predicted` is beta a_16 with its interval over problems, `effect` pass@16 with the guide minus
    without it, by answers, with its interval over `runs` and problems; `effect_1` that in pass@1.
    `dose` is that with centred advantages.
    """
    measured = pd.read_csv(folder / "measured.csv")
    rows = []
    for cell in measured.to_dict("records"):
        own = folder if cell["run"] == "alignment" else folder.parent / cell["run"]
        counts = pd.read_parquet(own / "counts.parquet")
        pair = [cell["other"], cell["algorithm"]]
        benchmark = "routes" if cell["model"] == "routes" else "sheets"
        chosen = counts["model"].eq(cell["model"]) & counts["benchmark"].eq(benchmark)
        counts = counts[chosen & counts["algorithm"].isin(pair)]
        if counts["algorithm"].nunique() < 2:  # not trained
            continue
        counts = counts.sort_values("algorithm", key=lambda c: c.map(pair.index), kind="stable")
        table = comparisons_table(counts.reset_index(drop=True), DRAWS)
        table = table[table["metric"] == ANSWERS].set_index("k")
        if list(table.loc[[K], ["algorithm", "other"]].iloc[0]) != pair[::-1]:
            raise ValueError(f"{cell['run']}: {pair} are compared the other way round")
        beta, at = cell["kl_coefficient"], table.loc[K]
        found = {key: cell[key] for key in KEYS} | {
            "base": f"{cell['run']}/{cell['model']}".replace("alignment/sums", "sizes/sizes/sums"),
            "dose": cell["dose_centred"],
            "noiseless": cell["spread_without_noise"] / cell["spread"] * cell["dose_centred"],
            "a_1": cell["a_1"],
            "a_16": cell["a_k"],
            "predicted": beta * cell["a_k"],
            "predicted_low": beta * cell["a_k_low"],
            "predicted_high": beta * cell["a_k_high"],
            "predicted_1": beta * cell["a_1"],
            "predicted_alike": beta * cell["a_k_equal_length"],
            "gap": cell["gap"],
            "length": cell["length_correlation"],
            "runs": at["n_seeds"],
            "effect": at["value"],
            "low": at["low"],
            "high": at["high"],
            "effect_1": table.loc[1, "value"],
        }
        rows.append(found)
    return pd.DataFrame(rows)


def summary(
    table: pd.DataFrame, placebos: pd.DataFrame, other: Collection[str] = ()
) -> pd.DataFrame:
    """Statistics of all cells and of parts, `agreeing` those without the bases `other`, which are
    not those of the kept run again: `value` with its 95 % interval, from bases drawn with
    replacement and cells drawn within each; `placebo` is the mean of the same statistic and `p` the
    share of placebos that do as well."""
    wide = placebos.pivot(index="draw", columns=KEYS, values="a_k")
    rows = []
    parts = {"all": table["run"].notna(), "trained": table["run"] == "alignment"}
    parts |= {"kept": ~parts["trained"], "routes": table["model"] == "routes"}
    parts |= {"agreeing": ~table["base"].isin(other)}
    for part, chosen in parts.items():
        own = table[chosen].reset_index(drop=True)
        if len(own) < 3:
            continue
        effect, x = own["effect"].to_numpy(), own["predicted"].to_numpy()
        decided = (own["predicted_low"] > 0) | (own["predicted_high"] < 0)
        null = wide[[tuple(key) for key in own[KEYS].to_numpy()]].to_numpy()
        nulls = {"spearman": [_rank(each, effect) for each in null]}
        nulls["agreement"] = [_agree(each, effect) for each in null]
        values = {"spearman": _rank(x, effect), "agreement": _agree(x, effect)}
        for name, value in values.items():
            low, high = _interval(own, "predicted", _rank if name == "spearman" else _agree)
            as_good = np.sum(np.array(nulls[name]) >= value - 1e-12)
            p = (as_good + 1) / (len(null) + 1)
            rows.append((part, name, len(own), value, low, high, np.nanmean(nulls[name]), p))
        some, only = own[decided], (part, "agreement_decided", int(decided.sum()))
        rows.append(
            (
                *only,
                _agree(some["predicted"], some["effect"]),
                *_interval(some, "predicted", _agree),
            )
        )
        rows.append((part, "always_up", len(own), float((effect > 0).mean())))
        for name, column in RIVALS.items():
            ends = _interval(own, column, _rank)
            rows.append((part, f"spearman_{name}", len(own), _rank(own[column], effect), *ends))
        plain = own[~own["algorithm"].str.startswith("mirror")]
        rank = _rank(plain["dose"], plain["effect"])
        rows.append((part, "spearman_dose_unmirrored", len(plain), rank))
        size = _rank(own["predicted"].abs(), np.abs(effect))
        rows.append((part, "spearman_sizes", len(own), size))
        of_base = own.groupby("base")
        apart = [own[c] - of_base[c].transform("mean") for c in ("predicted", "effect")]
        several = of_base["effect"].transform("size") > 1
        rows.append(
            (part, "spearman_within", int(several.sum()), _rank(*(a[several] for a in apart)))
        )
        left = [_rank(rest["predicted"], rest["effect"]) for _, rest in _without(own)]
        rows.append((part, "spearman_least", len(own), np.nanmin(left) if left else np.nan))
    columns = ["part", "statistic", "n", "value", "low", "high", "placebo", "p"]
    return pd.DataFrame([(*row, *[np.nan] * (8 - len(row))) for row in rows], columns=columns)


def _without(own: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    names = own["base"].unique()
    return [(name, own[own["base"] != name]) for name in names] if len(names) > 1 else []


def _rank(x: Any, y: Any) -> float:
    """Spearman's correlation; NaN where one is constant or has fewer than three values."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def _agree(x: Any, y: Any) -> float:
    """The share of cells in which both have one sign; NaN without a cell."""
    same = np.sign(np.asarray(x, dtype=float)) == np.sign(np.asarray(y, dtype=float))
    return float(same.mean()) if len(same) else np.nan


def _interval(
    own: pd.DataFrame, column: str, statistic: Callable[..., float]
) -> tuple[float, float]:
    groups = [part[[column, "effect"]].to_numpy() for _, part in own.groupby("base")]
    random, drawn = np.random.default_rng(0), []
    for _ in range(RESAMPLES if groups else 0):
        picked = [groups[i] for i in random.integers(len(groups), size=len(groups))]
        rows = np.concatenate([g[random.integers(len(g), size=len(g))] for g in picked])
        drawn.append(statistic(rows[:, 0], rows[:, 1]))
    if not drawn or np.isnan(drawn).all():
        return np.nan, np.nan
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)
