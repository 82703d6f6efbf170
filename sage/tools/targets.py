"""What is said of Snakemake's targets: of one that does not exist, and of results that are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import unescape
from pathlib import Path

import pandas as pd

from sage.fields import nearest
from sage.results import Results
from sage.runtime.faults import Fault
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy, StudyError
from sage.study.written import read_study

MOST_FILES = 6
"""Files of a target that are named; a theory has more."""

TELLING = ("check", "compare", "verify")
"""Targets that say themselves what they found, and fail if it is bad."""

NOT_RUN = "not run"
_SENTENCE = re.compile(r'<p class="(?:lede|second)">(.*?)</p>', re.DOTALL)

_WILDCARD = re.compile(r"\{((?:[^{}]|\{[^{}]*\})+)\}")

DECIDED = ("supported", "contradicted")
"""Verdicts whose claims are named at the end of a study."""


def no_target(target: str, known: Sequence[str], study: ResolvedStudy, config_folder: Path) -> str:
    """Why `target` cannot be made: a typing error, or an exhibit of other studies."""
    others = []
    for file in sorted((config_folder / "studies").glob("*.yaml")):
        try:
            exhibits = read_study(file.stem, config_folder).content.get("exhibits") or {}
        except StudyError:
            continue
        others += [file.stem] if target in exhibits else []
    elsewhere = f"; {', '.join(others)} have an exhibit of that name (study=NAME)" if others else ""
    return f"{target!r} is no target of the study {study.name}{elsewhere}{nearest(target, known)}"


def example_of(pattern: str) -> str:
    """One of the files that a rule's output stands for: each wildcard is the first name it can be,
    or `{name}` where it is no choice of names."""

    def first(wildcard: re.Match[str]) -> str:
        name, _, allowed = wildcard[1].partition(",")
        one = allowed.strip().partition("|")[0]
        return one if re.fullmatch(r"[\w.-]+", one) else f"{{{name}}}"

    return _WILDCARD.sub(first, pattern)


def ending(target: str, files: Sequence[str], results: Results) -> Iterator[str]:
    """Lines for the end of a run: where the files of a target are; of a whole study its page and
    verdicts."""
    if target in ("all", "report", "whole_study"):
        if not results.page.is_file():  # as with --until
            return
        yield f"Report: {results.page}"
        yield from verdicts(results)
    elif target == "report_partial":
        yield f"Report so far: {results.partial_page}"
    elif files:
        more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
        yield f"{target}: {', '.join(files[:MOST_FILES])}{more}"


def verdicts(results: Results) -> Iterator[str]:
    """How many claims got which verdict, and the claims that are decided, in three lines; where
    none was run, the sentences that open the page."""
    claims = pd.DataFrame(columns=["claim", "text", "verdict"])
    with suppress(Fault, OSError):
        claims = read_frame(results.metrics("claims"), [*claims]).drop_duplicates("claim")
    if (claims["verdict"] == NOT_RUN).all():
        yield from map(unescape, _SENTENCE.findall(results.page.read_text(encoding="utf-8")))
        return
    counts = claims["verdict"].value_counts()
    yield f"Verdicts: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}"
    for verdict in DECIDED:
        if texts := claims.loc[claims["verdict"] == verdict, "text"].tolist():
            yield f"{verdict.capitalize()}: {' '.join(texts)}"
