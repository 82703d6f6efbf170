"""The ledger of claims: every test of `config/claims.yaml` run on a study's files.

Evidence and verdicts are made below; this finds the files' rows that a test is about and keeps the
result as a frame, which `sage.claims.view` turns into text for the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from sage.analysis.dynamics import read_histories
from sage.claims.evidence import (
    Finding,
    History,
    of_histories,
    of_pass_at_k,
    of_patterns,
    of_step_times,
    of_tails,
)
from sage.claims.tests import (
    Claim,
    Comparison,
    PassAtK,
    PatternShare,
    Recorded,
    StepTime,
    Tail,
    load_claims,
)
from sage.claims.verdicts import of_claim, of_test, verdicts
from sage.rendering.labels import row_title
from sage.runtime.files import atomic_file, write_text_atomic
from sage.study import BASE, ResolvedStudy

COLUMNS = [
    "claim",
    "text",
    "source",
    "verdict",
    "test",
    "says",
    "unit",
    "test_verdict",
    "place",
    "effect",
    "low",
    "high",
    "p",
    "n",
    "over",
    "runs",
    "place_verdict",
    "reason",
]
"""A row per place that a test found something at, or one row with the reason why it found nothing.
`effect`, `low` and `high` are shares, ratios minus one or the quantity's own unit, as `unit` says;
`p` is before the adjustment that verdicts make, `runs` how many training runs of a row it rests
on, if any."""


@dataclass(frozen=True)
class Measured:
    """What tests are run on: comparisons, metrics by exhibit, histories by model, row and seed."""

    comparisons: pd.DataFrame | None = None
    exhibits: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    histories: Mapping[tuple[str, str, int], History] = field(default_factory=dict)


def write_ledger(
    study: ResolvedStudy,
    claims: Path,
    comparisons: Path | None,
    exhibits: Mapping[str, Path],
    policies: Sequence[Path],
    table: Path,
) -> None:
    """Run every test of the ledger and write `table` as parquet, and beside it as CSV.

    `policies` are folders …/{model}/{algorithm}/seed{seed} of trained policies.
    """
    models: dict[str, list[Path]] = {}
    for folder in policies:
        models.setdefault(folder.parts[-3], []).append(folder)
    histories = {
        (model, *run): history
        for model, folders in models.items()
        for run, history in read_histories(folders).items()
    }
    measured = Measured(
        comparisons=None if comparisons is None else pd.read_parquet(comparisons),
        exhibits={name: pd.read_parquet(path) for name, path in exhibits.items()},
        histories=histories,
    )
    frame = ledger(load_claims(claims), study, measured)
    with atomic_file(table) as temporary:
        frame.to_parquet(temporary, index=False)
    write_text_atomic(table.with_suffix(".csv"), frame.to_csv(index=False, lineterminator="\n"))


def ledger(claims: Mapping[str, Claim], study: ResolvedStudy, measured: Measured) -> pd.DataFrame:
    """Every claim with its verdict, its tests and what they found: COLUMNS."""
    rows: list[dict[str, Any]] = []
    for name, claim in claims.items():
        of_tests, mine = [], []
        for number, test in enumerate(claim.tests, start=1):
            found, reason = findings(test, study, measured)
            judged = verdicts(test, found)
            of_tests.append(of_test(test, judged))
            head = {
                "claim": name,
                "text": claim.claim,
                "source": claim.source,
                "test": number,
                "says": says(test, study),
                "unit": unit(test),
                "test_verdict": of_tests[-1],
                "reason": reason,
            }
            places = [
                {**vars(finding), "place_verdict": verdict}
                for finding, verdict in zip(found, judged, strict=True)
            ]
            mine += [head | place for place in places] or [head]
        rows += [row | {"verdict": of_claim(of_tests)} for row in mine]
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    numbers = ("test", "effect", "low", "high", "p", "n", "runs")
    words = [name for name in COLUMNS if name not in numbers]
    frame[words] = frame[words].astype(object).where(frame[words].notna(), "")
    types = dict.fromkeys(("effect", "low", "high", "p"), float)
    return frame.astype({**types, "n": "Int64", "runs": "Int64"})


def findings(
    test: Comparison, study: ResolvedStudy, measured: Measured
) -> tuple[list[Finding], str]:
    """What a test finds, or nothing and the reason."""
    shown = study.study.exhibits.get(test.exhibit)
    if shown is None:
        return [], f"the study has no {test.exhibit}"
    model = shown.model
    if isinstance(test, PassAtK):
        if measured.comparisons is None:
            return [], "there are no comparisons yet"
        benchmarks = test.benchmarks or study.benchmarks_of(test.exhibit)
        k = None if test.k == "largest" else test.k
        most = study.evaluation(model).samples
        found = of_pass_at_k(measured.comparisons, model, benchmarks, test.row, test.other, k, most)
    elif isinstance(test, Recorded):
        ours, theirs = (
            {
                seed: history
                for (of, row, seed), history in measured.histories.items()
                if (of, row) == (model, name)
            }
            for name in (test.row, test.other)
        )
        found = of_histories(ours, theirs, test.key, test.stage, test.relative)
    elif test.exhibit not in measured.exhibits:
        return [], f"{test.exhibit} has not been measured"
    elif isinstance(test, PatternShare):
        table = measured.exhibits[test.exhibit]
        found = of_patterns(table, test.pattern, test.row, test.other)
    elif isinstance(test, StepTime):
        found = of_step_times(measured.exhibits[test.exhibit], test.row, test.other)
    else:
        assert isinstance(test, Tail)
        found = of_tails(measured.exhibits[test.exhibit], test.row, test.other, level=0.95)
    if test.margin is not None:  # p is of no difference at all, which is not the question
        found = [replace(finding, p=math.nan) for finding in found]
    if found:
        return found, ""
    reason = f"{test.row} and {test.other} were not both measured"
    ratio = isinstance(test, Recorded) and test.relative
    return [], f"{reason}, or one of them is 0" if ratio else reason


def says(test: Comparison, study: ResolvedStudy) -> str:
    """What a test says, in words."""
    named = {BASE, *study.algorithms}
    row, other = (
        row_title(study, name) if name in named else name for name in (test.row, test.other)
    )
    if isinstance(test, PassAtK):
        what = "pass@1" if test.k == 1 else f"pass@{'k' if test.k == 'largest' else test.k}"
    elif isinstance(test, PatternShare):
        what = test.pattern.replace("_", " ")
    elif isinstance(test, Tail):
        what = "upper tail of perplexity"
    elif isinstance(test, StepTime):
        what = "time to learn from the same completions"
    else:
        assert isinstance(test, Recorded)
        third = {None: "", "early": ", first third", "mid": ", second third"}
        what = test.key.replace("_", " ") + third.get(test.stage, ", last third")
    sign = {"up": ">", "down": "<", "same": "=", "not up": "≤"}[test.direction]
    return f"{what}: {row} {sign} {other}{_margin(test)}"


def _margin(test: Comparison) -> str:
    if test.margin is None:
        return ""
    sign = "±" if test.direction == "same" else "+"
    text = {"points": f"{100 * test.margin:.1f} points", "percent": f"{100 * test.margin:g}\u202f%"}
    return f" {sign} {text.get(unit(test), f'{test.margin:g}')}"


def unit(test: Comparison) -> str:
    """The unit of a test's effect: points, percent or that of the quantity (empty)."""
    if isinstance(test, StepTime):
        return "percent"
    if isinstance(test, Recorded):
        return "percent" if test.relative else "points" if test.key == "reward" else ""
    return "points"
