"""The ledger of claims as text for the page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd

from sage.claims.ledger import amount
from sage.claims.registration import Registration
from sage.claims.verdicts import FAR, VERDICTS, unseen_share
from sage.evaluation.curves import LEVEL
from sage.rendering.forest import Line
from sage.rendering.labels import AVERAGE, benchmark_titles, method_title
from sage.rendering.numbers import (
    NONE,
    ends,
    interval_of_points,
    number_text,
    p_said,
    p_text,
    points,
    too_small,
)
from sage.study import BASE, ResolvedStudy

DECISIVE = ("supported", "contradicted", "smaller than matters", "no difference")
"""Verdicts that say something of the methods."""

_ASIDE = {
    "supported": "as claimed",
    "contradicted": "against the claim",
    "smaller than matters": "smaller than {}",
}

HELD = {"supported": "holds", "contradicted": "does not hold"}
"""What the verdict of a part says of it; it is open otherwise."""


@dataclass(frozen=True)
class LedgerRow:
    """A finding as text. `span`: how many findings its test has, 0 in all but the first of them.

    `role` is `primary`, `place` (a benchmark of the primary contrast), `part` (of the claim's
    sentence) or `secondary`; `detectable` the smallest difference that such a study finds in 80 %
    of cases.
    """

    says: str
    span: int
    place: str
    effect: str
    interval: str
    p: str
    over: str
    verdict: str
    role: str = "primary"
    detectable: str = ""


@dataclass(frozen=True)
class LedgerClaim:
    """A claim with its verdict and its findings as text; the first row is the primary contrast.

    `because` says why it is inconclusive where more problems or samples would not help, `summary`
    says all of it in plain words, and `strength` how strongly the guides of its methods acted.
    `registered` says whether it was written before training and its counts were not known, `label`
    the same in a word; an `exploratory` one was not. A
    `headline` claim opens the report.
    """

    name: str
    text: str
    source: str
    verdict: str
    because: str
    rows: tuple[LedgerRow, ...]
    verdict_text: str
    summary: tuple[str, ...]
    strength: str
    registered: str
    label: str
    exploratory: bool
    headline: bool


def ledger_view(
    frame: pd.DataFrame | None, study: ResolvedStudy, registration: Registration | None = None
) -> list[LedgerClaim]:
    """The ledger as text for the page; nothing where it has not been made.

    What `registration` does not show to have been written before training is exploratory, and no
    headline.
    """
    if frame is None:
        return []
    titles, methods = benchmark_titles(study), row_titles(study)
    registration, claims = registration or Registration(), []
    for name, rows in frame.groupby("claim", sort=False):
        first = rows.iloc[0]
        again = rows["test"].duplicated()
        spans = rows.groupby("test")["test"].transform("size").mask(again, 0)
        views = tuple(
            _row_view(row, titles, int(span))
            for row, span in zip(rows.to_dict("records"), spans, strict=True)
        )
        margin = amount(float(first["margin"]), str(first["unit"]))
        words = {
            key: str(first[key]) for key in ("text", "source", "verdict", "because", "strength")
        }
        early, registered = registration.of_claim(str(name), str(first["claim_sha256"]))
        bounded = not _contrast(str(first["says"]), methods)[2]
        family = rows["family"].fillna(0).max()
        claims.append(
            LedgerClaim(
                name=str(name),
                **words,
                rows=views,
                verdict_text=_verdict_said(words["verdict"], rows, margin)
                + _dose_said(first.to_dict()),
                summary=_summary(first.to_dict(), views, margin, family, bounded),
                registered=registered,
                label=registration.label(str(name), str(first["claim_sha256"])),
                exploratory=not early,
                headline=bool(first["headline"]) and early,
            )
        )
    return claims


def primary_lines(
    frame: pd.DataFrame, study: ResolvedStudy, claims: Sequence[LedgerClaim]
) -> list[Line]:
    """The primary contrasts of `claims` in points as lines of a forest, in their order."""
    titles, methods = benchmark_titles(study), row_titles(study)
    primary = frame[(frame["role"] == "primary") & (frame["unit"] == "points")].set_index("claim")
    places, lines = frame[frame["role"] == "place"].groupby("claim").size(), []
    for claim in claims:
        if claim.name not in primary.index or math.isnan(primary["effect"][claim.name]):
            continue
        row = primary.loc[claim.name].to_dict()
        measure, title, claimed = _contrast(str(row["says"]), methods)
        place = titles.get(str(row["place"]), str(row["place"]))
        if row["place"] == AVERAGE:
            place = f"mean of {places[claim.name]} benchmarks"
        other = ""
        if row["worked_verdict"] not in ("", row["place_verdict"]):
            measure, other = f"{measure} by answers", f"; {_by_working(row)}"
        if dose := _dose_said(row).removeprefix(", "):
            other += f"; the guide’s {dose}"
        line = Line(
            title=title,
            note=f"{measure}, {place}".strip(", ") + other,
            effect=row["effect"],
            low=row["low"],
            high=row["high"],
            verdict=claim.verdict_text,
            kind=claim.verdict.replace(" ", "-"),
            claim=claim.text,
            claimed=claimed,
            margin=row["margin"],
            link=f"claim-{claim.name}",
            hollow=row["runs"] == 1,
            measure=measure,
        )
        lines.append(line)
    return lines


def row_titles(study: ResolvedStudy) -> list[str]:
    """The titles of all methods, longer ones first."""
    titles = {method_title(study, name) for name in (BASE, *study.algorithms)}
    return sorted(titles, key=len, reverse=True)


def _contrast(says: str, methods: Sequence[str]) -> tuple[str, str, str]:
    """What a test measures, its difference in words, and the side of 0 that it claims.

    A title of `methods` may hold a sign itself, so the sign is what follows the first title.
    """
    measure, _, relation = says.partition(": ")
    for row, (sign, claimed) in product(methods, ((" > ", "up"), (" < ", "down"), (" ≤ ", ""))):
        if relation.startswith(f"{row}{sign}"):
            other = relation.removeprefix(f"{row}{sign}")
            return measure, f"{row} − {other if claimed else other.rpartition(' + ')[0]}", claimed
    return measure, relation, ""


def untested_guides(frame: pd.DataFrame | None) -> dict[str, float]:
    """The methods of the ledger whose guides acted too weakly, with their dose as a share of the
    least, which is the largest of their tests'; none in a ledger of older code."""
    if frame is None or "weak_guide" not in frame:
        return {}
    shares = frame.dropna(subset=["weak_guide"]).groupby("weak_guide", sort=False)["dose_share"]
    return {str(name): float(share) for name, share in shares.max().items()}


def counted(claims: Sequence[LedgerClaim]) -> str:
    """How many claims have which verdict, registered and exploratory ones apart, as in
    `3 registered claims: 1 supported, 2 not run.`, and how many may be false."""
    said, words = [], {"no difference": "without a difference that matters"}
    for kind, late in (("registered", False), ("exploratory", True)):
        counts = Counter(claim.verdict for claim in claims if claim.exploratory == late)
        named = ", ".join(f"{counts[one]} {words.get(one, one)}" for one in VERDICTS if counts[one])
        number = counts.total()
        said += [f"{number} {kind} claim{'s' * (number != 1)}: {named}."] if number else []
    if (tested := sum(claim.verdict != "not run" for claim in claims)) > 1:
        said.append(
            f"Verdicts are not adjusted over claims: if no method differed, {LEVEL * tested:.2g} "
            f"of {tested} would be wrong on average."
        )
    return " ".join(said)


def _verdict_said(verdict: str, rows: pd.DataFrame, margin: str) -> str:
    """A verdict in words: with its margin, and in part where not all of the claim is so."""
    if verdict == "no difference":
        return f"no difference larger than {margin}"
    parts = rows[rows["role"] == "part"].drop_duplicates("test")["test_verdict"]
    whole = {
        "supported": (parts == "supported").all(),
        "contradicted": (parts != "supported").all(),
    }
    return verdict if whole.get(verdict, True) else f"{verdict} in part"


def _dose_said(row: Mapping[Any, Any]) -> str:
    """The note beside a verdict on a guide that acted too weakly; empty for others."""
    share = row.get("dose_share", math.nan)
    return "" if pd.isna(share) else f", dose {too_small(share)}"


def _summary(
    first: Mapping[Any, Any], rows: tuple[LedgerRow, ...], margin: str, family: int, bounded: bool
) -> tuple[str, ...]:
    """What a claim's primary contrast found, what that allows to say, and what was secondary.

    `bounded`: the claim is that a difference does not reach a bound.
    """
    contrast, places = rows[0], sum(row.role == "place" for row in rows)
    if contrast.verdict == "not run":
        return (f"Primary contrast: {contrast.says}. Not run: {contrast.place}.",)
    where = f"mean over {places} benchmarks" if places else contrast.place
    effect = contrast.effect + " points" * (first["unit"] == "points")
    interval = f" (95 % interval {contrast.interval})" if contrast.interval else ""
    primary = ", ".join(filter(None, [contrast.says, where]))
    sentences = [f"Primary contrast: {primary}. Found: {effect}{interval}, {contrast.over}."]
    units = "bases" if first["bases"] > 1 else "runs"
    match first["verdict"], first["because"]:
        case ("supported" | "contradicted" | "smaller than matters") as verdict, _:
            sentences.append(f"The contrast is significant, and {_ASIDE[verdict].format(margin)}.")
        case "no difference", _:
            sentences.append(f"A difference larger than {margin} is excluded.")
            if first["far"] > 0:
                sentences.append(
                    f"Fewer than {100 * first['far']:.0f} % of {units} differ by more than "
                    f"{FAR:.0f} times that (95 % confidence)."
                )
        case "not testable", because:
            sentences.append(f"Not testable here: {because}. So much of it is luck.")
        case _, "one training run":
            sentences.append("One training run cannot decide a claim about a method.")
        case _, because if because:
            sentences.append(f"Inconclusive: {because}.")
        case _ if first["unit"] == "points" and first["detectable"] > 1:
            sentences.append(
                "Inconclusive: runs or problems differ so much that a study of this size finds no "
                "difference in 80 % of cases, however large it is."
            )
        case _ if contrast.detectable:
            sentences.append(
                f"Inconclusive: a study of this size finds a difference of {contrast.detectable} "
                "in 80 % of cases, and smaller ones less often."
            )
        case _:
            sentences.append("Inconclusive: no interval can be given.")
    bounds_runs = first["verdict"] == "no difference" and first["far"] > 0  # says more of them
    if first["verdict"] in DECISIVE and not pd.isna(first["runs"]) and not bounds_runs:
        sizes = first["bases"] if first["bases"] > 1 else first["runs"]
        alone = "" if first["bases"] > 1 else "This is shown for this base alone. "
        sentences.append(
            f"{alone}Up to {100 * unseen_share(sizes):.0f} % of {units} may be in a state that "
            f"none of these {sizes} was in."
        )
    if note := str(first.get("note") or ""):
        still = f", and yet {p_said(first['p'])}" * (first["p"] < LEVEL)
        sentences.append(f"The guide was hardly tested: {note}{still}.")
    within = max(-first["low_90"], first["high_90"]) < first["margin"]
    small = abs(first["effect"]) < first["margin"] and not (within or bounded)
    if first["verdict"] in DECISIVE and small:
        sentences.append(f"Whether it reaches {margin}, which would matter, is not shown.")
    parts = [row for row in rows if row.role == "part" and row.span]
    if parts:
        held = "; ".join(f"{row.says}: {HELD.get(row.verdict, 'is open')}" for row in parts)
        sentences.append(f"The claim says more: {held}.")
    missing = [row.says for row in rows[1:] if row.verdict == "not run" and row.role != "part"]
    if missing:
        sentences.append(f"Not run: {'; '.join(missing)}.")
    others = [row for row in rows[1:] if row.verdict != "not run"]
    if others:
        over = f"{family} test" + ("" if family == 1 else "s")
        sentences.append(f"All but the primary contrast: p adjusted after Holm over {over}.")
    if worked := _by_working(first):
        sentences.append(f"The verdict counts answers. {worked[0].upper()}{worked[1:]}.")
    return tuple(sentences)


def _by_working(row: Mapping[Any, Any]) -> str:
    """What a primary contrast finds where the working counts as well; empty if nobody can say."""
    if math.isnan(row["worked"]):
        return ""
    limits = interval_of_points(row["worked_low"], row["worked_high"])
    known = f"with correct working {points(row['worked'])}{f' ({limits})' if limits else ''}"
    return ", ".join(filter(None, [known, str(row["worked_verdict"])]))


def _row_view(row: Mapping[Any, Any], titles: Mapping[str, str], span: int) -> LedgerRow:
    says, role = str(row["says"]) if span else "", str(row["role"])
    if math.isnan(row["effect"]):
        return LedgerRow(says, span, str(row["reason"]), NONE, "", NONE, "", "not run", role)
    effect, low, high = row["effect"], row["low"], row["high"]
    if row["unit"]:
        sign = "\u202f%" if row["unit"] == "percent" else ""
        text, limits = points(effect) + sign, interval_of_points(low, high)
    else:
        text, limits = number_text(effect, "+.3g"), ends(low, high, "+.3g")
    place, runs = str(row["place"]), ""
    if not pd.isna(row["runs"]) and not str(row["over"]).startswith("training run"):
        runs = f", {row['bases']} bases" if row["bases"] > 1 else ""
        runs += f", {row['runs']} run" + ("" if row["runs"] == 1 else "s")
    least = row["detectable"]
    return LedgerRow(
        says=says,
        span=span,
        place=titles.get(place, place),
        effect=text,
        interval=limits,
        p=p_text(row["p"]),
        over=f"{row['n']} {row['over']}{runs}",
        verdict=str(row["place_verdict"]),
        role=role,
        detectable="" if math.isnan(least) else amount(least, str(row["unit"])),
    )
