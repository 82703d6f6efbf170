"""The one record every problem set is made of, and the file it is kept in.

A problem set is a JSON Lines file, one `Problem` a line. Benchmarks and training
sets share the format, so any set can serve as either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from sage.runtime.faults import Damaged, Fault
from sage.runtime.files import text_sum, write_text_atomic

KINDS = ("math", "number", "knights", "route")
"""How answers are compared, by the tasks of this project; a user's is named `module:Class`."""

Split = Literal["train", "test"]

_OPTIONAL = ("hint", "cluster")


class DataError(Fault, RuntimeError):
    """A data set cannot be read, or is not what its entry says; the message names the remedy.

    `key` is the setting at fault, where one is.
    """

    def __init__(self, message: str, key: str = "") -> None:
        self.key = key
        super().__init__(message)


@dataclass(frozen=True)
class Problem:
    """A problem with a verifiable answer.

    `answer` is the gold answer as text: a mathematical expression for kind `math`, a number that
    has to be worked out for kind `number`, an assignment such as ``Ann knight, Bob knave`` for kind
    `knights`, JSON that holds the map for kind `route`, whatever it likes for a user's task.
    `revision` pins where the problem came from: a hub commit, or the generator's seed. `hint` is
    guidance that no prompt holds but that of a second try; `cluster` names what was drawn and has
    several problems, such as a template, a text or a contest. Both may be empty, and are then left
    out of files.
    """

    problem_id: str
    problem: str
    answer: str
    kind: str
    level: str
    source: str
    revision: str
    hint: str = ""
    cluster: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not isinstance(value := getattr(self, field.name), str):
                raise ValueError(f"problem {self.problem_id!r}: {field.name} {value!r} is not text")
        if self.kind not in KINDS and ":" not in self.kind:
            raise ValueError(
                f"problem {self.problem_id!r}: kind {self.kind!r}, not one of {KINDS}, nor "
                "module:Class"
            )
        for name in ("problem_id", "problem", "answer"):
            if not getattr(self, name).strip():
                raise ValueError(f"problem {self.problem_id!r}: empty {name}")


def split_of(text: str) -> Split:
    """The half a generated problem belongs to, by its hash: the halves never share a text."""
    return "test" if int(text_sum(text)[:2], 16) % 2 else "train"


@dataclass(frozen=True)
class Draft:
    """A problem as a generator draws it.

    Its split follows from `key`, by default the text. Of problems with one key the first counts.
    """

    problem: str
    answer: str
    level: str
    hint: str = ""
    key: str = ""


def draw_different(
    name: str,
    draw: Callable[[int], Draft | None],
    count: int,
    split: Split,
    digits: int = 4,
    **more: Any,
) -> list[Problem]:
    """`count` different problems of one split, called `name` and a number of so many `digits`.

    `draw` is handed how many there are so far, and may return None; `more` are fields of Problem
    that all share. Raises ValueError if 200 draws a problem, or 20,000, do not hold so many.
    """
    draws = max(200 * count, 20_000)
    problems: list[Problem] = []
    seen: set[str] = set()
    for _ in range(draws):
        if (draft := draw(len(problems))) is None:
            continue
        key = draft.key or draft.problem
        if key in seen or split_of(key) != split:
            continue
        seen.add(key)
        texts = {field: getattr(draft, field) for field in ("problem", "answer", "level", "hint")}
        problem_id = f"{name}-{len(problems):0{digits}d}"
        problems.append(Problem(problem_id=problem_id, **texts, **more))
        if len(problems) == count:
            return problems
    raise ValueError(
        f"problem set {name!r}: only {len(problems)} of {count} different problems in {draws} "
        f"draws of the split {split!r}; ask for fewer, or widen what is drawn from"
    )


def write_problems(problems: Iterable[Problem], path: Path) -> None:
    """Write a problem set; raises ValueError if two problems share an id, Fault if it is empty."""
    rows = list(problems)
    if not rows:
        raise Fault(f"{path}: no problem is left, for all occur in benchmarks; take other problems")
    seen: set[str] = set()
    for row in rows:
        if row.problem_id in seen:
            raise ValueError(f"{path}: problem_id {row.problem_id!r} occurs twice")
        seen.add(row.problem_id)
    lines = [json.dumps(_written(row), ensure_ascii=False) + "\n" for row in rows]
    write_text_atomic(path, "".join(lines))


def _written(problem: Problem) -> dict[str, str]:
    return {key: text for key, text in asdict(problem).items() if text or key not in _OPTIONAL}


def read_problems(path: Path) -> list[Problem]:
    """Read a problem set; a malformed line, or none at all, is an error that names the file."""
    names = {field.name for field in fields(Problem)} - {*_OPTIONAL}
    problems = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line.decode("utf-8"))
                given = {name: row[name] for name in names}
                given |= {name: row[name] for name in _OPTIONAL if name in row}
                problems.append(Problem(**given))
            except KeyError as error:
                raise Damaged(path, f"no {error.args[0]}", number) from error
            except (TypeError, ValueError, RecursionError) as error:
                raise Damaged(path, f"not a problem ({error})", number) from error
    if not problems:
        raise Damaged(path, "has no problems")
    return problems


def read_problem_sets(paths: Iterable[Path | str]) -> dict[str, list[Problem]]:
    """The problem sets in `paths` under their names: those of the files."""
    return {Path(path).stem: read_problems(Path(path)) for path in paths}
