"""Problems of a task of reasoning-gym, and what its own scorer needs to know of each.

A scorer wants the generated entry with its metadata, which is no text. So a problem's gold answer
says how to generate it again: task, settings, seed and place, with a checksum. Some tasks iterate
over sets of strings, so problems are drawn in a process whose hashes are fixed, as those of the
grading processes are (`sage.grading.reasoning_gym_worker`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

from sage.problems.record import Problem, Split, split_of
from sage.runtime.files import text_sum

PACKAGE = "reasoning_gym"

_DRAWS = 20
"""Entries looked at for each problem that is wanted."""


@dataclass(frozen=True)
class Gold:
    """How an entry is generated again; `answer` is one correct answer, if the task gives any.

    An answer counts as correct from the score `correct_from` on; scores go from 0 to 1.
    """

    answer: str
    task: str
    settings: str
    seed: int
    size: int
    index: int
    checksum: str
    correct_from: float

    def text(self) -> str:
        """The gold answer as a problem's file holds it: JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Gold:
        """The inverse of `text`; raises ValueError for anything else."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"not a gold answer of reasoning-gym: {text[:80]!r}") from error

    def entry(self) -> dict[str, Any]:
        """The entry, generated again; raises ValueError if it is another one now."""
        entry: dict[str, Any] = dataset_of(self.task, self.settings, self.seed, self.size)[
            self.index
        ]
        if checksum_of(entry) != self.checksum:
            raise ValueError(
                f"reasoning-gym's {self.task} generates another entry {self.index} than when the "
                "problem set was made; make the set again with the installed version"
            )
        return entry


def check_installed() -> None:
    """Raise ModuleNotFoundError, with what to do, unless reasoning-gym is installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise ModuleNotFoundError(
            "a problem set has the source reasoning_gym, but the package is not installed; run "
            "`python3 workflow/install.py .venv --extra reasoning-gym` (it needs a C compiler)"
        )


@lru_cache(maxsize=16)
def dataset_of(task: str, settings: str, seed: int, size: int) -> Any:
    """reasoning-gym's data set; `settings` are JSON. Raises ValueError for settings it refuses."""
    import reasoning_gym

    try:
        return reasoning_gym.create_dataset(task, seed=seed, size=size, **json.loads(settings))
    except (TypeError, ValueError, AssertionError) as error:
        from reasoning_gym.factory import DATASETS

        known = [name for name in DATASETS[task][1].__dataclass_fields__ if name not in _OURS]
        raise ValueError(
            f"reasoning-gym's {task} refuses the settings {settings}: {error}; it has "
            f"{', '.join(known)}"
        ) from error


_OURS = ("seed", "size")


def checksum_of(entry: dict[str, Any]) -> str:
    """What tells entries of a task apart, in 16 hexadecimal digits."""
    return text_sum(f"{entry['question']}\n{entry['answer']}")[:16]


def reasoning_gym_problems(
    name: str,
    task: str,
    settings: dict[str, Any],
    count: int,
    seed: int,
    split: Split,
    correct_from: float = 1.0,
) -> list[Problem]:
    """`count` different problems of one split, drawn in a process of its own.

    Raises ModuleNotFoundError without reasoning-gym, and ValueError for settings that it refuses
    and if they do not admit that many problems.
    """
    check_installed()
    order = {
        "task": task,
        "settings": json.dumps(settings, sort_keys=True),
        "count": count,
        "seed": seed,
        "split": split,
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(order),
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise RuntimeError(f"problem set {name!r}: {done.stderr[-2000:]}")
    reply = json.loads(done.stdout.splitlines()[-1])
    if "fault" in reply:
        raise ValueError(f"problem set {name!r}: {reply['fault']}")
    version = metadata.version("reasoning-gym")
    return [
        Problem(
            problem_id=f"{name}-{number:04d}",
            problem=question,
            answer=Gold(**gold, correct_from=correct_from).text(),
            kind="reasoning_gym",
            level=task,
            source=f"reasoning-gym {version}/{task}",
            revision=f"seed {seed}",
        )
        for number, (question, gold) in enumerate(reply["problems"])
    ]


def draw(
    task: str, settings: str, count: int, seed: int, split: Split
) -> list[tuple[str, dict[str, Any]]]:
    """Questions with what `Gold` needs; raises ValueError as `reasoning_gym_problems` does.

    Every entry is generated once more, in another order: a scorer must find it as it was.
    """
    size = _DRAWS * count
    dataset = dataset_of(task, settings, seed, size)
    drawn: dict[str, dict[str, Any]] = {}
    for index in range(size):
        entry = dataset[index]
        question = str(entry["question"]).strip()
        if not question or question in drawn or split_of(question) != split:
            continue
        drawn[question] = {
            "answer": str(entry["answer"]),
            "task": task,
            "settings": settings,
            "seed": seed,
            "size": size,
            "index": index,
            "checksum": checksum_of(entry),
        }
        if len(drawn) == count:
            break
    else:
        raise ValueError(
            f"only {len(drawn)} of {count} different problems of reasoning-gym's {task} in {size} "
            f"draws (split {split}); ask for fewer or widen its settings"
        )
    dataset_of.cache_clear()
    for gold in reversed(drawn.values()):
        Gold(**gold, correct_from=1.0).entry()
    return list(drawn.items())


def main() -> None:
    """Read what to draw from standard input; the last line of standard output is the reply."""
    try:
        reply: dict[str, Any] = {"problems": draw(**json.load(sys.stdin))}
    except ValueError as error:
        reply = {"fault": str(error)}
    print("\n" + json.dumps(reply))


if __name__ == "__main__":
    main()
