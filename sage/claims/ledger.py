"""The ledger of claims: every test of `config/claims.yaml` run on a study's files.

Evidence and verdicts are made below; this finds the files' rows that a test is about and keeps the
result as a frame, which `sage.claims.view` turns into text for the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sage.analysis.dynamics import read_histories
from sage.claims.evidence import Finding, Measured
from sage.claims.registration import claim_sum
from sage.claims.strength import strength_text, too_weak
from sage.claims.tests import Claim, Comparison, load_claims
from sage.claims.verdicts import (
    FAR,
    FAR_SHARE,
    Seen,
    Verdict,
    adjusted,
    far_share,
    means_within,
    of_claim,
    of_finding,
)
from sage.rendering.labels import row_title
from sage.runtime.files import atomic_file, write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE, ResolvedStudy

COLUMNS = ["claim", "text", "source", "verdict", "test", "says", "unit", "test_verdict"]
COLUMNS += ["place", "effect", "low", "high", "p", "n", "over", "runs", "place_verdict", "reason"]
COLUMNS += ["role", "margin", "low_90", "high_90", "detectable", "because", "strength", "headline"]
COLUMNS += ["claim_sha256", "bases", "p_holm", "family", "far"]
"""A row per place that a test found something at, or one row with the reason why it found nothing.
`effect`, `low` and `high` are shares, ratios minus one or the quantity's own unit, as `unit` says;
`p` is before the adjustment that verdicts make, `p_holm` after it, over the `family` of so many
tests; `runs` and `bases` are how many of a row it rests on, if any, `far` the share of runs that
may be far (`sage.claims.verdicts`). `role` is that of a finding: `primary`, `place` (a benchmark of
the primary contrast), `part` (of the claim's sentence) or `secondary`; `margin` the test's,
`because` why a claim is inconclusive, where known, `strength` how strongly the guides of its
methods acted, `headline` whether the claim may open the report, and `claim_sha256` its sum
(`sage.claims.registration`)."""

_NUMBERS = ["effect", "low", "high", "p", "margin", "low_90", "high_90", "detectable"]
_NUMBERS += ["p_holm", "far"]
_WHOLE = ["n", "runs", "bases", "family"]


def write_ledger(
    study: ResolvedStudy,
    claims: Path,
    comparisons: Path | None,
    chance: Path | None,
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
        comparisons=None if comparisons is None else read_frame(comparisons),
        chance=None if chance is None else read_frame(chance),
        exhibits={name: read_frame(path) for name, path in exhibits.items()},
        histories=histories,
    )
    frame = ledger(load_claims(claims), study, measured)
    with atomic_file(table) as temporary:
        frame.to_parquet(temporary, index=False)
    write_text_atomic(table.with_suffix(".csv"), frame.to_csv(index=False, lineterminator="\n"))


def ledger(claims: Mapping[str, Claim], study: ResolvedStudy, measured: Measured) -> pd.DataFrame:
    """Every claim with its verdict, its tests and what they found: COLUMNS."""
    rows = [
        row | {"claim_sha256": content}
        for name, claim in claims.items()
        for content in [claim_sum(claim, study)]
        for row in judged(name, claim, study, measured)
    ]
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    words = [name for name in COLUMNS if name not in (*_NUMBERS, *_WHOLE, "test", "headline")]
    frame[words] = frame[words].astype(object).where(frame[words].notna(), "")
    kinds: dict[str, Any] = {
        **dict.fromkeys(_NUMBERS, float),
        **dict.fromkeys(_WHOLE, "Int64"),
        "headline": bool,
    }
    return frame.astype(kinds)


def judged(
    name: str, claim: Claim, study: ResolvedStudy, measured: Measured
) -> list[dict[str, Any]]:
    """A claim's rows of the ledger: the primary contrast, its places, and the secondary tests."""
    tests = [claim.primary, *claim.secondary]
    answers = [findings(test, study, measured) for test in tests]
    contrast, places = answers[0][0][:1], answers[0][0][1:]
    exhibit = study.study.exhibits.get(claim.primary.exhibit)
    weak = strength = ""
    if exhibit:
        compared = [row for test in tests for row in (test.row, test.other)]
        strength = strength_text(study, exhibit.model, compared, measured.histories)
        if claim.primary.of_policies:
            weak = too_weak(study, exhibit.model, compared[0], compared[1], measured.histories)
    primary = [of_finding(claim.primary, one, one.p, equivalence=not weak) for one in contrast]
    others = [(claim.primary, place) for place in places] + [
        (test, one)
        for test, (ones, _) in zip(claim.secondary, answers[1:], strict=True)
        for one in ones
    ]
    p, family = adjusted([one for _, one in others])
    seen = [of_finding(test, one, at) for (test, one), at in zip(others, p, strict=True)]
    verdict, because = of_claim(
        primary[0] if primary else None,
        seen[: len(places)],
        [
            one
            for one, (test, _) in zip(seen[len(places) :], others[len(places) :], strict=True)
            if not test.part
        ],
        contrast[0].runs if contrast else None,
    )
    if primary and (luck := claim.primary.luck(study, measured)):
        verdict, because = "not testable", luck
    elif primary and weak:
        verdict, because = "untested at this dose", weak
    elif verdict == "inconclusive" and not because:
        because = _few_runs(claim.primary, contrast[0])
    left = [(one, at.p, 1) for one, at in zip(primary, contrast, strict=True)]
    left += [(one, at, family) for one, at in zip(seen, p, strict=True)]
    rows = []
    for number, (test, (ones, reason)) in enumerate(zip(tests, answers, strict=True), start=1):
        here, left = left[: len(ones)], left[len(ones) :]
        head = {
            "claim": name,
            "text": claim.claim,
            "source": claim.source,
            "verdict": verdict,
            "because": because,
            "test": number,
            "says": says(test, study),
            "unit": test.unit,
            "test_verdict": _of_test([one for one, *_ in here]),
            "reason": reason,
            "role": "primary" if number == 1 else "part" if test.part else "secondary",
            "margin": test.margin,
            "strength": strength,
            "headline": claim.headline,
        }
        for place, (one, (of_place, p_holm, size)) in enumerate(zip(ones, here, strict=True)):
            role = {"role": "place"} if number == 1 and place else {}
            judgement = {"place_verdict": of_place, "p_holm": p_holm, "family": size}
            far = {"far": far_share(test, one)} if test.margin and one.by_run else {}
            rows.append(head | role | vars(one) | judgement | far)
        rows += [] if ones else [head]
    return rows


def _few_runs(test: Comparison, finding: Finding) -> str:
    """Why means within the margin are not enough; empty if they are not within it."""
    share = far_share(test, finding)
    if not means_within(test, finding) or share < FAR_SHARE:
        return ""
    bound = amount(FAR * (test.margin or 0.0), test.unit)
    return (
        f"the mean lies within {amount(test.margin or 0.0, test.unit)}, but up to "
        f"{100 * share:.0f} % of runs may differ by more than {bound}; below "
        f"{100 * FAR_SHARE:.0f} % it would be no difference"
    )


def _of_test(seen: Sequence[Seen]) -> Verdict:
    """The verdict of a test: that of its first finding, which is about the whole of it."""
    if not seen:
        return "not run"
    first = seen[0]
    return "inconclusive" if first == "so in one run" or first == "not so in one run" else first


def findings(
    test: Comparison, study: ResolvedStudy, measured: Measured
) -> tuple[list[Finding], str]:
    """What a test finds, or nothing and the reason. The first is about all of the test."""
    exhibit = study.study.exhibits.get(test.exhibit)
    if exhibit is None:
        return [], f"the study has no {test.exhibit}"
    ones, reason = test.find(study, measured)
    return ones, "" if ones else reason


def says(test: Comparison, study: ResolvedStudy) -> str:
    """What a test says, in words."""
    named = {BASE, *study.algorithms}
    row, other = (
        row_title(study, name) if name in named else name for name in (test.row, test.other)
    )
    sign = {"up": ">", "down": "<", "not up": "≤"}[test.direction]
    bound = f" + {amount(test.null, test.unit)}" if test.direction == "not up" else ""
    return f"{test.subject(study)}: {row} {sign} {other}{bound}"


def amount(size: float, unit_: str) -> str:
    """The size of a difference in its unit, without a sign."""
    text = {"points": f"{100 * size:.1f} points", "percent": f"{100 * size:.3g}\u202f%"}
    return text.get(unit_, f"{size:.3g}")
