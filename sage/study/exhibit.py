"""What a study asks of a table or figure, whatever its kind.

An exhibit names a model and, by its kind, the methods and benchmarks that it shows, and so what
must be trained and sampled. The kinds themselves are in `sage.exhibits`; a study is handed them
when it is read, so that nothing here depends on how anything is measured or drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationInfo, model_validator

from sage.faults import as_written, validated
from sage.fields import BASE, Faults, Name, Strict, unknown
from sage.study.algorithms import Algorithm

if TYPE_CHECKING:
    from sage.study.types import ResolvedStudy

Rows = Annotated[list[Name], Field(min_length=1)]

KINDS = "kinds"
"""Key of the validation context under which a study finds the class of a kind of exhibit."""

_NAMES = {
    "model": "model",
    "algorithm": "algorithm",
    "algorithms": "algorithm",
    "benchmark": "set",
    "benchmarks": "set",
}
"""What the settings of any kind of exhibit name, by their keys."""


@dataclass(frozen=True)
class Surroundings:
    """What the settings of an exhibit are held against.

    `algorithms` are all that there are, by name; `drawn` and `eval_seeds` say how many samples of
    a problem its model draws with each evaluation seed, `primary_k` is the study's k.
    """

    algorithms: Mapping[str, Algorithm]
    drawn: int
    eval_seeds: int
    primary_k: int = 1

    def too_many(
        self, setting: str, asked: int | None, seeds: int = 1
    ) -> Iterator[tuple[str, str]]:
        """A fault if more samples of a problem are asked for than `seeds` evaluation seeds draw."""
        if asked and asked > (drawn := self.drawn * seeds):
            yield (
                setting,
                f"{asked}, but only {drawn} samples of a problem are drawn; lower it, or raise "
                "evaluation.samples",
            )


class Exhibit(Strict):
    """What every exhibit has."""

    kind: str
    """what it shows: one of the kinds below, or `module:Class`"""
    title: str
    """heading of its section, and the start of its caption"""
    model: Name
    """the model that it shows"""

    of_training: ClassVar[bool] = False
    """Whether it shows training itself, of which the policy before RL has none."""

    needs_rl: ClassVar[bool] = False
    """Whether it shows the settings of RL, though no trained policy."""

    def named(self) -> list[str]:
        """Methods that its settings name."""
        return []

    def varied(self) -> list[str]:
        """Methods that only its variants are made of: it does not have them trained."""
        return []

    def methods_of(self, study: ResolvedStudy) -> list[str]:
        """Its methods in order, the base among them; by default those of its model."""
        return study.methods(self.model)

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """Benchmarks whose samples it needs; by default `benchmark`, if that is a setting of it."""
        benchmark = getattr(self, "benchmark", None)
        return [benchmark] if benchmark else []

    def variants(self, algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
        """Methods that it adds to the study: variants of `algorithms` made for it alone."""
        return {}

    def snapshots_kept(self) -> int:
        """At how many moments of training it needs the policy of each of its methods."""
        return 0

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """(key, message) of what its types cannot check; the key is one of its own settings."""
        yield from ()

    @model_validator(mode="after")
    def _names_are_known(self, info: ValidationInfo) -> Self:
        faults = []
        for key, kind in _NAMES.items():
            named = getattr(self, key, None)
            if isinstance(named, str):
                faults += [f"{key}: {each}" for each in unknown(named, kind, info)]
            names: list[Any] = named if isinstance(named, list) else []
            for index, name in enumerate(names):
                if name != BASE or self.of_training:
                    faults += [f"{key}[{index}]: {each}" for each in unknown(name, kind, info)]
                if name in names[:index]:
                    faults.append(f"{key}[{index}]: {name!r} occurs twice")
        if faults:
            raise Faults(faults)
        return self


class ExhibitOfRows(Exhibit):
    """An exhibit that may name its methods."""

    algorithms: Rows | None = None
    """its methods, in order; left out, those of its model. `base` comes first where samples are
    shown"""

    def named(self) -> list[str]:
        return list(self.algorithms or ())

    def methods_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`; `base` first, but not where training is shown."""
        rows = list(self.algorithms or study.model(self.model).algorithms)
        if BASE not in rows and not self.of_training:
            rows = [BASE, *rows]
        return list(dict.fromkeys(rows))


def of_kind(value: Any, info: ValidationInfo) -> Any:
    """An entry of a study as an exhibit of its kind, by what the context holds under KINDS."""
    if isinstance(value, Exhibit) or not isinstance(value, Mapping):
        return value
    find = (info.context or {}).get(KINDS)
    if find is None:
        raise ValueError("the kinds of exhibits are not known here; use sage.exhibits.load_study")
    named = value.get("kind") or ""
    if not isinstance(named, str):
        raise Faults([f"kind: must be text, not {as_written(named)}"])
    try:
        kind = find(named)
    except ValueError as error:
        raise Faults([f"kind: {error}"]) from error
    exhibit, faults = validated(kind, value, context=info.context)
    if faults:
        raise Faults(faults)
    return exhibit
