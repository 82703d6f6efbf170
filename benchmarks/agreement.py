"""How often the grader is right on pairs of texts: `python -m benchmarks.agreement [FOLDER]`.

Two sets: the tricky pairs of `tests/grading/grading_pairs.yaml`, settled by hand, and the pairs in
Math-Verify's own tests. FOLDER is the folder `tests` of its source distribution; without one, pip
downloads the distribution of the installed version. Its pairs stand in parametrised tests (gold,
answer, expected) and are read without being run. An answer that is too long for a solution block
gives what it has boxed last; without a box the pair is left out.

Each disagreement with Math-Verify's tests has a verdict of ours in
`benchmarks/agreement_verdicts.yaml`. Prints the figures and every disagreement, and writes
`benchmarks/agreement.json`, without the texts of these tests. The exit status is 0 if each
disagreement has a verdict.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sage.grading import MAX_ANSWER, Grader
from sage.prompting import SOLUTION_CLOSE, SOLUTION_OPEN, last_boxed
from sage.runtime.files import write_text_atomic

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/agreement.json"
VERDICTS = ROOT / "benchmarks/agreement_verdicts.yaml"
TRICKY = ROOT / "tests/grading/grading_pairs.yaml"


class Pair(NamedTuple):
    """Two texts and whether they are said to be equal; `place` is the test or group they are of."""

    place: str
    gold: str
    answer: str
    equal: bool


def tricky_pairs() -> list[Pair]:
    """The pairs of this project's own list."""
    table = yaml.safe_load(TRICKY.read_text(encoding="utf-8"))
    return [
        Pair(name, gold, answer, verdict == "equal")
        for name, group in table.items()
        if name != "disagreements"
        for verdict, pairs in group.items()
        for gold, answer in pairs
    ]


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


def judged(grader: Grader, pairs: Sequence[Pair]) -> list[str]:
    """The grader's status of each pair, its answer in a solution block."""
    return [
        verdict.status
        for verdict in grader.grade_many(
            [(f"{SOLUTION_OPEN}{pair.answer}{SOLUTION_CLOSE}", pair.gold, "math") for pair in pairs]
        )
    ]


def on_tricky_pairs(grader: Grader) -> dict[str, Any]:
    """Errors on the pairs settled by hand, by kind, with their rate."""
    pairs = tricky_pairs()
    wrong = [
        (pair, status)
        for pair, status in zip(pairs, judged(grader, pairs), strict=True)
        if (status == "correct") != pair.equal
    ]
    return {
        "pairs": len(pairs),
        "equal": sum(pair.equal for pair in pairs),
        "false_negatives": sum(pair.equal for pair, _ in wrong),
        "false_positives": sum(not pair.equal for pair, _ in wrong),
        "error_rate": len(wrong) / len(pairs),
        "errors": [[pair.gold, pair.answer, status] for pair, status in wrong],
    }


def on_math_verify(grader: Grader, folder: Path, verdicts: dict[str, Any]) -> dict[str, Any]:
    """Agreement with Math-Verify's tests, and every disagreement with the verdict on it."""
    pairs = list(pairs_of(folder))
    short = [
        (pair, pair._replace(gold=last_boxed(gold) or gold, answer=answer))
        for pair in pairs
        if (gold := block_of(pair.gold)) and (answer := block_of(pair.answer))
    ]
    statuses = judged(grader, [asked for _, asked in short])
    differ = [
        (pair, status)
        for (pair, _), status in zip(short, statuses, strict=True)
        if (status == "correct") != pair.equal
    ]
    disagreements = []
    for pair, status in differ:
        verdict = verdicts.get(pair.place, {"right": "not judged", "why": ""})
        theirs = "equal" if pair.equal else "unequal"
        disagreements.append({"place": pair.place, "theirs": theirs, "ours": status, **verdict})
        print(f"{pair.place}: theirs {theirs}, ours {status}; right: {verdict['right']}")
        print(f"  {pair.gold[-100:]!r}\n  {pair.answer[-100:]!r}\n  {verdict['why']}")
    return {
        "version": version("math-verify"),
        "pairs": len(pairs),
        "left_out": len(pairs) - len(short),
        "agree": len(short) - len(differ),
        "accepted_by_their_test_alone": sum(pair.equal for pair, _ in differ),
        "accepted_by_ours_alone": sum(not pair.equal for pair, _ in differ),
        "agreement": 1 - len(differ) / len(short),
        "by_our_verdicts": dict(Counter(str(row["right"]) for row in disagreements)),
        "error_rate": sum(row["right"] == "theirs" for row in disagreements) / len(short),
        "disagreements": disagreements,
    }


def download(folder: Path) -> Path:
    """The tests of the installed version of Math-Verify, from the package index into `folder`."""
    named = f"math-verify=={version('math-verify')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    subprocess.run([*command, "--dest", str(folder), named], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (tests,) = folder.glob("*/tests")
    return tests


def main(folder: Path | None) -> int:
    """Print and write both; 0 if each disagreement has a verdict."""
    verdicts = yaml.safe_load(VERDICTS.read_text(encoding="utf-8"))
    grader = Grader()
    with tempfile.TemporaryDirectory() as scratch:
        content = {
            "tricky_pairs": on_tricky_pairs(grader),
            "math_verify": on_math_verify(grader, folder or download(Path(scratch)), verdicts),
        }
    tricky, theirs = content["tricky_pairs"], content["math_verify"]
    print(
        f"tricky pairs: {tricky['pairs']}, {tricky['false_negatives']} false negatives, "
        f"{tricky['false_positives']} false positives, error rate {tricky['error_rate']:.2%}"
    )
    print(
        f"Math-Verify {theirs['version']}: {theirs['pairs']} pairs, {theirs['left_out']} left out, "
        f"agreement {theirs['agreement']:.1%}; who is right where they differ: "
        f"{theirs['by_our_verdicts']}; error rate of ours {theirs['error_rate']:.2%}"
    )
    write_text_atomic(RESULTS, json.dumps(content, indent=2) + "\n")
    return int(any(row["right"] == "not judged" for row in theirs["disagreements"]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
