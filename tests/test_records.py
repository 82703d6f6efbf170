"""Records of jobs, their verification, and the archive of a study."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from report_frames import a_study
from snakemake.iocontainers import Namedlist

from sage.runtime.faults import Fault
from sage.runtime.manifest import COMMIT, Manifest, git_commit, seeds, settings_sum
from sage.runtime.records import FOLDER, recorded, sum_of
from sage.tools import archive
from sage.tools.archive import write_archive
from sage.tools.verify import render, verify

Job = Callable[..., dict[str, Any]]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a study `small`, in which jobs are recorded."""
    folder = tmp_path / "results/small"
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


def run_job(
    results: Path,
    name: str,
    output: str,
    content: dict[str, str] | str,
    inputs: dict[str, Path] | None = None,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A job that writes `content` into a file, or into a folder of files; its record."""
    path = results / output
    snakemake = SimpleNamespace(
        rule=name,
        threads=1,
        wildcards=Namedlist(fromdict={"seed": "3"}),
        input=Namedlist(fromdict={key: str(one) for key, one in (inputs or {}).items()}),
        output=Namedlist(fromdict={"made": str(path)}),
        log=[str(results / f"logs/{name}.log")],
    )
    with recorded(snakemake, settings or {}):
        files = content if isinstance(content, dict) else {"": content}
        for inside, text in files.items():
            file = path / inside if inside else path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    record: dict[str, Any] = json.loads(
        (results / f"provenance/jobs/{name}.json").read_text(encoding="utf-8")
    )
    return record


@pytest.fixture
def two_jobs(results: Path) -> Path:
    """A policy, and a page made from it."""
    files = {"weights.safetensors": "w", "manifest.json": "{}"}
    run_job(results, "rl", "models/tiny/grpo/seed3", files, settings={"rl": {"steps": 4}})
    policy = {"policy": results / "models/tiny/grpo/seed3"}
    run_job(results, "page", "report/index.html", "<p>page</p>", policy)
    return results


def test_a_record_has_settings_inputs_and_outputs_with_their_sums(results: Path) -> None:
    source = results.parent / "study.yaml"
    source.parent.mkdir(parents=True)
    source.write_text("title: x")
    settings = {"b": 1, "a": {"seed": 7}}
    record = run_job(results, "problems", "problems/easy.jsonl", "{}", {"x": source}, settings)
    assert record["inputs"] == {str(source): sha("title: x")}
    assert record["outputs"] == {f"{results}/problems/easy.jsonl": sha("{}")}
    assert record["settings_sha256"] == sha('{"a":{"seed":7},"b":1}')
    assert record["wildcards"] == {"seed": "3"}
    assert record["started"] <= record["ended"]
    assert record["versions"]["snakemake"]
    assert record["hardware"]["threads"] == 1


def test_a_failed_job_leaves_no_record(results: Path) -> None:
    (results / "problems").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        run_job(results, "problems", "problems", "x")
    assert not (results / "provenance").exists()


def test_source_files_count_as_one_sum(results: Path) -> None:
    code = {"code": ROOT / "sage/fields.py"}
    record = run_job(results, "metrics", "metrics/a.csv", "1", code)
    assert record["inputs"] == {}
    of_file = hashlib.sha256((ROOT / "sage/fields.py").read_bytes()).hexdigest()
    assert record["code_sha256"] == settings_sum({str(ROOT / "sage/fields.py"): of_file})


def test_the_sum_of_a_folder_leaves_out_hidden_files(tmp_path: Path) -> None:
    for name, text in {"a": "1", "b/c": "2", ".snakemake_timestamp": "", "b/.x": ""}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert sum_of(tmp_path) == settings_sum({"a": sha("1"), "b/c": sha("2")})


def test_a_noted_sum_is_used_only_for_the_file_it_was_taken_of(two_jobs: Path) -> None:
    policy = two_jobs / "models/tiny/grpo/seed3"
    noted = two_jobs / "provenance/sums/models/tiny/grpo/seed3.json"
    sums = json.loads(noted.read_text())
    sums["weights.safetensors"]["sha256"] = "noted"
    noted.write_text(json.dumps(sums))
    assert sum_of(policy, two_jobs) != sum_of(policy)  # taken from the note, without reading
    os.utime(policy / "weights.safetensors")
    assert sum_of(policy, two_jobs) == sum_of(policy)


def test_results_as_they_were_made_verify(two_jobs: Path) -> None:
    (two_jobs / "provenance/jobs/.rl.json.7-x.json").write_text('{"half')
    found = verify(two_jobs)
    assert (found.faults, found.files, found.jobs, found.unrecorded) == ([], 3, 2, [])
    assert render(two_jobs, found) == f"{two_jobs}: 3 files of 2 jobs compared: all match"


def test_a_changed_file_and_what_was_made_from_it_are_named(two_jobs: Path) -> None:
    weights = two_jobs / "models/tiny/grpo/seed3/weights.safetensors"
    weights.write_text("v")
    changed, from_it = verify(two_jobs).faults
    assert changed.startswith(f"{weights}: changed since its job ended (sha256 {sha('w')[:12]}… ")
    assert from_it == f"{weights.parent}: changed since job page read it"


def test_missing_added_and_unrecorded_files_are_named(two_jobs: Path) -> None:
    (two_jobs / "report/index.html").unlink()
    extra = two_jobs / "models/tiny/grpo/seed3/extra.bin"
    extra.write_text("x")
    (two_jobs / "report/mine.txt").write_text("x")
    found = verify(two_jobs)
    assert f"{two_jobs}/report/index.html: missing" in found.faults
    assert f"{extra}: not made by the job that made {extra.parent}" in found.faults
    assert found.unrecorded == [f"{two_jobs}/report/mine.txt"]


def test_settings_changed_in_a_record_are_noticed(two_jobs: Path) -> None:
    record = two_jobs / "provenance/jobs/rl.json"
    record.write_text(record.read_text().replace('"steps": 4', '"steps": 5'))
    (fault,) = verify(two_jobs).faults
    assert fault.startswith(f"{record}: its settings were changed")


def test_results_without_records_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no records of jobs"):
        verify(tmp_path)


def test_a_manifest_has_sums_seeds_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "abc+changes")
    settings = {"rl": {"steps": 2}, "evaluation": {"seeds": [0, 1]}}
    content = Manifest(settings, 1, 0.0, inputs={"a": "b"}, seed=5).content(tokens=7)
    assert content["seeds"] == {"run": 5, "evaluation.seeds": [0, 1]}
    assert content["settings_sha256"] == settings_sum(settings)
    assert content["started"] == "1970-01-01T00:00:00+00:00"
    assert content["ended"][:4] >= "2025"
    assert (content["inputs"], content["git_commit"]) == ({"a": "b"}, "abc+changes")
    assert {"versions", "hardware", "tokens"} <= content.keys()
    monkeypatch.delenv(COMMIT)
    assert git_commit() != "abc+changes"
    assert seeds([1]) == {}


# The archive


def crate_of(archive: Path) -> tuple[dict[str, Any], set[str]]:
    with zipfile.ZipFile(archive) as file:
        graph = json.loads(file.read("ro-crate-metadata.json"))["@graph"]
        return {one["@id"]: one for one in graph}, set(file.namelist())


def test_an_archive_describes_every_file_and_the_run(two_jobs: Path, tmp_path: Path) -> None:
    for name in ("logs/rl.log", "scratch/x", "models/tiny/base/model.safetensors"):
        (two_jobs / name).parent.mkdir(parents=True, exist_ok=True)
        (two_jobs / name).write_text("x")
    crate = tmp_path / "small.crate.zip"
    write_archive(a_study(), two_jobs, ROOT, crate)
    entities, names = crate_of(crate)
    files = names - {"ro-crate-metadata.json"}
    assert {one["@id"] for one in entities["./"]["hasPart"]} == files
    assert files <= entities.keys()
    results = {name for name in names if name.startswith("results/")}
    assert results == {
        "results/small/models/tiny/grpo/seed3/weights.safetensors",
        "results/small/models/tiny/grpo/seed3/manifest.json",
        "results/small/report/index.html",
        *(f"results/small/provenance/jobs/{name}.json" for name in ("rl", "page")),
        "results/small/provenance/sums/models/tiny/grpo/seed3.json",
        "results/small/provenance/sums/report/index.html.json",
    }
    assert {"Snakefile", "sage/tools/archive.py", "config/algorithms.yaml", "LICENSE"} <= names
    assert "locks/base.txt" in names  # which `make` reads
    assert {one["@id"] for one in entities["#run"]["result"]} == results
    assert entities["#run"]["startTime"] <= entities["#run"]["endTime"]
    assert "ComputationalWorkflow" in entities["Snakefile"]["@type"]
    assert entities["README.md"]["about"] == {"@id": "./"}
    assert entities["#run"]["object"] == {"@id": "study.yaml"}
    every = {
        one["@id"]
        for entity in entities.values()
        for value in entity.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, dict)
    }
    here = {one for one in every if not one.startswith(("http://", "https://"))}
    assert here <= entities.keys()  # nothing is referred to that is not there


def test_an_archive_of_the_same_files_has_the_same_bytes(two_jobs: Path, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_archive(a_study(), two_jobs, ROOT, tmp_path / name)
        time.sleep(0.01)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "MY_TOKEN_FILE", "db_password", "Client_Secret"]
)
def test_an_archive_with_a_token_is_refused(
    two_jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "hf_0123456789")
    page = two_jobs / "report/index.html"
    page.write_text("<p>hf_0123456789</p>")
    with pytest.raises(Fault, match=f"{page}: it holds the value of {name}"):
        write_archive(a_study(), two_jobs, ROOT, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_the_hubs_token_is_a_secret_and_words_and_paths_are_none(
    two_jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = two_jobs / "report/index.html"
    page.write_text(f"<p>false {page} hf_abcdefghij</p>")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("KEYRING_CONTROL", str(page))
    monkeypatch.setattr(archive, "get_token", lambda: None)
    write_archive(a_study(), two_jobs, ROOT, tmp_path / "a.zip")
    monkeypatch.setattr(archive, "get_token", lambda: "hf_abcdefghij")
    with pytest.raises(Fault, match="it holds the value of the hub's token"):
        write_archive(a_study(), two_jobs, ROOT, tmp_path / "b.zip")


def test_an_archive_follows_no_link_out_of_the_study(two_jobs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.txt").write_text("private")
    (two_jobs / "report/again.html").symlink_to(two_jobs / "report/index.html")
    (whole := tmp_path / "link").symlink_to(two_jobs)  # the study itself may be on another disk
    files = archive.result_files(whole)
    assert f"results/{whole.name}/report/again.html" in files
    for target in (outside, outside / "private.txt"):
        (link := two_jobs / "report/more").symlink_to(target)
        with pytest.raises(Fault, match=rf"{link}: a link to {target}, .* or remove the link"):
            write_archive(a_study(), two_jobs, ROOT, tmp_path / "a.zip")
        link.unlink()
    (two_jobs / "scratch").symlink_to(outside)  # is not archived
    (two_jobs / "report/.hidden").mkdir()
    (two_jobs / "report/.hidden/x").touch()
    assert not [name for name in archive.result_files(two_jobs) if "hidden" in name]
