"""Kept studies of earlier versions, read as today's types have them.

A kept study is a dump with every default, and the types refuse unknown keys. So a key or a kind
that is dropped or renamed gets a line at the end of `CHANGES`. The version of a dump is 1 plus the
number of changes that came before it. A claim is registered by the sum of a dump: `first_names`
gives a dump of today the names of version 1, so that no change here changes a sum.

A path leads to a key of a dump, or of `claims`, a kept file of claims: `study.models.*.rl.watch`.
`*` stands for each key or item of a section, `**` for any number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dropped:
    """A key that is gone, and the default that it had. A dump with another value is refused."""

    path: str
    default: Any

    def apply(self, dump: dict[str, Any]) -> None:
        for place, section, key in list(_matches(dump, self.path)):
            if section[key] != self.default:
                raise ValueError(
                    f"{place}: {section[key]!r} cannot be read: there is no such setting any more, "
                    f"and only its default, {self.default!r}, means the same without it"
                )
            del section[key]

    def undo(self, dump: dict[str, Any]) -> None:
        """Nothing: sums leave defaults out, but for those of `Evaluation.decisive`."""


@dataclass(frozen=True)
class Renamed:
    """A key that has another name now, in the same section."""

    path: str
    new: str

    def apply(self, dump: dict[str, Any]) -> None:
        _rename(dump, self.path, self.new)

    def undo(self, dump: dict[str, Any]) -> None:
        above, _, old = self.path.rpartition(".")
        _rename(dump, f"{above}.{self.new}".lstrip("."), old)


@dataclass(frozen=True)
class RenamedKind:
    """Sections whose `kind` has another name now; without one, they are left out of the study."""

    path: str
    old: str
    new: str | None = None

    def apply(self, dump: dict[str, Any]) -> None:
        for section, key in _of_kind(dump, self.path, self.old):
            if self.new is None:
                del section[key]
            else:
                section[key]["kind"] = self.new

    def undo(self, dump: dict[str, Any]) -> None:
        for section, key in _of_kind(dump, self.path, self.new):
            section[key]["kind"] = self.old


@dataclass(frozen=True)
class DroppedTest:
    """Claims whose primary test is of a kind that there is no more; `path` leads to the claims."""

    path: str
    test: str

    def apply(self, dump: dict[str, Any]) -> None:
        for _, claims, name in list(_matches(dump, self.path)):
            if claims[name].get("primary", {}).get("test") == self.test:
                del claims[name]

    def undo(self, dump: dict[str, Any]) -> None:
        """Nothing: each claim has a sum of its own."""


CHANGES: tuple[Dropped | Renamed | RenamedKind | DroppedTest, ...] = (
    RenamedKind("study.exhibits.*", "reading_effects"),
    Renamed("study.readings", "open_choices"),
    RenamedKind("study.exhibits.*", "free_rivals", "cost_free_baselines"),
    Dropped("algorithms.*.importance", "token"),
    Dropped("**.lora.dropout", 0.0),
    Dropped("**.merge_adapter", False),
    Dropped("study.models.*.rl.watch.largest_loss", 100.0),
    Dropped("study.models.*.rl.watch.largest_gap", 0.1),
    Dropped("study.models.*.rl.watch.truncated_share", 1.0),
    Dropped("study.models.*.rl.watch.lowest_entropy", 0.001),
    Dropped("study.models.*.rl.watch.timeout_share", 0.1),
    Dropped("study.models.*.rl.watch.reward_fall", 0.05),
    Dropped("study.models.*.rl.watch.log_q_rise", 0.5),
    Dropped("study.models.*.rl.watch.truncated_rise", 0.1),
    Renamed("claims.**.row", "method"),
    Renamed("study.claims.**.row", "method"),
    RenamedKind("study.exhibits.*", "step_times"),
    DroppedTest("claims.*", "step_time"),
    DroppedTest("study.claims.*", "step_time"),
    RenamedKind("study.exhibits.*", "optimum", "reports.early_stopping.optimum:OptimumTable"),
    RenamedKind("study.exhibits.*", "dose", "reports.dose.dose_grid:DoseFigure"),
    RenamedKind("study.exhibits.*", "paper_tests", "reports.paper.paper_tests:PaperTests"),
)
"""What has changed since version 1, the oldest first. Its paths are those of its time."""


def version() -> int:
    """The version of a dump that is written today."""
    return 1 + len(CHANGES)


def updated(dump: Mapping[str, Any]) -> dict[str, Any]:
    """A dump as today's types read it; its `version` is left out, and is 1 where there is none.

    Raises ValueError for a dump of a later version, and for a setting that there is no more.
    """
    content = deepcopy(dict(dump))
    written = content.pop("version", 1)
    if written > version():
        raise ValueError(f"version {written} is later than {version()}, the last that can be read")
    for change in CHANGES[written - 1 :]:
        change.apply(content)
    return content


def first_names(part: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A dump of the section at `place`, such as `study.models.*`, as version 1 named its keys."""
    whole: dict[str, Any] = deepcopy(dict(part))
    steps = place.split(".")
    for step in reversed(steps):
        whole = {step: whole}
    for change in reversed(CHANGES):
        change.undo(whole)
    for _ in steps:
        (whole,) = whole.values()
    return whole


def _matches(content: Any, path: str, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each key that a path leads to: its own path, the section that it is in, and the key."""
    step, _, rest = path.partition(".")
    keyed = dict(enumerate(content)) if isinstance(content, list) else content
    if step == "**":
        yield from _matches(content, rest, place)
    for key, value in list(keyed.items()) if isinstance(keyed, dict) else ():
        here = f"{place}.{key}".lstrip(".")
        if step == "**":
            yield from _matches(value, path, here)
        elif step in ("*", key):
            yield from _matches(value, rest, here) if rest else [(here, content, key)]


def _of_kind(dump: dict[str, Any], path: str, kind: str | None) -> list[tuple[Any, Any]]:
    """Each section of a kind, by what it is in and its key there; none for no kind."""
    each = [(section, key) for _, section, key in _matches(dump, path) if kind]
    return [(s, key) for s, key in each if isinstance(s[key], dict) and s[key].get("kind") == kind]


def _rename(dump: dict[str, Any], path: str, new: str) -> None:
    """Rename a key where it stands: the order of sections can mean something."""
    for _, section, old in list(_matches(dump, path)):
        entries = [(new if key == old else key, value) for key, value in section.items()]
        section.clear()
        section.update(entries)
