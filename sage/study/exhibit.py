"""What a study asks of a table or figure, whatever its kind.

An exhibit names a model and, by its kind, the rows and benchmarks that it shows, and so what must
be trained and sampled. Its key in the study (`table1`, `figure3`) is also a target of the workflow.
The kinds themselves are in `sage.exhibits`, one module each; a study is handed them when it is read
(`sage.exhibits.load_study`), so that nothing here depends on how anything is measured or drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo

from sage.fields import BASE, Name, Strict, about
from sage.study.algorithms import Algorithm

if TYPE_CHECKING:
    from sage.study.types import ResolvedStudy

Rows = Annotated[list[Name], Field(min_length=1)]

KINDS = "kinds"
"""Key of the validation context under which a study finds what makes exhibits of its entries."""


@dataclass(frozen=True)
class Surroundings:
    """What the settings of an exhibit are held against, before the study is whole.

    `algorithms` are the valid rows by name; `guide_settings` names the settings of a row's guide,
    none where it has no guide or a faulty one; `drawn` and `eval_seeds` say how many samples of a
    problem its model draws with each evaluation seed, None where the study does not say.
    """

    algorithms: Mapping[str, Algorithm]
    guide_settings: Callable[[str], Sequence[str]]
    drawn: int | None
    eval_seeds: int | None

    def too_many(
        self, setting: str, asked: int | None, seeds: int | None = 1
    ) -> Iterator[tuple[str, str]]:
        """A fault if more samples of a problem are asked for than `seeds` evaluation seeds draw."""
        drawn = (self.drawn or 0) * (seeds or 0)
        if asked and drawn and asked > drawn:
            yield (
                setting,
                f"{asked}, but only {drawn} samples of a problem are drawn; lower it, or raise "
                "evaluation.samples",
            )


class Exhibit(Strict):
    """What every exhibit has."""

    kind: Annotated[str, about("what it shows: one of the kinds below, or `module:Class`")]
    title: Annotated[str, about("heading of its section, and the start of its caption")]
    model: Annotated[Name, about("the model that it shows")]

    of_training: ClassVar[bool] = False
    """Whether it shows training itself, of which the policy before RL is no row."""

    def named(self) -> list[str]:
        """Algorithms that its settings name."""
        return []

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        """Its rows in order; by default those of its model."""
        return study.rows(self.model)

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """Benchmarks whose samples it needs; by default `benchmark`, if that is a setting of it."""
        benchmark = getattr(self, "benchmark", None)
        return [benchmark] if benchmark else []

    def variants(self, algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
        """Rows that it adds to the study: variants of `algorithms` made for it alone."""
        return {}

    def snapshots_kept(self) -> int:
        """At how many moments of training it needs the policy of each of its methods."""
        return 0

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """(key, message) of what its types cannot check; the key is one of its own settings."""
        yield from ()


class ExhibitOfRows(Exhibit):
    """An exhibit that may name its methods."""

    algorithms: Annotated[
        Rows | None,
        about(
            "its methods, in order; left out, those of its model. `base` comes first where samples "
            "are shown"
        ),
    ] = None

    def named(self) -> list[str]:
        return list(self.algorithms or ())

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`; `base` first, but not among rows of training."""
        rows = list(self.algorithms or study.model(self.model).algorithms)
        if BASE not in rows and not self.of_training:
            rows = [BASE, *rows]
        return list(dict.fromkeys(rows))


def of_kind(value: Any, info: ValidationInfo) -> Any:
    """An entry of a study as an exhibit of its kind, by what the context holds under KINDS."""
    if isinstance(value, Exhibit) or not isinstance(value, Mapping):
        return value
    make = (info.context or {}).get(KINDS)
    if make is None:
        raise ValueError("the kinds of exhibits are not known here; use sage.exhibits.load_study")
    return make(value)
