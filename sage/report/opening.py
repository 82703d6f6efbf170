"""What opens a report: what was found, with numbers before and after, and one forest of it.

Where claims were tested that were registered before training, the forest has their primary
contrasts. Else it has the study's own comparisons, adjusted after Holm, and in a study without
those what its exhibits found (`Kind.findings`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sage.claims.evidence import Finding, by_pair, of_pass_at_k
from sage.evaluation.curves import LEVEL, POOLED, WORKING
from sage.evaluation.intervals import holm
from sage.exhibits import kind_of
from sage.exhibits.kind import Findings
from sage.exhibits.pooled_pass_at_k import ShowsPassAtK
from sage.rendering.forest import Forest, Line, difference_line, forest
from sage.rendering.labels import benchmark_titles, listed, method_title
from sage.rendering.numbers import interval, interval_of_points, percent, points
from sage.study import BASE, ResolvedStudy, is_control

UNTESTED = "untested-at-this-dose"
APART = 0.05
"""Differences that correct working moves by more are told beside those of answers."""

TOLD = 3
"""The most sentences of exhibits that open a page."""

MOST = 12
"""The most differences in a forest that no claim chose: the largest ones."""


@dataclass(frozen=True)
class Opening:
    """Sentences, the forest, what its lines are, and a note below it."""

    sentences: tuple[str, ...] = ()
    forest: Forest | None = None
    caption: str = ""
    note: str = ""


@dataclass(frozen=True)
class _Difference:
    """A method minus another in pass@k. `p` is adjusted after Holm but for a difference from the
    base; `before` and `after` are pass@k of the other and of the method, in percent."""

    title: str
    other: str
    k: int
    finding: Finding
    p: float
    before: str
    after: str
    control: bool
    """Whether the method is rewarded for no right answer."""

    @property
    def change(self) -> str:
        """The difference in points."""
        return f"{points(self.finding.effect)} points"

    @property
    def named(self) -> str:
        """``PKPO in pass@128 (47.6 to 50.6 %, +3.0 points)``."""
        return f"{self.title} in pass@{self.k} ({self.before} to {self.after} %, {self.change})"


@dataclass(frozen=True)
class _Compared:
    """Differences of a study's first method from the base, and of its others from the first."""

    first: str
    where: str
    primary_k: int
    of_first: Sequence[_Difference]
    of_others: Sequence[_Difference]
    working: Mapping[int, Finding]
    """By k the first method's difference from the base with correct working, where that is another
    finding than by answers."""
    once: str
    """What is said where the differences are over one run."""


def opening(
    study: ResolvedStudy,
    comparisons: pd.DataFrame | None,
    pass_at_k: pd.DataFrame | None,
    claims: Sequence[Line],
    untold: int,
    findings: Sequence[Findings] = (),
) -> Opening:
    """What opens the report of a study.

    `claims` are the lines of claims that may open it, and `untold` counts tested ones that cannot
    be drawn with them. `findings` are those of exhibits.
    """
    compared = None
    if comparisons is not None and pass_at_k is not None:
        compared = _compared(study, comparisons, pass_at_k)
    sentences = _sentences(compared) if compared else ()
    told = [sentence for one in findings for sentence in one.sentences]
    sentences += tuple(told[:TOLD])
    if (left := len(told) - TOLD) > 0:
        sentences += (f"The sections below have {left} more findings of this kind.",)
    if claims:
        caption = (
            "The main test of each claim. Coloured side: the direction that the claim predicts. "
            "Grey band: differences too small to matter. Open marks: one training run."
        )
        if any(line.kind == UNTESTED for line in claims):
            caption += " Untested at this dose: the guide changed too little to test the claim."
        note = f"{untold} more claims have other units; see section Claims." if untold else ""
        return Opening(sentences, forest(claims), caption, note)
    ones = (compared.of_others or compared.of_first) if compared else ()
    if not compared or not ones:
        if drawn := forest([line for one in findings for line in one.lines]):
            return Opening(sentences, drawn, next(one.caption for one in findings if one.lines))
        alone = () if pass_at_k is None else _of_base(study, pass_at_k)
        return Opening(sentences or alone)
    k = compared.primary_k
    if k not in {one.k for one in ones}:
        k = ones[0].k
    lines = [
        difference_line(
            f"{one.title} − {one.other}",
            "control" * one.control,
            vars(one.finding),
            one.p,
            one.finding.runs,
        )
        for one in ones
        if one.k == k
    ]
    largest = sorted(lines, key=lambda line: -abs(line.effect))[:MOST]
    caption = (
        f"Differences of pass@{k} from {compared.first if compared.of_others else 'the base'}, "
        f"{compared.where}, paired by problem. p is adjusted after Holm for all methods and both "
        "pass@1 and pass@k."
    )
    note = f"The {MOST} largest of {len(lines)} differences." if len(lines) > MOST else ""
    return Opening(sentences, forest([line for line in lines if line in largest]), caption, note)


def findings_of(study: ResolvedStudy, told: Mapping[str, pd.DataFrame]) -> list[Findings]:
    """What the study's exhibits found, as far as the tables `told` that they speak of are there."""
    findings = []
    for name in study.study.exhibits:
        kind = kind_of(study, name)
        frames = [told.get(f"{name}{suffix}") for suffix in kind.tells]
        there = [frame for frame in frames if frame is not None and len(frame)]
        if frames and len(there) == len(frames):
            findings.append(kind.findings(study, *there))
    return findings


def _compared(
    study: ResolvedStudy, comparisons: pd.DataFrame, pass_at_k: pd.DataFrame
) -> _Compared | None:
    """Of the exhibit that leads, or else of the first that shows pass@k; None without runs.

    Differences are means over the exhibit's benchmarks, of all bases of its model if there are
    several.
    """
    exhibits = [kind_of(study, name) for name in study.study.exhibits]
    for exhibit in sorted(exhibits, key=lambda exhibit: not exhibit.leads):
        group, models = study.bases(exhibit.model)
        there = pass_at_k[pass_at_k["model"].isin(models)]
        rows, sets = set(there["algorithm"]), set(there["benchmark"])
        methods = [row for row in exhibit.methods_of(study) if row != BASE and row in rows]
        benchmarks = [name for name in exhibit.benchmarks_of(study) if name in sets]
        if isinstance(exhibit, ShowsPassAtK) and methods and benchmarks:
            break
    else:
        return None
    first = methods[0]
    ks = (1, study.evaluation(exhibit.model).primary_k)
    asked = [(first, BASE, k) for k in ks] + [(row, first, k) for row in methods[1:] for k in ks]
    findings, worked = (
        {
            pair: ones[0]
            for pair in asked
            for name in (exhibit.model, group)  # the group's goes over the model's
            if (ones := of_pass_at_k(pairs, name, benchmarks, *pair))
        }
        for pairs in (by_pair(comparisons), by_pair(comparisons, WORKING))
    )
    there = there[(there["metric"] == "pass@k") & there["benchmark"].isin(benchmarks)]

    def level(row: str, k: int, other: str = BASE) -> float:
        """pass@k of `row`, over the runs that `other` has as well if it was trained."""
        chosen = there[(there["algorithm"] == row) & (there["k"] == k)]
        if other != BASE:
            keys = ["model", "benchmark", "train_seed"]
            theirs = there.loc[(there["algorithm"] == other) & (there["k"] == k), keys]
            both = chosen[chosen["train_seed"] != POOLED].merge(theirs, on=keys)
            return float(both.groupby(keys[:2])["value"].mean().mean())
        pooled = chosen[chosen["train_seed"] == POOLED]
        return float((chosen if pooled.empty else pooled)["value"].mean())

    working = {
        k: one
        for (_, other, k), one in worked.items()
        if other == BASE and _is_another(one, findings[first, BASE, k])
    }
    differences = []
    split = sum(other == BASE for _, other, _ in findings)
    p_values = np.array([one.p for one in findings.values()])
    p_values[split:] = holm(p_values[split:])  # the first method's change stands by its interval
    for ((row, other, k), one), p in zip(findings.items(), p_values, strict=True):
        after = level(row, k, other)
        before = level(BASE, k) if other == BASE else after - one.effect
        names = method_title(study, row), method_title(study, other)
        texts = percent(before), percent(after)
        control = is_control(study.algorithms[row])
        differences.append(_Difference(*names, k, one, float(p), *texts, control))
    own, where = (differences[:split], differences[split:]), _where(study, models, benchmarks)
    several = max(study.numbers_of_runs(), default=1) > 1
    once = "Only one run is common to these methods" if several else "Each method was trained once"
    return _Compared(method_title(study, first), where, ks[1], *own, working, once)


def _is_another(one: Finding, other: Finding) -> bool:
    """Whether one is clear and the other not, or they are more than APART apart."""
    return _direction(one) != _direction(other) or abs(one.effect - other.effect) > APART


def _direction(one: Finding) -> int:
    """1 or -1 for a clear difference, else 0."""
    return (1 if one.effect > 0 else -1) if one.p < LEVEL else 0


def _where(study: ResolvedStudy, models: Sequence[str], benchmarks: Sequence[str]) -> str:
    """``on Routes``; with the models where others of the study have the same benchmarks."""
    count = len(benchmarks)
    place = f"on {benchmark_titles(study)[benchmarks[0]]}"
    if count > 1:
        place = f"mean of {count} benchmarks"
    others = (each for name, each in study.study.models.items() if name not in models)
    if not any(set(each.benchmarks) & set(benchmarks) for each in others):
        return place
    return f"{place}, model {listed([study.model(name).title for name in models])}"


def _sentences(compared: _Compared) -> tuple[str, ...]:
    """What the first method changes, which others differ from it, and whether each ran once."""
    sentences = []
    if compared.of_first:
        changes = listed([_change(one, not at) for at, one in enumerate(compared.of_first)])
        sentences.append(f"{compared.first} {changes}, {compared.where}.")
    if compared.working:
        changes = listed([_change_of_working(k, one) for k, one in compared.working.items()])
        sentences.append(f"Where only right answers with correct working count it {changes}.")
    if compared.of_others:
        bases = {one.k: one.before for one in compared.of_first}
        sentences += _of_others(compared.first, compared.of_others, bases)
    measured = [*compared.of_first, *compared.of_others]
    if measured and all(one.finding.runs == 1 for one in measured):
        sentences.append(f"{compared.once}, so this is true of these runs alone.")
    return tuple(sentences)


def _of_base(study: ResolvedStudy, pass_at_k: pd.DataFrame) -> tuple[str, ...]:
    """pass@1 and pass@k of a base that nothing was trained from, on the first benchmark shown."""
    for name in study.study.exhibits:
        exhibit = kind_of(study, name)
        if not isinstance(exhibit, ShowsPassAtK):
            continue
        ks = (1, study.evaluation(exhibit.model).primary_k)
        for benchmark in exhibit.benchmarks_of(study):
            rows = pass_at_k[
                (pass_at_k["model"] == exhibit.model)
                & (pass_at_k["algorithm"] == BASE)
                & (pass_at_k["benchmark"] == benchmark)
                & (pass_at_k["metric"] == "pass@k")
                & pass_at_k["k"].isin(ks)
            ].drop_duplicates("k", keep="last")
            if rows.empty:
                continue
            reached = [
                f"pass@{row['k']} of {percent(row['value'])} %"
                + (f" (95 % interval {known})" if known else "")
                for row in rows.sort_values("k").to_dict("records")
                for known in [interval(row["low"], row["high"])]
            ]
            title = study.model(exhibit.model).title
            where = benchmark_titles(study)[benchmark]
            return (f"{title} reaches {listed(reached)} on {where}.",)
    return ()


def _change(one: _Difference, leads: bool) -> str:
    """``raises pass@1 of the base from 9.8 to 16.4 % (+6.6 points, 95 % interval …)``.

    The first of a sentence says of what, and what the interval is.
    """
    measure = f"pass@{one.k} of the base" if leads else f"pass@{one.k}"
    named = "95 % interval " if leads else ""
    limits = interval_of_points(one.finding.low, one.finding.high)
    known = f"{one.change}, {named}{limits}" if limits else one.change
    if not one.p < LEVEL:
        return f"does not change {measure} significantly ({one.before} to {one.after} %: {known})"
    verb = "raises" if one.finding.effect > 0 else "lowers"
    return f"{verb} {measure} from {one.before} to {one.after} % ({known})"


def _change_of_working(k: int, one: Finding) -> str:
    """``lowers pass@16 by 20.2 points (95 % interval −23.9 to −16.4)``."""
    limits = interval_of_points(one.low, one.high)
    known = f" (95 % interval {limits})" if limits else ""
    if not _direction(one):
        return f"does not change pass@{k} significantly: {points(one.effect)} points{known}"
    verb = "raises" if one.effect > 0 else "lowers"
    return f"{verb} pass@{k} by {100 * abs(one.effect):.1f} points{known}"


def _of_others(first: str, others: Sequence[_Difference], bases: Mapping[int, str]) -> list[str]:
    """Which other methods differ significantly from the first, and whether a control gains as much.

    Where some methods have several training runs, the others are not judged: one run says nothing
    about further runs. `bases` is pass@k of the base by k, in percent: a control may gain because
    it changes nothing.
    """
    methods, controls = ([one for one in others if one.control is which] for which in (False, True))
    if not methods:
        return [_of_kind(first, controls, "control")]
    several = [one for one in methods if (one.finding.runs or 0) > 1]
    more = " with several runs" if 0 < len(several) < len(methods) else ""
    judged = _of_kind(first, several or methods, "other method", more)
    return [judged, *_of_controls(methods, controls, bases)]


def _of_kind(first: str, ones: Sequence[_Difference], kind: str, more: str = "") -> str:
    """Which of these differ significantly from the first method, and the largest differences."""
    clear = [one for one in ones if one.p < LEVEL]
    count, differing = (len({one.title for one in each}) for each in (ones, clear))
    if not clear:
        largest = max(ones, key=lambda one: abs(one.finding.effect)).named
        if count == 1:
            return f"The {kind}{more} does not differ significantly from {first}: {largest}."
        return (
            f"None of {count} {kind}s{more} differs significantly from {first} after Holm; the "
            f"largest difference is {largest}."
        )
    ends = {
        "gain": max(clear, key=lambda one: one.finding.effect),
        "loss": min(clear, key=lambda one: one.finding.effect),
    }
    named = [
        f"the largest {end} is {one.named}"
        for end, one in ends.items()
        if (one.finding.effect > 0) == (end == "gain") and one.finding.effect
    ]
    which = f"{differing} of {count} {kind}s{more} differ" + "s" * (differing == 1)
    if count == 1:
        which = f"The {kind}{more} differs"
    return f"{which} significantly from {first} after Holm: {listed(named)}."


def _of_controls(
    methods: Sequence[_Difference], controls: Sequence[_Difference], bases: Mapping[int, str]
) -> list[str]:
    """A sentence on the control that gains most, if no method gains more at the same k.

    Its gain counts if it is significant, or beside a gain that is. A method that was not
    significant counts as well, so that none is called beaten that is not.
    """
    gains = [one for one in (*methods, *controls) if one.finding.effect > 0]
    clear = {one.k for one in gains if one.p < LEVEL}
    best = {k: max((m.finding.effect for m in methods if m.k == k), default=0.0) for k in clear}
    gaining = [
        one for one in gains if one.control and one.k in clear and one.finding.effect >= best[one.k]
    ]
    if not gaining:
        return []
    one = max(gaining, key=lambda each: each.finding.effect)
    known = f"{one.before} to {one.after} %, {one.change}" + ", not significant" * (
        not one.p < LEVEL
    )
    base = f"; the base has {bases[one.k]} %" if one.k in bases else ""
    return [
        f"{one.title}, a control that is not rewarded for right answers, has more pass@{one.k} "
        f"than every method ({known}{base})."
    ]
