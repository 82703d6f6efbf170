"""The numbers of a comparison for other programs: JSON, CSV, the gate, and cells of CSV."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sample_rows import one, rows

from sage.evaluation import loggers
from sage.tools import command
from sage.tools.compared_rows import COUNTS, SHARES, VERSION, escaped

KEYS = {"version", "kind", "benchmark", "method", "other", "k", *SHARES, *COUNTS, "runs"}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Of 40 problems the first method solves 3 of 4 samples, the second half or 1 of them."""
    for name, right in (("a", [3] * 40), ("b", [2, 1] * 20)):
        rows(right).to_csv(tmp_path / f"{name}.csv", index=False)
    return [str(tmp_path / f"{name}.csv") for name in "ab"]


def test_json_and_csv_hold_the_same_rows_with_versioned_keys(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["compare", *files, "--json", "-", "--csv", str(tmp_path / "t.csv")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], {*said["methods"]}) == (VERSION, {"a", "b"})
    assert {*said["rows"][0]} == KEYS
    (difference,) = (r for r in said["rows"] if r["kind"] == "difference" and r["k"] == 1)
    assert (difference["method"], difference["other"]) == ("b", "a")
    assert difference["value"] == pytest.approx(-0.375)
    assert difference["low"] < difference["value"] < difference["high"] < 0
    with open(tmp_path / "t.csv", newline="") as file:
        written = list(csv.DictReader(file))
    for row, other in zip(said["rows"], written, strict=True):
        assert other == {key: "" if value is None else str(value) for key, value in row.items()}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 0),
        (["--fail-below", "0"], 3),
        (["--fail-below", "-20"], 3),
        (["--fail-below=-90"], 0),
        (["--fail-below", "0", "--json", "-"], 3),
        (["--k", "3"], 1),
    ],
)
def test_the_exit_status_is_a_gate(files: list[str], options: list[str], status: int) -> None:
    assert command.main(["compare", *files, *options]) == status
    if "--fail-below" in options:  # the better one is no loss
        assert command.main(["compare", *files[::-1], *options]) == 0


@pytest.mark.parametrize("name", ["grade", "compare"])
def test_help_names_every_option_and_status(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([name, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Exit status: 0" in said
    assert {"--escape", "--problem"} <= {*said.replace("[", " ").split()}


CELLS: list[tuple[Any, Any]] = [
    ("=1+1", "'=1+1"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("+x", "'+x"),
    ("-2+3", "'-2+3"),
    ("\t=1", "'\t=1"),
    ("-5", "-5"),
    ("+3.5e2", "+3.5e2"),
    ("x=1", "x=1"),
    (-5, -5),
    (None, None),
]


def test_cells_that_a_spreadsheet_runs_are_escaped_and_numbers_are_not() -> None:
    table = pd.DataFrame({"text": pd.Series([c for c, _ in CELLS], dtype=object), "n": -1.5})
    safe = escaped(table)
    assert [*safe["text"]] == [s for _, s in CELLS]
    assert safe["n"].tolist() == table["n"].tolist()


def test_names_that_turn_text_are_shown_escaped(tmp_path: Path) -> None:
    table = rows([1, 2]).assign(benchmark="a\u202eb\x1b[2J", model="\u2066m")
    table.to_csv(tmp_path / "a.csv", index=False)
    assert {*one(tmp_path / "a.csv").counts["benchmark"]} == {r"a\u202eb\x1b[2J"}


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_packed_log_that_unpacks_past_the_limit_is_refused(
    packing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "MOST_BYTES", 1 << 20)
    file = tmp_path / "a.eval"
    with zipfile.ZipFile(file, "w", packing) as packed:
        packed.writestr("header.json", "{}")
        for n in range(3):
            packed.writestr(f"samples/{n}.json", " " * 500_000)
    assert file.stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"a\.eval: unpacks to"):
        one(file)


@pytest.mark.parametrize("module", ["grade", "compare_samples"])
def test_it_starts_without_what_only_training_needs(module: str) -> None:
    blocked = ("torch", "snakemake", "transformers", "trl", "datasets", "matplotlib")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import sage.tools.{module}"
    subprocess.run([sys.executable, "-c", code], check=True)
