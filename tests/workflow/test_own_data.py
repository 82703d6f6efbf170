"""A data file of the user's own: what happens after it has been edited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import copy_project, snakemake_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ENTRY = """
own:
  mirror: [{path: own.jsonl}]
  fields: {problem: question, answer: result}
"""
PROBLEMS = "  own: {source: benchmark, title: Own, benchmark: own}\n"


def test_an_edited_data_file_is_read_again_and_verify_sees_it(tmp_path: Path) -> None:
    folder, mirror = copy_project(tmp_path / "sage"), tmp_path / "data"
    with open(folder / "config/benchmarks.yaml", "a", encoding="utf-8") as file:
        file.write(ENTRY)
    study = folder / "config/studies/smoke.yaml"
    text = study.read_text(encoding="utf-8").replace("problems:\n", "problems:\n" + PROBLEMS, 1)
    study.write_text(text.replace("benchmarks: [", "benchmarks: [own, ", 1), encoding="utf-8")
    rows = [json.dumps({"question": f"1+{n}?", "result": n + 1}) for n in range(12)]
    mirror.mkdir()
    (mirror / "own.jsonl").write_text("\n".join(rows))
    run = snakemake_in(folder, SAGE_MIRROR=str(mirror))
    options = ("--cores", "1", "--config", "study=smoke", f"mirror={mirror}", "--")
    target = "results/smoke/problems/own.jsonl"

    assert (done := run(*options, target)).returncode == 0, done.stdout
    assert len((folder / target).read_text().splitlines()) == 12
    assert "Nothing to be done" in run("-n", *options, target).stdout
    assert "all match" in run(*options, "verify").stdout

    (mirror / "own.jsonl").write_text("\n".join(rows[:8]))
    found = run(*options, "verify")
    assert found.returncode != 0
    assert "job problems/own: data files changed" in found.stdout
    assert (done := run(*options, target)).returncode == 0, done.stdout
    assert len((folder / target).read_text().splitlines()) == 8
    assert "all match" in run(*options, "verify").stdout
