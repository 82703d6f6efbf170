"""Data of the user's own: what happens after an edit, and `sage-rlvr eval` with own models."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, copy_project, snakemake_in

from sage.exhibits import load_study
from sage.tools import command, eval

ENTRY = """
own:
  mirror: [{path: own.jsonl}]
  fields: {problem: question, answer: result}
"""
PROBLEMS = "  own: {source: benchmark, title: Own, benchmark: own}\n"


@pytest.mark.e2e
@pytest.mark.timeout(600)
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


def test_the_study_of_eval_loads_and_is_not_replaced_by_another(
    own_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs: list[list[str]] = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(command, "_quietly", lambda own: runs.append(own) or 0)
    monkeypatch.setattr(command, "release_stale_lock", lambda folder: False)
    columns = ["--problem", "q", "--answer", "a", "--name", "mine"]
    words = [str(own_folder / "model"), "--data", str(own_folder / "doubles.csv"), *columns]
    asked = [*words, "--samples", "9", f"results={tmp_path}", "--cores", "1", "seeds=[1]"]
    assert command.main(["eval", *asked]) == 0
    file = tmp_path / "mine/study.yaml"
    assert f"study={file}" in runs[0]
    assert 'set=["seeds=[1]"]' in runs[0]
    study = load_study(str(file), ROOT / "config")
    assert (study.study.evaluation.samples, study.study.evaluation.primary_k) == (9, 4)
    assert study.study.evaluation.sampling.max_tokens == 128  # half of the model's room
    assert command.main(["eval", *words, "--samples", "4", f"results={tmp_path}"]) == 0
    (tmp_path / "mine/registered.json").touch()  # as after a run
    (tmp_path / "other.csv").write_text("q,a\n1+1,2\n")
    words[2] = str(tmp_path / "other.csv")
    assert command.main(["eval", *words, f"results={tmp_path}"]) == 1
    assert "has results of other models or problems" in capsys.readouterr().err
    assert yaml.safe_load(file.read_text())["evaluation"]["samples"] == 4


def test_eval_needs_no_setting_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert eval.main(["none", "--data", "d.csv"]) == 1
    assert "model none: is no folder" in capsys.readouterr().err


def test_models_are_called_by_as_much_of_their_paths_as_tells_them_apart(tmp_path: Path) -> None:
    folders = [tmp_path / one for one in ("a/base", "b/base", "after step 3")]
    for folder in folders:
        folder.mkdir(parents=True)
    models = [*map(str, folders), "Qwen/Qwen3-8B"]
    assert [*eval.named(models)] == ["a-base", "b-base", "after-step-3", "Qwen3-8B"]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_own_models_take_few_jobs_to_a_page(own_folder: Path, tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "sage")
    shutil.copytree(own_folder / "model", tmp_path / "other")

    def run(*words: str) -> str:
        data = ["--data", str(own_folder / "doubles.csv"), "--problem", "q", "--answer", "a"]
        asked = [sys.executable, "-m", "sage.tools.command", "eval", *words, *data]
        more = ["--samples", "4", "--tokens", "8", "--name", "own"]
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([*asked, *more], cwd=folder, **told)
        assert done.returncode == 0, done.stdout
        return done.stdout

    one = run(str(own_folder / "model"), "-n")
    assert int(re.search(r"(\d+) jobs", one)[1]) <= 6
    told = run(str(own_folder / "model"), str(tmp_path / "other"), "--cores", "2")
    results = folder / "results/own"
    assert f"Report: {results.relative_to(folder)}/report/index.html" in told
    assert "other - model: pass@1" in told
    assert (results / "compared.html").is_file()
    page = (results / "report/index.html").read_text()
    assert [*re.findall(r'<section id="(\w+)"', page)] == [
        *("warnings", "chance", "grading", "samples"),
        *("behind", "problems", "settings", "runs", "citation"),
    ]
    options = ("--cores", "1", "--config", "study=results/own/study.yaml")
    checked = snakemake_in(folder)("verify", *options)
    assert "all match" in checked.stdout
    assert "no record" not in checked.stdout
