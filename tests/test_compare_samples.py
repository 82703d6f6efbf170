"""Methods are compared from anyone's samples: `python -m sage.evaluation.compare A B`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from sage.evaluation.compare import COLUMNS, compare, main, read_counts

NAMES = {what: what for what in COLUMNS}


def samples(right: list[int], seeds: tuple[int, ...] = (1, 2), n: int = 4) -> pd.DataFrame:
    """`right` of `n` samples of each problem are correct, in each of `seeds`."""
    rows = [
        (f"p{problem}", seed, sample < correct)
        for seed in seeds
        for problem, correct in enumerate(right)
        for sample in range(n)
    ]
    return pd.DataFrame(rows, columns=["problem", "seed", "correct"])


def write(folder: Path) -> tuple[Path, Path]:
    """Ten problems: one of four samples right, and two of four."""
    one, two = folder / "one.csv", folder / "two.jsonl"
    samples([1] * 10).to_csv(one, index=False)
    samples([2] * 5 + [1] * 5).to_json(two, orient="records", lines=True)
    return one, two


def test_csv_and_json_lines_are_compared_by_problem_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = write(tmp_path)
    counts = {path.stem: read_counts(path.stem, path, NAMES) for path in (one, two)}
    curves, differences = compare(counts, draws=500)
    at_one = curves[curves["k"] == 1].set_index("algorithm")["value"]
    assert at_one.to_dict() == pytest.approx({"one": 0.25, "two": 0.375})
    row = differences[differences["k"] == 1].iloc[0]
    assert (row["algorithm"], row["other"], row["n_seeds"]) == ("two", "one", 2)
    assert row["value"] == pytest.approx(0.125)
    assert row["low"] < 0.125 < row["high"] < row["value"] + row["detectable"]
    assert main([f"A={one}", f"B={two}"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "All problems: 10 problems, 4 samples of each\n  A (2 runs): pass@1 25"
    )
    assert "  B - A: pass@1 +12.5 points (" in printed
    assert "  B - A: pass@2 " in printed


def test_files_of_this_project_are_read_as_they_are(tmp_path: Path) -> None:
    """The seed is that of the path; a folder holds all runs."""
    for seed in (3, 7):
        path = tmp_path / f"tiny/grpo/seed{seed}/harder.parquet"
        path.parent.mkdir(parents=True)
        status = samples([1, 4], (seed,))["correct"].map({True: "correct", False: "unparsed"})
        pd.DataFrame({"problem_id": ["p"] * 4 + ["q"] * 4, "status": status}).to_parquet(path)
    counts = read_counts("grpo", tmp_path, NAMES)
    assert counts["train_seed"].tolist() == [3, 3, 7, 7]
    assert set(counts["benchmark"]) == {"harder"}
    assert counts["correct"].tolist() == [1, 4, 1, 4]


def test_files_of_a_folder_are_runs_and_columns_can_be_named(tmp_path: Path) -> None:
    for name in ("first.csv", "second.csv"):
        frame = samples([1, 2], (1,)).drop(columns="seed")
        frame = frame.rename(columns={"problem": "doc_id", "correct": "exact_match"})
        frame.assign(exact_match=frame["exact_match"].astype(float)).to_csv(tmp_path / name)
    named = NAMES | {"problem": "doc_id", "correct": "exact_match"}
    assert read_counts("a", tmp_path, named)["train_seed"].tolist() == [1, 1, 2, 2]


def test_logs_of_inspect_are_read_by_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "sums.eval"
    log.touch()
    named = NAMES | {"problem": "id", "correct": "score_match"}
    monkeypatch.setitem(sys.modules, "inspect_ai.analysis", None)
    with pytest.raises(ValueError, match=r"sums\.eval: .* install inspect-ai"):
        read_counts("a", log, named)
    frame = pd.DataFrame({"id": ["p", "p", "q", "q"], "score_match": ["C", "I", "C", "C"]})
    read = SimpleNamespace(samples_df=lambda path: frame if path == str(log) else None)
    monkeypatch.setitem(sys.modules, "inspect_ai.analysis", read)
    monkeypatch.setitem(sys.modules, "inspect_ai", SimpleNamespace(analysis=read))
    assert read_counts("a", log, named)["correct"].tolist() == [1, 2]


def test_a_method_called_base_may_have_several_runs(tmp_path: Path) -> None:
    one, two = write(tmp_path)
    counts = {name: read_counts(name, path, NAMES) for name, path in (("base", one), ("b", two))}
    _, differences = compare(counts, draws=500)
    assert differences["n_seeds"].tolist() == [2] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.csv"], "name two or more methods"),
        (["one.csv", "absent.csv"], "absent.csv: no samples there"),
        (["one.csv", "notes.txt"], "notes.txt: not a file .csv, .jsonl"),
        (["one.csv", "two.jsonl", "--problem", "doc"], "no column 'doc'; it has problem, seed, "),
        (["one.csv", "maybe.csv"], "maybe.csv: correct says 'perhaps'; known are true, 1"),
        (["one.csv", "two.jsonl", "--k", "3"], "--k 3: with 4 samples of a problem it can be 1, 2"),
        (["one.csv", "named.csv"], "named.csv: seed must be a whole number in every row"),
        (["one.csv", "fewer.csv"], "two and one were evaluated on different problems"),
        (["one.csv", "other.csv"], "no training seed in common"),
    ],
)
def test_what_cannot_be_compared_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    write(tmp_path)
    (tmp_path / "notes.txt").touch()
    samples([1]).assign(correct="perhaps").to_csv(tmp_path / "maybe.csv")
    samples([1]).assign(seed="first").to_csv(tmp_path / "named.csv")
    samples([1] * 9).to_csv(tmp_path / "fewer.csv")
    samples([1] * 10, (3,)).to_csv(tmp_path / "other.csv")
    files = [str(tmp_path / one) if "." in one else one for one in arguments]
    assert main(files) == 1
    expected = message.replace(
        "two and one", f"{tmp_path / 'fewer.csv'} and {tmp_path / 'one.csv'}"
    )
    assert expected in capsys.readouterr().err
