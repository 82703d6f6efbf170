"""The ledger of claims: every test of a study's claims run on a study's files.

Evidence and verdicts are made below, the manipulation check of claims about guides is made here: a
guide whose factors stay at 1 cannot change anything, and no verdict on it says something about
guides. With the KL term in the reward beta * log q(x, y) is added to that of a completion (Eq. 3);
what acts is how much it differs within a group, next to the advantages there. With the KL term in
the loss it is what differs among the tokens of a state. These are a guide's two doses
(`sage.training.anchoring.DoseTally`), each with its least. The rest finds the files' rows that a
test is about and keeps the result as a frame, which `sage.claims.view` turns into text for the
page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.claims.evidence import Finding, Measured
from sage.claims.registration import claim_sum
from sage.claims.tests import Claim, Comparison
from sage.claims.verdicts import (
    FAR,
    FAR_SHARE,
    Seen,
    adjusted,
    far_share,
    means_within,
    of_claim,
    of_finding,
    two_states,
)
from sage.evaluation.histories import (
    IN_REWARD,
    LEAST_DOSE,
    LEAST_DOSE_IN_LOSS,
    STAGES,
    History,
    read_histories,
    stage_means,
)
from sage.rendering.labels import method_title
from sage.rendering.numbers import number_text, percent, too_small
from sage.runtime.files import atomic_file, write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE, ResolvedStudy

COLUMNS = ["claim", "text", "source", "verdict", "test", "says", "unit", "test_verdict"]
COLUMNS += ["place", "effect", "low", "high", "p", "n", "over", "runs", "place_verdict", "reason"]
COLUMNS += ["role", "margin", "low_90", "high_90", "detectable", "because", "strength", "headline"]
COLUMNS += ["claim_sha256", "bases", "p_holm", "family", "far", "worked", "worked_low"]
COLUMNS += ["worked_high", "worked_verdict", "weak_guide", "dose_share", "note"]
"""A row per place that a test found something at, or one row with the reason why it found nothing.
`effect`, `low` and `high` are shares, ratios minus one or the quantity's own unit, as `unit` says;
`p` is before the adjustment that verdicts make, `p_holm` after it, over the `family` of so many
tests; `runs` and `bases` are how many of a row it rests on, if any, `far` the share of runs that
may be far (`sage.claims.verdicts`). `role` is that of a finding: `primary`, `place` (a benchmark of
the primary contrast), `part` (of the claim's sentence) or `secondary`; `margin` the test's,
`because` why a claim is inconclusive, where known, `strength` how strongly the guides of its
methods acted, `worked` with its interval and verdict what a primary contrast that counts answers
finds if their working has to be correct as well (empty where it cannot be checked), `headline`
whether the claim may open the report, and `claim_sha256` its sum
(`sage.claims.registration`). `weak_guide` is the method whose guide acted too weakly for the test,
`dose_share` its dose as a share of the least (both missing for other tests); `note` says so of the
primary contrast, beside whatever its verdict is."""

_NUMBERS = ["effect", "low", "high", "p", "margin", "low_90", "high_90", "detectable"]
_NUMBERS += ["p_holm", "far", "worked", "worked_low", "worked_high", "dose_share"]
_KINDS: dict[str, Any] = dict.fromkeys(_NUMBERS, float)
_KINDS |= dict.fromkeys(["n", "runs", "bases", "family"], "Int64")
_KINDS |= {"headline": bool, "weak_guide": object}


def write_ledger(
    study: ResolvedStudy,
    claims: Mapping[str, Claim],
    comparisons: Path | None,
    chance: Path | None,
    exhibits: Mapping[str, Path],
    policies: Sequence[Path],
    table: Path,
) -> None:
    """Run every test of the ledger and write `table` as parquet, and beside it as CSV.

    `policies` are folders …/{model}/{algorithm}/seed{seed} of trained policies.
    """
    histories = {
        (folder.parts[-3], *run): history
        for folder in policies
        for run, history in read_histories([folder]).items()
    }
    measured = Measured(
        comparisons=None if comparisons is None else read_frame(comparisons),
        chance=None if chance is None else read_frame(chance),
        exhibits={name: read_frame(path) for name, path in exhibits.items()},
        histories=histories,
    )
    frame = ledger(claims, study, measured)
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
    words = [name for name in COLUMNS if name not in (*_KINDS, "test")]
    frame[words] = frame[words].astype(object).where(frame[words].notna(), "")
    return frame.astype(_KINDS)


def judged(
    name: str, claim: Claim, study: ResolvedStudy, measured: Measured
) -> list[dict[str, Any]]:
    """A claim's rows of the ledger: the primary contrast, its places, and the secondary tests."""
    tests = [claim.primary, *claim.secondary]
    answers = [findings(test, study, measured) for test in tests]
    found = [(test, one) for test, (ones, _) in zip(tests, answers, strict=True) for one in ones]
    contrast, places = answers[0][0][:1], len(answers[0][0][1:])
    strength = ""
    if claim.primary.exhibit in study.study.exhibits:
        compared = [row for test in tests for row in (test.method, test.other)]
        models = claim.primary.models(study)
        strength = strength_text(study, models, compared, measured.histories)
    too_weakly = [_weak_guide(test, study, measured.histories) for test in tests]
    weak = too_weakly[0]
    primary = [of_finding(claim.primary, one, one.p, equivalence=True) for one in contrast]
    others = found[len(contrast) :]
    p, family = adjusted([one for _, one in others])
    seen = [of_finding(test, one, at) for (test, one), at in zip(others, p, strict=True)]
    verdict, because = of_claim(
        primary[0] if primary else None,
        seen[:places],
        [one for one, (test, _) in [*zip(seen, others, strict=True)][places:] if not test.part],
        contrast[0].runs if contrast else None,
    )
    if primary and (luck := claim.primary.luck(study, measured)):
        verdict, because = "not testable", luck
    elif verdict == "inconclusive" and not because:
        because = _two_states(claim.primary, contrast[0]) or _few_runs(claim.primary, contrast[0])
    judgements = iter(
        [(one, at.p, 1) for one, at in zip(primary, contrast, strict=True)]
        + [(one, at, family) for one, at in zip(seen, p, strict=True)]
    )
    rows = []
    for number, (test, (ones, reason)) in enumerate(zip(tests, answers, strict=True), start=1):
        here = [*islice(judgements, len(ones))]
        head = {
            "claim": name,
            "text": claim.claim,
            "source": claim.source,
            "verdict": verdict,
            "because": because,
            "note": weak.because if primary and weak else "",
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
        if ones and (guide := too_weakly[number - 1]):
            head |= {"weak_guide": guide.method, "dose_share": guide.share}
        for place, (one, (of_place, p_holm, size)) in enumerate(zip(ones, here, strict=True)):
            row = head | vars(one) | {"place_verdict": of_place, "p_holm": p_holm, "family": size}
            if test.margin and one.by_run:
                row["far"] = far_share(test, one)
            if number == 1 and place:
                row["role"] = "place"
            elif number == 1:
                row |= _by_working(test, study, measured)
            rows.append(row)
        rows += [] if ones else [head]
    return rows


def _weak_guide(test: Comparison, study: ResolvedStudy, histories: Histories) -> Weak | None:
    """What of a test's guides is too weak for it, where it is of policies that the study has."""
    if test.exhibit not in study.study.exhibits:
        return None
    return too_weak(study, test.models(study), test.method, test.other, histories)


def _by_working(test: Comparison, study: ResolvedStudy, measured: Measured) -> dict[str, Any]:
    """The columns `worked…`: what a primary contrast finds where the working counts as well."""
    one = test.by_working(study, measured)
    if one is None:
        return {}
    ends = {"worked": one.effect, "worked_low": one.low, "worked_high": one.high}
    return ends | {"worked_verdict": of_finding(test, one, one.p, True)}


def _two_states(test: Comparison, finding: Finding) -> str:
    """Which two states the runs fall into; empty if they are in one."""
    states = two_states(test, finding)
    if states is None:
        return ""
    lower, upper = (
        f"{len(each)} at {'−' if np.mean(each) < 0 else '+'}"
        f"{amount(abs(float(np.mean(each))), test.unit)}"
        for each in states
    )
    what = "bases" if finding.bases > 1 else "training runs"
    return f"{what} fall into two states, {lower} and {upper}, and their mean is that of none"


def _few_runs(test: Comparison, finding: Finding) -> str:
    """Why means within the margin are not enough; empty if they are not within it."""
    share = far_share(test, finding)
    if not means_within(test, finding) or share < FAR_SHARE:
        return ""
    margin, bound = (amount(size * (test.margin or 0.0), test.unit) for size in (1.0, FAR))
    return (
        f"the mean lies within {margin}, but up to {100 * share:.0f} % of "
        f"{'bases' if finding.bases > 1 else 'runs'} may differ by more than {bound}; below "
        f"{100 * FAR_SHARE:.0f} % it would be no difference"
    )


def _of_test(seen: Sequence[Seen]) -> str:
    """The verdict of a test: that of its first finding, which is about the whole of it."""
    first = seen[0] if seen else "not run"
    return "inconclusive" if first.endswith("so in one run") else first


def findings(
    test: Comparison, study: ResolvedStudy, measured: Measured
) -> tuple[list[Finding], str]:
    """What a test finds, or nothing and the reason. The first is about all of the test."""
    if test.exhibit not in study.study.exhibits:
        return [], f"the study has no {test.exhibit}"
    ones, reason = test.find(study, measured)
    return ones, "" if ones else reason


def says(test: Comparison, study: ResolvedStudy) -> str:
    """What a test says, in words."""
    named = {BASE, *study.algorithms}
    row, other = (
        method_title(study, name) if name in named else name for name in (test.method, test.other)
    )
    sign = {"up": ">", "down": "<", "not up": "≤"}[test.direction]
    bound = f" + {amount(test.null, test.unit)}" if test.direction == "not up" else ""
    return f"{test.subject(study)}: {row} {sign} {other}{bound}"


def amount(size: float, unit_: str) -> str:
    """The size of a difference in its unit, without a sign."""
    points = f"{100 * size:.1f}" if 100 * size >= 1 else f"{100 * size:.2g}"
    text = {"points": f"{points} points", "percent": f"{100 * size:.3g}\u202f%"}
    return text.get(unit_, f"{size:.3g}")


Histories = Mapping[tuple[str, str, int], History]
"""By model, method and training seed."""


def strength_text(
    study: ResolvedStudy, models: Sequence[str], rows: Iterable[str], histories: Histories
) -> str:
    """A sentence for each of `rows` with a guide: means over its runs, first and last third.

    `models` are the bases that a claim is about. Empty if no row has a guide, or none was trained
    for at least three steps.
    """
    sentences: list[str] = []
    least: dict[str, tuple[str, str, float]] = {}
    for row in dict.fromkeys(rows):
        if row not in study.algorithms or not study.algorithms[row].guide:
            continue
        runs = [one for (model, own, _), one in histories.items() if model in models and own == row]
        shares, logs = (_first_and_last_third(runs, key) for key in ("amplified_share", "log_q"))
        if shares is None or logs is None:
            continue
        beta = study.kl_coefficient(models[0], row)
        dose = dose_of(study, models, row, histories)
        count = f"{len(runs)} run" + ("" if len(runs) == 1 else "s")
        sentences.append(
            f"{method_title(study, row)} ({count}; first and last third of training): q > 1 on "
            f"{percent(shares[0])} and {percent(shares[1])} % of tokens; mean log q of a "
            f"completion {number_text(logs[0])} and {number_text(logs[1])} nats, times β "
            f"{number_text(beta * logs[0])} and {number_text(beta * logs[1])}; dose "
            f"{'not recorded' if dose is None else f'in {dose[1]} {dose[0]:.2g}'}."
        )
        least |= {} if dose is None else {dose[1]: _DOSES[dose[1]]}
    sentences += [
        f"The dose in {place} is {what}, in units of that of their advantages; below {bound:g} a "
        "guide is not tested."
        for place, (_, what, bound) in least.items()
    ]
    return " ".join(sentences)


_DOSES = {
    "the reward": (
        "guide_dose",
        "the standard deviation of β log q among completions of a prompt",
        LEAST_DOSE,
    ),
    "the loss": (
        "loss_dose",
        "the standard deviation, among tokens of a state, of what the guide adds to the weight of "
        "a token's gradient",
        LEAST_DOSE_IN_LOSS,
    ),
}
"""By place of the KL term the key of a guide's dose in a history, its meaning and its least."""


@dataclass(frozen=True)
class Weak:
    """Why two methods do not test the guides in which they differ: the one with the highest dose,
    and that dose as a share of the least."""

    method: str
    share: float
    because: str


def too_weak(
    study: ResolvedStudy, models: Sequence[str], row: str, other: str, histories: Histories
) -> Weak | None:
    """Whether two methods do not test the guides in which they differ; None if they do.

    The doses are means over the `models`, the bases that the claim is about. One that no run has
    recorded says nothing.
    """
    guided = guided_of(study, row, other)
    doses = {name: dose_of(study, models, name, histories) for name in guided}
    known = {name: (dose[0] / _DOSES[dose[1]][2], dose) for name, dose in doses.items() if dose}
    if not known or max(share for share, _ in known.values()) >= 1.0:
        return None
    strongest = max(known, key=lambda name: known[name][0])
    share, (dose, place) = known[strongest]
    short = f", {too_small(share)}" if dose else ""
    because = (
        f"the dose of {method_title(study, strongest)} in {place} is {dose:.2g} standard "
        f"deviations of the advantages, below {_DOSES[place][2]:g}{short}"
    )
    return Weak(strongest, share, because)


def guided_of(study: ResolvedStudy, row: str, other: str) -> list[str]:
    """Which of two methods have a guide, where they differ in it and both have a KL term.

    Without one, more than the guide is compared.
    """
    pair = [study.algorithms[name] for name in (row, other) if name in study.algorithms]
    if len(pair) < 2 or pair[0].guide == pair[1].guide or "none" in (one.kl for one in pair):
        return []
    return [name for name in (row, other) if study.algorithms[name].guide]


def dose_of(
    study: ResolvedStudy, models: Sequence[str], row: str, histories: Histories
) -> tuple[float, str] | None:
    """The dose of a method's guide, the mean over steps, runs and `models`, and its place.

    A run with the KL term in the loss that has not recorded its dose there has that in the reward.
    None if no run recorded one.
    """
    estimator = study.algorithms[row].estimator
    in_reward = estimator is not None and estimator.kind == IN_REWARD
    for place in ("the reward",) if in_reward else ("the loss", "the reward"):
        key = _DOSES[place][0]
        by_model = [
            [
                float(np.mean(values))
                for (*run, _), history in histories.items()
                if run == [model, row] and (values := [at[key] for at in history if key in at])
            ]
            for model in models
        ]
        if doses := [float(np.mean(runs)) for runs in by_model if runs]:
            return float(np.mean(doses)), place
    return None


def _first_and_last_third(runs: Sequence[History], key: str) -> tuple[float, float] | None:
    """Means over runs; None if a run lacks the key or has fewer than three steps."""
    columns = [np.array([row[key] for row in history if key in row]) for history in runs]
    if not columns or min(map(len, columns)) < len(STAGES):
        return None
    means = np.mean([stage_means(column) for column in columns], axis=0)
    return float(means[0]), float(means[-1])
