"""The grader on the pairs of Math-Verify's own tests, and who is right where they differ.

These pairs stand in parametrised tests (gold, answer, expected) of its source distribution, and are
read without being run. SAGE_MATH_VERIFY names the folder of its tests; without it pip downloads the
distribution of the installed version. `math_verify.json` has the figures of docs/grading.md.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from verdicts import statuses

from sage.grading import MAX_ANSWER
from sage.prompting import last_boxed
from sage.tasks import Grader

HERE = Path(__file__).parent
FIGURES = json.loads((HERE / "math_verify.json").read_text(encoding="utf-8"))
VERDICTS = yaml.safe_load((HERE / "math_verify_verdicts.yaml").read_text(encoding="utf-8"))
TRICKY = yaml.safe_load((HERE / "grading_pairs.yaml").read_text(encoding="utf-8"))


class Pair(NamedTuple):
    """Two texts, and whether their test, at `place`, says that they are equal."""

    place: str
    gold: str
    answer: str
    equal: bool


def pairs_of(folder: Path) -> Iterator[Pair]:
    for file in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for case in cases_of(node):
                try:
                    gold, answer, equal = (ast.literal_eval(part) for part in case.elts[:3])
                except (ValueError, TypeError):
                    continue
                if isinstance(gold, str) and isinstance(answer, str) and equal in (0, 1):
                    yield Pair(f"{file.stem}:{case.lineno}", gold, answer, bool(equal))


def cases_of(node: ast.AST) -> list[ast.Tuple]:
    """The cases of a `parametrize` over a gold, an answer and what is expected."""
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("parametrize"):
        return []
    names, cases = node.args[:2]
    if not isinstance(names, ast.Constant) or not isinstance(cases, ast.List):
        return []
    named = [name.strip() for name in str(names.value).split(",")]
    asked = named[:2] == ["gold", "pred"] and named[2] in ("expected", "result")
    return [case for case in cases.elts if asked and isinstance(case, ast.Tuple)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Math-Verify's tests."""
    if named := os.environ.get("SAGE_MATH_VERIFY"):
        return Path(named)
    into, package = tmp_path_factory.mktemp("source"), f"math-verify=={version('math-verify')}"
    asked = ["download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest", str(into), package]
    done = subprocess.run([sys.executable, "-m", "pip", *asked], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr[-200:]}")
    with tarfile.open(next(into.glob("*.tar.gz"))) as packed:
        packed.extractall(into, filter="data")
    return next(into.glob("*/tests"))


@pytest.mark.slow
def test_the_grader_differs_from_math_verifys_tests_where_it_was_judged(folder: Path) -> None:
    """A text too long for a solution block gives what it boxes last; without a box it is left
    out."""
    pairs, short = [*pairs_of(folder)], list[tuple[Pair, tuple[str, str]]]()
    for pair in pairs:
        gold, answer = (
            text if len(text) <= MAX_ANSWER else last_boxed(text)
            for text in (pair.gold, pair.answer)
        )
        if gold and answer:
            short.append((pair, (last_boxed(gold) or gold, answer)))
    said = statuses(Grader(), [asked for _, asked in short])
    differ = {
        pair.place: pair
        for (pair, _), status in zip(short, said, strict=True)
        if (status == "correct") != pair.equal
    }
    assert differ.keys() == VERDICTS.keys()
    kept, errors = FIGURES["math_verify"], [p for p in differ if VERDICTS[p]["right"] == "theirs"]
    assert version("math-verify") == kept["version"]
    agree = len(short) - len(differ)
    assert [len(pairs), len(short), agree] == [kept["pairs"], kept["graded"], kept["agree"]]
    assert sum(differ[place].equal for place in errors) == kept["false_negatives"]


def test_the_figures_follow_from_the_verdicts() -> None:
    kept, right = FIGURES["math_verify"], Counter(one["right"] for one in VERDICTS.values())
    assert right == {name: kept[name] for name in ("ours", "theirs", "convention", "neither")}
    assert kept["graded"] - kept["agree"] == len(VERDICTS)
    assert kept["false_negatives"] + kept["false_positives"] == right["theirs"]
    assert kept["error_rate"] == pytest.approx(right["theirs"] / kept["graded"])
    assert kept["agreement"] == pytest.approx(kept["agree"] / kept["graded"])
    tricky = FIGURES["tricky"]
    groups = [group for name, group in TRICKY.items() if name != "disagreements"]
    assert tricky["pairs"] == sum(len(pairs) for group in groups for pairs in group.values())
    assert tricky["pairs"] - tricky["agree"] == len(TRICKY["disagreements"])
    assert tricky["error_rate"] == len(TRICKY["disagreements"]) / tricky["pairs"]


def test_pairs_are_read_from_tests_without_running_them(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import nowhere\n"
        "@pytest.mark.parametrize('gold, pred, expected', [('1', '2', 0), ('1/2', '0.5', 1)])\n"
        "def test_it(gold, pred, expected): raise SystemExit\n"
        "@pytest.mark.parametrize('text, other', [('1', '2')])\n"
        "def test_other(text, other): pass\n"
    )
    assert [tuple(pair) for pair in pairs_of(tmp_path)] == [
        ("test_some:2", "1", "2", False),
        ("test_some:2", "1/2", "0.5", True),
    ]
