"""What opens a report: sentences on what was compared and what won, a summary with a row for each
method, and one forest.

The forest has the primary contrasts of claims that were registered before training, or else what
the study's exhibits found (`Kind.findings`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType

import pandas as pd

from sage.claims.evidence import Finding
from sage.evaluation.curves import POOLED
from sage.exhibits import kind_of
from sage.exhibits.kind import Findings
from sage.exhibits.pooled_pass_at_k import ShowsPassAtK
from sage.rendering.forest import Forest, Line, forest
from sage.rendering.labels import benchmark_titles, listed, method_title
from sage.rendering.numbers import interval, interval_of_points, percent, points, size_of, too_small
from sage.rendering.table import Cell, Record, Table, points_cell, table_of
from sage.report.compared import Compared, Difference, compared_methods, direction
from sage.study import BASE, ResolvedStudy, is_control

TOLD = 3
"""The most sentences of exhibits that open a page."""

OF_CLAIMS = 2
"""The most claims that open a page with a sentence of their own."""

NAMED = 3
"""The most methods that a sentence names; the summary has all."""


@dataclass(frozen=True)
class Opening:
    """Sentences, the summary of methods, and the forest, each with its caption, and a note."""

    sentences: tuple[str, ...] = ()
    forest: Forest | None = None
    caption: str = ""
    note: str = ""
    summary: Table | None = None
    summary_caption: str = ""


def opening(
    study: ResolvedStudy,
    comparisons: pd.DataFrame | None,
    pass_at_k: pd.DataFrame | None,
    claims: Sequence[Line],
    untold: int,
    findings: Sequence[Findings] = (),
    chance: pd.DataFrame | None = None,
    untested: Mapping[str, float] = MappingProxyType({}),
) -> Opening:
    """What opens the report of a study.

    `claims` are the lines of claims that may open it, and `untold` counts tested ones that cannot
    be drawn with them. `findings` are those of exhibits. `chance` is `metrics/chance.parquet`, with
    pass@k by correct working; `untested` are methods whose guides acted too weakly
    (`sage.claims.view.untested_guides`).
    """
    compared = None
    if comparisons is not None and pass_at_k is not None:
        compared = compared_methods(study, comparisons, pass_at_k)
    sentences: tuple[str, ...] = ()
    if compared:
        told = _sentences(study, compared, untested)
        sentences = (*told[:1], *_of_claims(claims, compared), *told[1:])
    found = [sentence for one in findings for sentence in one.sentences]
    sentences += tuple(found[:TOLD])
    if (left := len(found) - TOLD) > 0:
        sentences += (f"The sections below have {left} more findings of this kind.",)
    if compared is None and not sentences and pass_at_k is not None:
        sentences = _of_base(study, pass_at_k)
    lines = claims or [line for one in findings for line in one.lines]
    caption = next((one.caption for one in findings if one.lines), "")
    note = ""
    if claims:
        caption = (
            "The main test of each claim. Coloured side: what the claim predicts. Grey band: "
            "differences too small to matter. Open marks: one training run."
        )
        others = "1 more claim has" if untold == 1 else f"{untold} more claims have"
        note = f"{others} other units; see section Claims." if untold else ""
    table = summary(study, compared, chance, untested) if compared else ()
    return Opening(sentences, forest(lines), caption, note, *table)


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


def _sentences(
    study: ResolvedStudy, compared: Compared, untested: Mapping[str, float]
) -> tuple[str, ...]:
    """What the first method changes, what is not tested, which others differ from the first, and
    whether each ran once."""
    sentences, first = [], compared.first
    if compared.of_first:
        counted = ", counting answers" if compared.working else ""
        changes = _changes(compared.of_first, " over its base")
        sentences.append(f"{first} {changes}, {compared.where}{counted}.")
    if compared.working:
        sentences.append(f"With correct working as well it {_changes(compared.working)}.")
    sentences += _untested(study, compared, untested)
    if compared.of_others:
        sentences += [*_of_others(compared), *_of_controls(compared)]
    measured = [*compared.of_first.values(), *(one.finding for one in compared.of_others)]
    if measured and all(one.runs == 1 for one in measured):
        sentences.append(f"{compared.once}, so this is true of these runs alone.")
    return tuple(sentences)


def _of_claims(claims: Sequence[Line], compared: Compared) -> tuple[str, ...]:
    """What the first of the claims about two methods, neither the first of the study, found."""
    said: list[str] = []
    for line in claims:
        method, _, other = line.title.partition(" − ")
        if compared.first in (method, other) or not line.interval or line.kind == "not-testable":
            continue
        known, size = f"(95 % interval {line.interval})", f"{size_of(line.effect)} points"
        place, *more = line.note.removeprefix(f"{line.measure}, ").split("; ", 1)
        on = f" on {'the ' * place.startswith('mean of ')}{place}"
        if line.low <= 0.0 <= line.high:
            what = f"does not clearly differ from {other} in {line.measure}{on}: "
            what += f"{line.text} points {known}"
        else:
            way = "more" if line.effect > 0 else "less"
            what = f"has {size} {way} {line.measure} than {other}{on} {known}"
            more += ["the claim is inconclusive"] if line.kind == "inconclusive" else []
        said.append(f"{method} {'; '.join([what, *more])}.")
    return tuple(said[:OF_CLAIMS])


def _untested(study: ResolvedStudy, compared: Compared, untested: Mapping[str, float]) -> list[str]:
    """Which guides acted too weakly to be tested, and by how much."""
    if not untested:
        return []
    doses = [(method_title(study, name), too_small(share)) for name, share in untested.items()]
    guided = {name for name in compared.levels if name != BASE and study.algorithms[name].guide}
    if guided <= {*untested}:
        said = listed([f"{dose} in {title}" for title, dose in doses])
        return [f"SAGE’s guides are not tested here: the dose is {said}."]
    said = listed([f"{title} (dose {dose})" for title, dose in doses])
    return [f"Too weak to be tested here: {said}."]


def _of_base(study: ResolvedStudy, pass_at_k: pd.DataFrame) -> tuple[str, ...]:
    """pass@1 and pass@k of bases that nothing was trained from, each on the first benchmark that
    is shown of it."""
    said: dict[str, str] = {}
    for name in study.study.exhibits:
        exhibit = kind_of(study, name)
        title = study.model(exhibit.model).title
        if not isinstance(exhibit, ShowsPassAtK) or title in said:
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
            where = benchmark_titles(study)[benchmark]
            said[title] = f"{title} reaches {listed(reached)} on {where}."
            break
    return tuple(said.values())[:TOLD]


def _changes(findings: Mapping[int, Finding], over: str = "") -> str:
    """``gains 6.6 points of pass@1 over its base (95 % interval +5.1 to +7.4) but loses 18.8 …``.

    `over` stands behind the first measure.
    """
    parts: list[str] = []
    directions = [direction(one) for one in findings.values()]
    for (k, one), way in zip(findings.items(), directions, strict=True):
        named = "" if parts else "95 % interval "
        limits = interval_of_points(one.low, one.high)
        measure = f"pass@{k}{'' if parts else over}"
        if way:
            size = f"{size_of(one.effect)} points"
            known = f" ({named}{limits})" if limits else ""
            parts.append(f"{'gains' if way > 0 else 'loses'} {size} of {measure}{known}")
        else:
            known = f"{points(one.effect)} points" + (f", {named}{limits}" if limits else "")
            parts.append(f"does not clearly change {measure} ({known})")
    apart = len(directions) == 2 and directions[0] * directions[1] < 0
    return " but ".join(parts) if apart else listed(parts)


def _of_others(compared: Compared) -> list[str]:
    """Which other methods have clearly more or less than the first, the largest differences first.

    Controls are judged where there is nothing else.
    """
    methods = [one for one in compared.judged if not one.control]
    kind, ones = ("method", methods) if methods else ("control", compared.judged)
    ones = sorted(ones, key=lambda one: -abs(one.above))
    said, first = [], compared.first
    for k, sign in ((k, sign) for k in compared.ks for sign in (1, -1)):
        clear = [one for one in ones if one.k == k and sign * one.above > 0 and one.clear]
        if not clear:
            continue
        named, left = clear[:NAMED], len(clear) - NAMED
        names = [one.title for one in named] + [f"{left} more in the table"] * (left > 0)
        have, more = "has" if len(names) == 1 else "have", "more" if sign > 0 else "less"
        changes = listed([one.change for one in named])
        said.append(f"{listed(names)} {have} clearly {more} pass@{k} than {first}: {changes}.")
    if said or not ones:
        return said
    largest, count = ones[0], len(compared.of_others)
    found = f"{largest.change} of pass@{largest.k}"
    chance = f", may be chance among {count} comparisons." if count > 1 else ", may be chance."
    if len({one.method for one in ones}) == 1:
        return [f"{largest.title} is not clearly better or worse than {first}: {found}{chance}"]
    several = " with several runs" if len(compared.judged) < count else ""
    return [
        f"No other {kind}{several} is clearly better or worse than {first}. The largest "
        f"difference, {largest.title}’s {found}{chance}"
    ]


def _of_controls(compared: Compared) -> list[str]:
    """A sentence on the control that gains most, if no method gains more at the same k.

    Its gain counts if it is significant, or beside a gain that is. A method that was not
    significant counts as well, so that none is called beaten that is not. The base stands beside
    it: a control may gain because it changes nothing.
    """
    methods = [one for one in compared.of_others if not one.control]
    gains = [one for one in compared.of_others if one.above > 0]
    clear = {one.k for one in gains if one.clear}
    best = {k: max((m.above for m in methods if m.k == k), default=0.0) for k in clear}
    gaining = [one for one in gains if one.control and one.k in clear and one.above >= best[one.k]]
    if not gaining or not methods:
        return []
    one = max(gaining, key=lambda each: each.above)
    unclear = "" if one.clear else ", which is not clear"
    once = ", in the run that both have" if one not in compared.judged else ""
    base = compared.of_first.get(one.k)
    beside = f"; the base has {points(-base.effect)}" if base else ""
    return [
        f"{one.title}, a control that is not rewarded for right answers, has more pass@{one.k} "
        f"than every method: {one.change} from {compared.first}{unclear}{once}{beside}."
    ]


def summary(
    study: ResolvedStudy,
    compared: Compared,
    chance: pd.DataFrame | None,
    untested: Mapping[str, float],
) -> tuple[Table, str]:
    """A row for each method, with those that gain most of pass@k first, and the caption."""
    ks, last, worked = compared.ks, compared.ks[-1], _worked(compared, chance)
    base, first, *rest = compared.levels
    several = len({*compared.runs.values()}) > 1
    counted = f"Difference from {compared.first}{' by answers' if worked else ''}"
    heads = [("", f"pass@{k}") for k in ks]
    heads += [("", f"pass@{last}, correct working")] * bool(worked)
    heads += [(counted, f"pass@{k}") for k in ks] + [("", "Runs")] * several + [("", "Verdict")]
    records: dict[str, Record] = {}
    for method, levels in compared.levels.items():
        own = [one for one in compared.of_others if one.method == method]
        ends = {one.k: (one.above, one.finding.low, one.finding.high) for one in own}
        if method == base:
            ends = {k: (-one.effect, -one.high, -one.low) for k, one in compared.of_first.items()}
        verdict = {base: "starting point", first: "reference"}.get(method)
        cells = [Cell(percent(levels[k])) for k in ks]
        cells += [Cell(percent(worked.get(method, math.nan)))] * bool(worked)
        cells += [points_cell(*ends.get(k, (math.nan,) * 3)) for k in ks]
        cells += [Cell(str(compared.runs.get(method, "")))] * several
        cells.append(Cell(verdict or _verdict(compared, own, untested), mark="said"))
        records[method] = {**dict(enumerate(cells)), "gain": ends.get(last, (-math.inf,))[0]}
    rest.sort(key=lambda method: -records[method]["gain"])
    controls = [method for method in rest if is_control(study.algorithms[method])]
    methods = [base, first, *(method for method in rest if method not in controls)]
    columns = [(*head, itemgetter(at)) for at, head in enumerate(heads)]
    headed = {"": methods, "Controls, not rewarded for right answers": controls}
    groups = [
        (head, [(one, records[one]) for one in ones]) for head, ones in headed.items() if ones
    ]
    where, count = compared.where.removeprefix("on "), len(compared.of_others)
    clear = f"Clear: p < 0.05 after Holm over all {count}. " if count > 1 else ""
    caption = (
        f"{where[0].upper()}{where[1:]}, in percent. Differences in points with 95 % intervals, "
        f"over the problems and runs that both have. {clear}Headings sort."
    )
    return table_of("Method", columns, groups, study), caption


def _verdict(compared: Compared, own: Sequence[Difference], untested: Mapping[str, float]) -> str:
    """What can be said of a method beside the first one."""
    if not own:
        return "not compared"
    method = own[0].method
    note = f"; dose {too_small(untested[method])}" if method in untested else ""
    if own[0] not in compared.judged:
        return f"one run, not judged{note}"
    clear = [f"{'more' if one.above > 0 else 'less'} pass@{one.k}" for one in own if one.clear]
    alone = any(one.finding.low > 0 or one.finding.high < 0 for one in own)
    return (", ".join(clear) or ("may be chance" if alone else "no clear difference")) + note


def _worked(compared: Compared, chance: pd.DataFrame | None) -> dict[str, float]:
    """pass@k by correct working over all runs, by method; empty where nobody can check it."""
    if chance is None:
        return {}
    rows = chance[(chance["stratum"].fillna("") == "") & (chance["k"] == compared.ks[-1])]
    rows = rows[rows["model"].isin(compared.models) & rows["benchmark"].isin(compared.benchmarks)]
    pooled = rows[rows["train_seed"] == POOLED]
    means = pooled.groupby("algorithm")["worked"].mean().dropna()
    return {str(method): float(value) for method, value in means.items()}
