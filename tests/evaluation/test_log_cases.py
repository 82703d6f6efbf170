"""What logs of other programs hold that must not be counted as it stands: a case each.

A case is files (by name, rows as JSON Lines, or the text of a file), and what comes of them: an
error that names the words given, or correct counts by training run and what the notes name. To add
a program's log, add a case.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sage.evaluation.curves import NO_SEED
from sage.evaluation.foreign_samples import read_methods
from sage.tools.compare_samples import compare, main

LOGS = Path(__file__).parents[1] / "builders/logs"

Rows = list[dict[str, Any]]


def verl(step: int, scores: Sequence[float], **more: Any) -> Rows:
    """A dump of verl: a row for each completion, two of each problem."""
    return [
        {"input": f"{i // 2}+1=?", "output": "2", "gts": "2", "score": score, "step": step, **more}
        for i, score in enumerate(scores)
    ]


def with_uid(rows: Rows, seed: int) -> Rows:
    """Ids that verl draws anew in each run."""
    return [
        row | {"uid": str(uuid.UUID(int=seed * 1000 + i // 2 + (1 << 100)))}
        for i, row in enumerate(rows)
    ]


def named(*ids: str, right: int = 1) -> Rows:
    return [{"problem": name, "correct": n < right} for name in ids for n in range(2)]


def lm_eval(hashed: str) -> Rows:
    rows = [json.loads(line) for line in (LOGS / "lm_eval.jsonl").read_text().splitlines()]
    return [row | {"doc_hash": f"{hashed}{row['doc_id']}"} for row in rows]


def inspect(start: int) -> dict[str, Any]:
    log: dict[str, Any] = json.loads((LOGS / "inspect_weak.json").read_text())
    log["samples"] = [s | {"input": f"{start} + {s['id']}"} for s in log["samples"]]
    return log


@dataclass(frozen=True)
class Folder:
    """One method's folder: right samples by run, or `fault`; `told` is what notes name."""

    files: dict[str, Rows]
    right: dict[int, list[int]] | None = None
    told: tuple[str, ...] = ()
    fault: str = ""


FOLDERS = {
    "verl: the last step": Folder(
        {f"{n}.jsonl": verl(n, [1, n > 100, 0, 0]) for n in (100, 200)},
        {NO_SEED: [2, 0]},
        ("100.jsonl", "200.jsonl"),
    ),
    "steps count as numbers": Folder(
        {f"{n}.jsonl": verl(n, [1, n > 90, 0, 0]) for n in (90, 100)}, {NO_SEED: [2, 0]}
    ),
    "checkpoints by their folders": Folder(
        {f"checkpoint-{n}/math.jsonl": named("a", "b", right=n) for n in (1, 2)},
        {NO_SEED: [2, 2]},
        ("checkpoint-1/math.jsonl",),
    ),
    "steps in names": Folder(
        {f"math_global_step_{n}.jsonl": named("a", "b", right=n) for n in (1, 2)},
        {NO_SEED: [2, 2]},
    ),
    "steps of seeds": Folder(
        {
            f"seed{s}/step{n}.jsonl": [row | {"text": f"{s} {n}"} for row in named("a", right=n)]
            for s, n in ((1, 0), (1, 1), (2, 1), (2, 2))
        },
        {1: [1], 2: [2]},
    ),
    "one file of several steps": Folder(
        {"all.jsonl": verl(1, [1, 0]) + verl(2, [1, 1])}, fault="--only step=2"
    ),
    "runs without steps stay runs": Folder(
        {f"{n}.jsonl": named("a", "b", right=n) for n in (1, 2)}, {1: [1, 1], 2: [2, 2]}
    ),
    "plus and minus one": Folder(
        {"a.jsonl": verl(1, [1.0, -1.0, -1.0, -1.0])}, {NO_SEED: [1, 0]}, ("score",)
    ),
    "all wrong": Folder({"a.jsonl": verl(1, [-1, -1])}, {NO_SEED: [0]}, ("score",)),
    "a penalty beside": Folder({"a.jsonl": verl(1, [1.0, -1.3])}, fault="--correct"),
    "a reward beside its verdict": Folder(
        {"a.jsonl": verl(1, [1.0, -1.3], acc=True)}, {NO_SEED: [2]}
    ),
    "a verdict under another name": Folder(
        {"a.jsonl": [row | {"status": 0.5} for row in verl(1, [1, 0], acc=1)]}, fault="acc or score"
    ),
    "ids that are new in every run": Folder(
        {
            f"seed{n}.jsonl": [
                {"uid": r["uid"], "correct": 1} for r in with_uid(verl(1, [1] * 4), n)
            ]
            for n in (1, 2)
        },
        fault="--problem input",
    ),
}


def written(folder: Path, files: dict[str, Rows]) -> Path:
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_is_counted_as_its_program_means_it(case: str, tmp_path: Path) -> None:
    asked, path = FOLDERS[case], written(tmp_path, FOLDERS[case].files)
    if asked.fault:
        with pytest.raises(ValueError, match=asked.fault):
            read_methods([("a", path)])
        return
    (method,) = read_methods([("a", path)]).values()
    by_run = method.counts.groupby("train_seed")["correct"].apply(list).to_dict()
    assert by_run == asked.right
    notes = " ".join(method.notes)
    assert all(name in notes for name in asked.told)
    assert bool(notes) == bool(asked.told) or "left out" in notes


PAIRS: dict[str, tuple[Any, Any, str, dict[str, str]]] = {
    "verl pairs by input": (
        with_uid(verl(1, [1, 0, 0, 0]), 1),
        with_uid(verl(1, [1, 1, 0, 0]), 2),
        "",
        {},
    ),
    "ids with a point": (named("0", "1"), named("0.0", "1.0"), "'0'.*'0.0'", {}),
    "ids with zeros": (named("0", "12"), named("000", "012"), "'0'.*'000'", {}),
    "ids in capitals": (named("a", "b"), named("A", "b"), "'a'.*'A'", {}),
    "other problems": (named("a", "b"), named("a", "c"), "different problems", {}),
    "lm-eval: the same documents": (lm_eval("x"), lm_eval("x"), "", {}),
    "lm-eval: other documents": (lm_eval("x"), lm_eval("y"), "'x0' and 'y0'", {}),
    "lm-eval: by the user's word": (lm_eval("x"), lm_eval("y"), "", {"problem": "doc_id"}),
    "Inspect: the same inputs": (inspect(1), inspect(1), "", {}),
    "Inspect: other inputs": (inspect(1), inspect(2), "problem 'sum-2'", {}),
}


@pytest.mark.parametrize("case", PAIRS)
def test_problems_are_paired_only_where_they_are_the_same(case: str, tmp_path: Path) -> None:
    *contents, fault, columns = PAIRS[case]
    files = []
    for name, content in zip("ab", contents, strict=True):
        is_log = isinstance(content, dict)
        files.append(tmp_path / f"{name}.{'json' if is_log else 'jsonl'}")
        lines = [content] if is_log else content
        files[-1].write_text("\n".join(map(json.dumps, lines)))

    def differences() -> int:
        methods = read_methods(list(zip("ab", files, strict=True)), columns)
        return len(compare(methods, draws=100)[1])

    if fault:
        with pytest.raises(ValueError, match=fault):
            differences()
    else:
        assert differences() > 0


def test_a_copy_beside_itself_is_no_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, {"a.jsonl": named(*"abcdef")})
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert main([str(tmp_path / f"{name}.jsonl") for name in "ab"]) == 0
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "no test" in printed
