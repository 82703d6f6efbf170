"""Claims as typed tests on measured files: the paper's (`config/claims.yaml`), or a study's own.

Each test says which measurement, which rows, which way, and takes what it finds from
`sage.claims.evidence`; what follows from that is decided in `sage.claims.verdicts`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, TypeAdapter, model_validator

from sage.claims.evidence import (
    Finding,
    Measured,
    Pair,
    of_distinct,
    of_histories,
    of_pass_at_k,
    of_patterns,
    of_tails,
)
from sage.evaluation.chance import LUCKY
from sage.evaluation.curves import POOLED
from sage.faults import listed, type_faults
from sage.fields import Distinct as EachOnce
from sage.fields import Name, Positive, PositiveFloat, Strict
from sage.rendering.labels import benchmark_titles, method_title
from sage.rendering.numbers import percent
from sage.results import Run
from sage.runtime.files import from_repository
from sage.study import BASE, ResolvedStudy
from sage.study.kept import updated
from sage.study.parsed import StudyError
from sage.study.reading import read_as
from sage.study.written import Written, read

Direction = Literal["up", "down", "not up"]

HEADLINES = 3
"""As many claims as fit the first screen of the report."""


class Comparison(Strict, ABC):
    """A difference, `method` minus `other`, that goes one way. `exhibit` lends model, benchmarks.

    `up` and `down` say that there is one, `not up` that it is below `margin`. With `up` and
    `down`, `margin` is the smallest difference that would matter: a test that finds none may find
    that there is none of that size. A secondary test may be a `part` of the claim's sentence.
    """

    exhibit: Name
    method: Name
    other: Name
    direction: Direction
    margin: PositiveFloat | None = None
    part: bool = False

    @model_validator(mode="after")
    def _margin_where_needed(self) -> Comparison:
        if self.direction == "not up" and self.margin is None:
            raise ValueError("direction 'not up' needs a margin")
        return self

    @property
    def null(self) -> float:
        """The difference that a p-value is about."""
        return self.margin if self.direction == "not up" and self.margin else 0.0

    @property
    def unit(self) -> str:
        """The unit of the effect: points, percent or that of the quantity (empty)."""
        return "points"

    @property
    def lacking(self) -> str:
        """Why nothing is found where everything was measured."""
        return f"{self.method} and {self.other} were not both measured"

    def models(self, study: ResolvedStudy) -> list[str]:
        """The models that it is about; the study has the exhibit."""
        return [study.study.exhibits[self.exhibit].model]

    @abstractmethod
    def subject(self, study: ResolvedStudy) -> str:
        """What is compared, in words."""

    @abstractmethod
    def find(self, study: ResolvedStudy, measured: Measured) -> tuple[list[Finding], str]:
        """What the test finds, the first about all of it, and the reason if it is nothing.

        The study has the exhibit.
        """

    def luck(self, study: ResolvedStudy, measured: Measured) -> str:
        """Where too much of what is compared is luck; empty if nowhere, or nothing is known."""
        return ""

    def by_working(self, study: ResolvedStudy, measured: Measured) -> Finding | None:
        """What it would find if the working had to be correct as well; None if nothing is known."""
        return None


class OfExhibit(Comparison):
    """A comparison of what the exhibit itself measured."""

    def find(self, study: ResolvedStudy, measured: Measured) -> tuple[list[Finding], str]:
        if self.exhibit not in measured.exhibits:
            return [], f"{self.exhibit} has not been measured"
        draws = study.evaluation(study.study.exhibits[self.exhibit].model).bootstrap
        return self.find_in(measured.exhibits[self.exhibit], draws), self.lacking

    @abstractmethod
    def find_in(self, table: pd.DataFrame, draws: int) -> list[Finding]:
        """What is found in the exhibit's metrics, with `draws` of a bootstrap."""


class PassAtK(Comparison):
    """pass@k, problem by problem, the mean over benchmarks (metrics/comparisons.parquet).

    Where the exhibit's model is one of several bases, the test is over all of them.
    `k` `primary` is the study's `evaluation.primary_k`, for the model of the exhibit.
    `benchmarks` are those of the exhibit unless named. `count: working` counts only right answers
    with correct working, for problem sets where it can be checked.
    """

    test: Literal["pass_at_k"]
    k: Positive | Literal["primary"]
    benchmarks: Annotated[list[Name], Field(min_length=1), EachOnce] | None = None
    count: Literal["working"] | None = None

    def models(self, study: ResolvedStudy) -> list[str]:
        return study.bases(study.study.exhibits[self.exhibit].model)[1]

    def subject(self, study: ResolvedStudy) -> str:
        known = self.k != "primary" or self.exhibit in study.study.exhibits
        counted = " with correct working" if self.count else ""
        return f"pass@{self.k_in(study) if known else 'k'}{counted}"

    def find(self, study: ResolvedStudy, measured: Measured) -> tuple[list[Finding], str]:
        if measured.comparisons is None:
            return [], "there are no comparisons yet"
        unchecked = ", or the working cannot be checked," if self.count else ""
        places = " on every benchmark" if len(self._benchmarks(study)) > 1 else ""
        pairs = measured.worked_pairs if self.count else measured.pairs
        return self._found(study, pairs), f"{self.lacking}{unchecked}{places}".rstrip(",")

    def by_working(self, study: ResolvedStudy, measured: Measured) -> Finding | None:
        """What a test of answers would find if the working had to be correct as well.

        None where it cannot be checked, or already counts. The study has the exhibit.
        """
        found = [] if self.count else self._found(study, measured.worked_pairs)
        return found[0] if found else None

    def _found(
        self, study: ResolvedStudy, pairs: Mapping[Pair, Mapping[Any, Any]]
    ) -> list[Finding]:
        model, _ = study.bases(study.study.exhibits[self.exhibit].model)
        contrast = self.method, self.other, self.k_in(study), self.null
        return of_pass_at_k(pairs, model, self._benchmarks(study), *contrast)

    def _benchmarks(self, study: ResolvedStudy) -> list[str]:
        return self.benchmarks or study.benchmarks_of(self.exhibit)

    def k_in(self, study: ResolvedStudy) -> int:
        """The k of this test; for `primary` the study has its exhibit."""
        if self.k != "primary":
            return self.k
        return study.evaluation(study.study.exhibits[self.exhibit].model).primary_k

    def luck(self, study: ResolvedStudy, measured: Measured) -> str:
        """The worst place where guesses are more than LUCKY of pass@k; empty if there is none.

        Correct working is not guessed, so there is none where it counts.
        """
        if measured.chance is None or self.count:
            return ""
        k, rows = self.k_in(study), measured.chance
        rows = rows[
            rows["model"].isin(self.models(study))
            & (rows["k"] == k)
            & (rows["train_seed"] == POOLED)
            & (rows["stratum"] == "")
            & rows["algorithm"].isin([self.method, self.other])
            & rows["benchmark"].isin(self._benchmarks(study))
        ]
        rows = rows[rows["chance"] > LUCKY * rows["value"]]
        if rows.empty:
            return ""
        worst = rows.sort_values("chance").iloc[-1]
        title, benchmark = method_title(study, str(worst["algorithm"])), str(worst["benchmark"])
        return (
            f"against the answers of other problems {title} has pass@{k} "
            f"{percent(worst['chance'])} %, against their own {percent(worst['value'])} % "
            f"({benchmark_titles(study)[benchmark]})"
        )


class PatternShare(OfExhibit):
    """The share of correct solutions that show a pattern, on problems that both methods solve."""

    test: Literal["pattern"]
    pattern: Name

    def subject(self, study: ResolvedStudy) -> str:
        return self.pattern.replace("_", " ")

    def find_in(self, table: pd.DataFrame, draws: int) -> list[Finding]:
        return of_patterns(table, self.pattern, self.method, self.other, draws, self.null)


class Distinct(OfExhibit):
    """How many different right completions k samples of a problem hold (an exhibit `distinct`).

    `quantity: differ` is the chance that two right samples differ, where every run has two.
    """

    test: Literal["distinct"]
    quantity: Literal["distinct", "differ"] = "distinct"

    @property
    def unit(self) -> str:
        return "points" if self.quantity == "differ" else ""

    def subject(self, study: ResolvedStudy) -> str:
        if self.quantity == "differ":
            return "the chance that two right completions differ"
        return "different right completions"

    def find_in(self, table: pd.DataFrame, draws: int) -> list[Finding]:
        return of_distinct(table, self.quantity, self.method, self.other, draws, self.null)


class Tail(OfExhibit):
    """The share of responses above the base's 95th percentile of perplexity, by problem."""

    test: Literal["tail"]

    @model_validator(mode="after")
    def _of_trained_policies(self) -> Tail:
        if BASE in (self.method, self.other):
            raise ValueError(
                f"the percentile is that of {BASE}, which cannot be compared with itself; name "
                "two trained methods as method and other"
            )
        return self

    def subject(self, study: ResolvedStudy) -> str:
        return "upper tail of perplexity"

    def find_in(self, table: pd.DataFrame, draws: int) -> list[Finding]:
        return of_tails(table, self.method, self.other, 0.95, draws, self.null)


class Recorded(Comparison):
    """A quantity of the training histories, over the whole run or a third of it.

    `relative` compares ratios instead of differences.
    """

    test: Literal["history"]
    key: Name
    stage: Literal["early", "mid", "late"] | None = None
    relative: bool = False

    @property
    def unit(self) -> str:
        return "percent" if self.relative else "points" if self.key == "reward" else ""

    def subject(self, study: ResolvedStudy) -> str:
        third = {"early": ", first third", "mid": ", second third", "late": ", last third"}
        return self.key.replace("_", " ") + third.get(self.stage or "", "")

    def find(self, study: ResolvedStudy, measured: Measured) -> tuple[list[Finding], str]:
        model = study.study.exhibits[self.exhibit].model
        ours, theirs = (measured.histories_of(model, name) for name in (self.method, self.other))
        effects = of_histories(ours, theirs, self.key, self.stage, self.relative, self.null)
        return effects, self.lacking + (", or one of them is 0" if self.relative else "")


AnyTest = Annotated[
    PassAtK | PatternShare | Distinct | Tail | Recorded, Field(discriminator="test")
]


class Claim(Strict):
    """What the paper claims, where, and the tests of it.

    `primary` alone decides: one contrast, with the margin below which a difference would not
    matter. `secondary` tests are shown, and can only take a verdict back, unless they are parts of
    the claim: these hold or do not, whatever the primary test says.
    A `headline` claim stands in the sentences that open the report, of which there are at most
    HEADLINES.
    """

    claim: str
    source: str
    headline: bool = False
    primary: AnyTest
    secondary: list[AnyTest] = Field(default_factory=list)

    @model_validator(mode="after")
    def _margin_of_the_primary(self) -> Claim:
        if self.primary.margin is None:
            raise ValueError("the primary test needs a margin")
        return self


def load_claims(path: Path) -> dict[str, Claim]:
    """The ledger by the claims' names. Raises ValueError naming the file, the key and the fault."""
    return _with_few_headlines(read_as(dict[Name, Claim], path), path)


def read_claims(asked: str | Mapping[str, Any], written: Written | None = None) -> dict[str, Claim]:
    """The claims that a study tests: its own, or those of the file that it names.

    `written` is the study as it is written, for the places of faults. Raises ValueError as
    `load_claims` does.
    """
    if isinstance(asked, str):
        return load_claims(from_repository(asked))
    if faults := type_faults(dict[Name, Claim], dict(asked), "claims"):
        lines = written.faults(faults) if written else [listed("the study", faults)]
        raise StudyError("\n".join(lines))
    claims = TypeAdapter(dict[Name, Claim]).validate_python(asked)
    return _with_few_headlines(claims, written.file if written else "the study")


def _with_few_headlines(claims: dict[str, Claim], place: object) -> dict[str, Claim]:
    headlines = [name for name, claim in claims.items() if claim.headline]
    if len(headlines) > HEADLINES:
        raise ValueError(
            f"{place}: {', '.join(headlines)} have headline: true; at most {HEADLINES} claims may"
        )
    return claims


def first_compared(study: ResolvedStudy, claims: Mapping[str, Claim]) -> list[tuple[Run, str]]:
    """The samples that a first look at a study needs: what its first two headlines compare.

    That is one run of each method, of the same seed where they have one in common, on the first
    benchmark of the first model that they are about. Empty for a study without such a claim.
    """
    tests = [c.primary for c in claims.values() if c.headline and isinstance(c.primary, PassAtK)]
    known = [test for test in tests[:2] if test.exhibit in study.study.exhibits]
    models = [study.study.exhibits[test.exhibit].model for test in known]
    if not known or not (benchmarks := study.model(models[0]).benchmarks):
        return []
    names = {name for test in known for name in (test.method, test.other)} - {BASE}
    pairs = [pair for pair in study.evaluated_runs(models[0]) if pair[1] == benchmarks[0]]
    seeds = [{run.seed for run, _ in pairs if run.algorithm == name} for name in names]
    common = min(set.intersection(*seeds), default=None) if all(seeds) else None
    if common is None:
        return []
    return [
        (run, benchmark)
        for run, benchmark in pairs
        if run.algorithm == BASE or (run.algorithm in names and run.seed == common)
    ]


def kept_claims(folder: Path) -> dict[str, Claim]:
    """The ledger of a kept run, of this version or an earlier one.

    It is in the kept study, or beside it in `claims.yaml` if the study named a file.
    """
    dump = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    file, version = folder / "claims.yaml", dump.get("version", 1)
    own = read(file).content if file.is_file() else dump["study"]["claims"]
    content = updated({"version": version, "claims": own})["claims"]
    return TypeAdapter(dict[Name, Claim]).validate_python(content)
