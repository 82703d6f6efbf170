"""Tables over all kept runs that texts quote: their claims, verdicts and README's own findings.

`claims.csv` has a row for each claim of a kept run: its verdict, and whether it is registered or
exploratory, since its counts were known. `verdicts.csv` counts them: the denominator of every
finding. `findings.csv` adjusts what `README.md` cites after Holm over its own rows. `contrasts.csv`
has, beside each difference of coverage that a claim is about, pass@1 where RL trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from sage.claims.tests import PassAtK, kept_claims
from sage.claims.verdicts import VERDICTS
from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import ANSWERS, LEVEL, WORKING
from sage.evaluation.intervals import holm, p_of_distance, student
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import kept_study
from sage.results import Results
from sage.runtime.files import ROOT
from sage.study import ResolvedStudy
from sage.tools.keep import kept_runs, labels
from workflow import fill_numbers

REPORTS = ROOT / "reports"
README = ROOT / "README.md"

_SHOWN = ["says", "verdict", "unit", "effect", "low", "high", "p", "n", "over", "runs", "bases"]

_CLAIMS = ["run", "claim", "label", "registered", "known", *_SHOWN, "note"]


def tables() -> dict[Path, pd.DataFrame]:
    """Every table, by its file."""
    asked = claims()
    made = {"claims": asked, "verdicts": verdicts(asked), "contrasts": contrasts()}
    return {REPORTS / f"{name}.csv": table for name, table in made.items()} | {
        REPORTS / "findings.csv": findings(README.read_text(encoding="utf-8"))
    }


def claims() -> pd.DataFrame:
    """The primary contrast of each claim of a kept run; one without registration is exploratory.

    `label` is that of `sage.tools.keep.labels`; `known` the day since when counts were known.
    """
    found = []
    for file in sorted(REPORTS.glob("*/*/claims.csv")):
        folder, rows = file.parent, pd.read_csv(file).query("role == 'primary'")
        known = labels(folder) if Results(folder).registered.exists() else {}
        label = rows["claim"].map(known).fillna("exploratory")
        rows = rows.assign(label=label, run="/".join(folder.parts[-2:]))
        rows["registered"] = label == "registered"
        rows["known"] = label.str.extract(r"known since (\S+)")[0]
        found.append(rows.reindex(columns=_CLAIMS))
    return pd.concat(found, ignore_index=True)


def verdicts(asked: pd.DataFrame) -> pd.DataFrame:
    """How many claims have which verdict, registered, exploratory and both (`all`).

    The row `tested` counts all that were run; `by_chance` is how many verdicts of it would be
    expected at p < LEVEL if no method differed, for none is adjusted over claims.
    """
    rows = []
    kinds = {"registered": asked["registered"], "exploratory": ~asked["registered"]}
    for kind, chosen in {**kinds, "all": asked["registered"].notna()}.items():
        of_kind = asked.loc[chosen, "verdict"]
        tested = int((of_kind != "not run").sum())
        rows += [(kind, one, int((of_kind == one).sum()), np.nan) for one in VERDICTS]
        rows.append((kind, "tested", tested, LEVEL * tested))
        noted = asked.loc[chosen & (asked["verdict"] != "not run"), "note"].notna()
        rows.append((kind, "dose too small", int(noted.sum()), np.nan))
    return pd.DataFrame(rows, columns=["label", "verdict", "claims", "by_chance"])


def findings(text: str) -> pd.DataFrame:
    """The differences with intervals that a text's spans cite, each once, adjusted after Holm.

    `p` is the row's own, or that of its interval where its table has none. The row `all` counts
    them: `n` differences, `clear` of them below LEVEL after Holm, `by_chance` expected to be below
    it before if none were there.
    """
    found: dict[tuple[float, float], dict[str, object]] = {}
    for span in fill_numbers.SPAN.finditer(text):
        name, *filters, asked = span["query"].split(",")
        form, _, column = asked.partition(":")
        if name.startswith("reports/findings") or form not in ("points", "effect", "aside"):
            continue
        row = fill_numbers.row_of(name, filters)
        column = column or next(each for each in fill_numbers.SHOWN if each in row)
        low, high = (row.get(f"{column}_{end}", row[end]) for end in ("low", "high"))
        own = row.get("p", np.nan) if column in ("effect", "value") else np.nan
        if (p := own) != own:
            df = min(int(row[size]) for size in ("runs", "n", "n_seeds") if size in row) - 1
            p = p_of_distance(row[column], (high - low) / (2 * student(df, 0.975)), df)
        found.setdefault(
            (round(low, 6), round(high, 6)),
            {"query": span["query"].rpartition(",")[0], "p": p, "own": own == own},
        )
    table = pd.DataFrame([*found.values()], columns=["query", "p", "own"])
    table = table.assign(p_holm=holm(table["p"].to_numpy(dtype=float)))
    clear = int((table["p_holm"] < LEVEL).sum())
    whole = {"query": "all", "n": len(table), "clear": clear, "by_chance": LEVEL * len(table)}
    return pd.concat([table, pd.DataFrame([whole])], ignore_index=True)


def contrasts() -> pd.DataFrame:
    """The two methods of each claim about pass@k at k > 1, by parts of the problems: `trained`
    strata, `others` and `all`, at k = 1 and the claim's k, by answers and by correct working.

    `value` is the difference, `of_method` and `of_other` are what it is of.
    """
    rows = [row for folder in kept_runs() for row in _contrasts_of(folder)]
    return pd.DataFrame(rows)


def _contrasts_of(folder: Path) -> Iterator[dict[str, object]]:
    study, counts = kept_study(folder), pd.read_parquet(folder / "counts.parquet")
    for name, claim in kept_claims(folder).items():
        test = claim.primary
        if not isinstance(test, PassAtK) or test.exhibit not in study.study.exhibits:
            continue
        models, k = test.models(study), test.k_in(study)
        trained = study.trained_strata(models[0])
        pair = counts["algorithm"].isin([test.method, test.other]) & counts["model"].isin(models)
        benchmarks = test.benchmarks or study.benchmarks_of(test.exhibit)
        for benchmark in benchmarks if k > 1 else ():
            own = counts[pair & (counts["benchmark"] == benchmark)]
            seen = own["stratum"].isin(trained)
            if own["algorithm"].nunique() < 2 or seen.all() or not seen.any():
                continue
            head = {"run": "/".join(folder.parts[-2:]), "claim": name, "benchmark": benchmark}
            head |= {"method": test.method, "other": test.other}
            for part, here in {"trained": own[seen], "others": own[~seen], "all": own}.items():
                yield from (head | {"part": part} | row for row in _apart(here, study, test, k))


def _apart(
    counts: pd.DataFrame, study: ResolvedStudy, test: PassAtK, k: int
) -> Iterator[dict[str, object]]:
    """The difference at k = 1 and at `k`, by answers and by correct working where it is known."""
    models = list(dict.fromkeys(counts["model"]))
    counts = counts.sort_values("model", key=lambda name: name.map(models.index), kind="stable")
    compared = comparisons_table(counts, study.study.evaluation.bootstrap, {"": models})
    for metric, column in ((ANSWERS, "correct"), (WORKING, "worked")):
        for row in compared[(compared["metric"] == metric) & compared["k"].isin([1, k])].to_dict(
            "records"
        ):
            sign = 1 if row["algorithm"] == test.method else -1
            low, high = sorted((sign * row["low"], sign * row["high"]))
            means = {}
            for end, method in (("of_method", test.method), ("of_other", test.other)):
                own = counts[counts["algorithm"] == method]
                n = int(own["n_samples"].iloc[0])
                right = pass_at_k(n, own[column].to_numpy(dtype=int), np.array([row["k"]]))
                means[end] = right[:, 0].mean()
            ends = {"value": sign * row["value"], "low": low, "high": high, "p": row["p"]}
            yield {"metric": metric, "k": row["k"], **means, **ends, "runs": row["n_seeds"]}
