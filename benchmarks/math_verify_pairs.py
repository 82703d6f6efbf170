"""How far the grader agrees with Math-Verify's own tests: `python -m benchmarks.math_verify_pairs
FOLDER`, the folder `tests` of its source distribution.

Its pairs stand in parametrised tests (gold, answer, expected) and are read without being run.
An answer that is too long for a solution block gives what it has boxed last; without a box
the pair is left out. Prints every disagreement, to be judged by hand, and the counts.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sage.grading import MAX_ANSWER, Grader
from sage.prompting import SOLUTION_CLOSE, SOLUTION_OPEN, last_boxed


class Pair(NamedTuple):
    """Two texts of a test and whether it wants them to be equal."""

    place: str
    gold: str
    answer: str
    equal: bool


def pairs_of(folder: Path) -> Iterator[Pair]:
    """The pairs of all test files; raises ValueError if there are none."""
    count = 0
    for file in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for case in _cases(node):
                try:
                    gold, answer, equal = (ast.literal_eval(part) for part in case.elts[:3])
                except (ValueError, TypeError):
                    continue
                if isinstance(gold, str) and isinstance(answer, str) and equal in (0, 1):
                    count += 1
                    yield Pair(f"{file.stem}:{case.lineno}", gold, answer, bool(equal))
    if not count:
        raise ValueError(f"{folder}: no test file with (gold, answer, expected) cases")


def _cases(node: ast.AST) -> Iterator[ast.Tuple]:
    """The cases of a `parametrize` over a gold, an answer and what is expected."""
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("parametrize"):
        return
    names, cases = node.args[:2]
    if not isinstance(names, ast.Constant) or not isinstance(cases, ast.List):
        return
    if [name.strip() for name in str(names.value).split(",")][:2] != ["gold", "pred"]:
        return
    if str(names.value).split(",")[2].strip() not in ("expected", "result"):
        return
    yield from (case for case in cases.elts if isinstance(case, ast.Tuple))


def block_of(text: str) -> str | None:
    """What of `text` would stand in a solution block; None if it is too long and boxes nothing."""
    return text if len(text) <= MAX_ANSWER else last_boxed(text)


def main(folder: Path) -> None:
    """Grade the pairs of `folder` and print how far both agree."""
    pairs = list(pairs_of(folder))
    asked = [
        (pair, gold, answer)
        for pair in pairs
        if (gold := block_of(pair.gold)) and (answer := block_of(pair.answer))
    ]
    with Grader() as grader:
        verdicts = grader.grade_many(
            [
                (f"{SOLUTION_OPEN}{answer}{SOLUTION_CLOSE}", last_boxed(gold) or gold, "math")
                for _, gold, answer in asked
            ]
        )
    counts: Counter[str] = Counter()
    for (pair, gold, answer), verdict in zip(asked, verdicts, strict=True):
        if (verdict.status == "correct") == pair.equal:
            counts["agree"] += 1
            continue
        counts["accepted by their test alone" if pair.equal else "accepted by ours alone"] += 1
        print(f"{pair.place}: theirs {pair.equal}, ours {verdict.status}\n  {gold!r}\n  {answer!r}")
    print(f"{len(pairs)} pairs, {len(pairs) - len(asked)} left out; ", end="")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    print(f"agreement {counts['agree'] / len(asked):.1%}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
