"""Records of jobs, their verification, and the archive of a study."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from recorded_jobs import Job, a_job, run_job
from report_frames import a_study

from sage.runtime import records
from sage.runtime.faults import Damaged, Fault
from sage.runtime.manifest import COMMIT, Manifest, git_commit, seeds, settings_sum
from sage.runtime.records import (
    FOLDER,
    compare,
    differ,
    read_record,
    settings_of,
    sum_of,
    without_record,
)
from sage.tools import archive
from sage.tools.archive import write_archive
from sage.tools.verify import render, verify


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a study `small`, in which jobs are recorded."""
    folder = tmp_path / "results/small"
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


RL = {"rl": {"steps": 4}}


def todays(
    results: Path, rl: dict[str, Any] | None = None, beside: Path | None = None
) -> list[Job]:
    """The jobs of the study: RL, and a page made from its policy, and from files `beside`."""
    policy = "models/tiny/grpo/seed3"
    settings = {**(rl or RL), "scratch": results / "scratch"}
    beside = beside or results.parent
    code = {"code": beside / "code.py", "claims": beside / "claims.yaml"}
    return [
        a_job(results, "rl", policy, {"code": code["code"]}, settings),
        a_job(results, "page", "report/index.html", {"policy": results / policy, **code}),
    ]


@pytest.fixture
def two_jobs(results: Path) -> Path:
    """A policy, and a page made from it."""
    results.parent.mkdir(parents=True)
    for name in ("code.py", "claims.yaml"):
        (results.parent / name).write_text(name)
    texts = [{"weights.safetensors": "w", "manifest.json": "{}"}, "<p>page</p>"]
    for job, content in zip(todays(results), texts, strict=True):
        path = Path(job.output[0]).relative_to(results)
        inputs = {name: Path(value) for name, value in job.input.items()}
        run_job(results, job.name, str(path), content, inputs, settings_of(job))
    return results


def changes(results: Path, jobs: Iterable[Job] | None = None) -> dict[str, list[str]]:
    """What differs between jobs of today and their records, by rule."""
    found = compare(jobs or todays(results), results)
    return {job.name: found.reasons[job] for job in found.changed}


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
    (policy / "notes.txt").touch()  # no job made it
    assert sum_of(policy, two_jobs) != sum_of(policy)


# Jobs of today held against their records


def test_what_today_makes_differs_from_its_record_in_nothing(two_jobs: Path) -> None:
    found = compare(todays(two_jobs), two_jobs)
    assert [*found.reasons.values()] == [[], []]
    assert not found.changed
    assert not [*found.lines("", "")]


def test_settings_code_and_inputs_are_compared_whatever_dates_say(two_jobs: Path) -> None:
    page = [a_job(two_jobs, "page", "report/index.html", {"new": two_jobs.parent / "code.py"})]
    steps = changes(two_jobs, todays(two_jobs, {"rl": {"steps": 5}}))
    assert steps == {"rl": ["settings changed: rl.steps 4 → 5"]}
    several = {"rl": {"steps": 4, "stop": ["a", "b"]}, "data": ["sum"]}
    assert changes(two_jobs, todays(two_jobs, several)) == {
        "rl": ["data files changed", "settings changed: rl.stop none → ['a', 'b']"]
    }
    assert differ({"a": [1, 2, 3], "b": [1, 2]}, {"a": [2, 4], "b": [2, 1]}, "of") == [
        "of.a [1, 3] → [4]",
        "of.b [1, 2] → [2, 1]",
    ]
    for name, what in (("code.py", "code changed"), ("claims.yaml", "claims.yaml changed")):
        file = two_jobs.parent / name
        text, times = file.read_text(), file.stat()
        file.write_text("x" * len(text))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        found = changes(two_jobs)
        assert [one.removeprefix(f"{file.parent}/") for one in found["page"]] == [what]
        assert ("rl" in found) is (name == "code.py")
        file.write_text(text)
    assert changes(two_jobs, page)["page"] == [
        "code changed",
        f"{two_jobs.parent}/code.py is read now",
        *(f"{path} is read no more" for path in (two_jobs.parent / "claims.yaml",)),
        f"{two_jobs}/models/tiny/grpo/seed3 is read no more",
    ]


@pytest.mark.parametrize("what", ["missing", "changed", "of_old_date"])
@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.json", ""])
def test_a_file_of_a_product_that_is_not_as_it_was_made_is_named(
    two_jobs: Path, what: str, name: str
) -> None:
    policy = two_jobs / "models/tiny/grpo/seed3"
    file = policy / name if name else two_jobs / "report/index.html"
    times = file.stat()
    if what == "missing":
        file.unlink()
    else:
        file.write_bytes(b"x" * times.st_size)
    if what == "of_old_date":
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    says = f"{file} {'is missing' if what == 'missing' else 'changed'}"
    found = changes(two_jobs)
    if name:
        assert found == {"rl": [says], "page": [f"{policy} changed"]}
    else:
        assert found == {"page": [says]}
    assert changes(two_jobs) == found  # what has been found is noted


def test_a_copy_is_read_once_and_is_as_it_was_made(
    two_jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(two_jobs.parent, tmp_path / "elsewhere")) / two_jobs.name
    jobs = todays(copy, beside=two_jobs.parent)
    assert changes(copy, jobs) == {}
    monkeypatch.setattr(records, "file_sum", lambda path: "read again")
    assert "read again" not in str(records.checked(copy / "report/index.html", *record_of(copy)))
    monkeypatch.undo()
    assert verify(copy, {"rl": [], "page": []}).faults == []


def record_of(results: Path) -> tuple[Any, Path]:
    return read_record(results / "provenance/jobs/page.json"), results


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", None])
def test_a_damaged_record_has_its_products_made_again(two_jobs: Path, text: str | None) -> None:
    record = two_jobs / "provenance/jobs/rl.json"
    whole = record.read_text()
    record.write_text(whole.replace('"steps": 4', '"steps": 5') if text is None else text)
    assert changes(two_jobs) == {"rl": ["its record is damaged"]}
    assert verify(two_jobs, {"rl": [], "page": []}).faults == [f"job rl: {record} is damaged"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weights.safetensors": 1}', None])
def test_without_a_note_of_sums_the_product_is_read(two_jobs: Path, text: str | None) -> None:
    note = two_jobs / "provenance/sums/models/tiny/grpo/seed3.json"
    note.unlink() if text is None else note.write_text(text)
    assert changes(two_jobs) == {}
    assert set(json.loads(note.read_text())) == {"weights.safetensors", "manifest.json"}
    note.unlink()
    policy = two_jobs / "models/tiny/grpo/seed3"
    (policy / "manifest.json").unlink()
    assert changes(two_jobs)["rl"] == [f"{policy} changed"]


def test_products_without_a_record_are_named_with_the_command_for_them(two_jobs: Path) -> None:
    (two_jobs / "provenance/jobs/rl.json").unlink()
    found = compare(todays(two_jobs), two_jobs)
    policy = f"{two_jobs}/models/tiny/grpo/seed3"
    assert (found.changed, found.unrecorded) == ([], [policy])
    (line,) = found.lines("", "sage-rlvr run x")
    assert line == (
        f"No record says what {policy} was made from. `sage-rlvr run x --forcerun {policy}` makes "
        "it again"
    )
    many = without_record([f"p{n}" for n in range(50)], "run")
    assert (
        many == "No record says what p0 and 49 more were made from. `run --forceall` makes it again"
    )
    shutil.rmtree(policy)  # a job that has made nothing: Snakemake knows
    assert compare(todays(two_jobs), two_jobs).unrecorded == []


def test_the_line_for_people_names_the_plainest_change(two_jobs: Path) -> None:
    jobs = todays(two_jobs, {"rl": {"steps": 5}})
    (two_jobs.parent / "claims.yaml").write_text("other")
    (line,) = compare(jobs, two_jobs).lines("A run makes that again", "")
    assert line == (
        f"Not what today's settings, code and files make: {two_jobs}/models/tiny/grpo/seed3 "
        "(settings changed: rl.steps 4 → 5) and 1 more. A run makes that again"
    )


# Verification


def test_results_as_they_were_made_verify(two_jobs: Path) -> None:
    (two_jobs / "provenance/jobs/.rl.json.7-x.json").write_text('{"half')
    found = verify(two_jobs, {"rl": [], "page": []})
    assert (found.faults, found.files, found.jobs, found.strange) == ([], 3, 2, [])
    assert render(two_jobs, found, "") == f"{two_jobs}: 3 files of 2 jobs compared: all match"


def test_what_is_not_todays_or_not_as_made_is_named_with_the_way_out(two_jobs: Path) -> None:
    page = two_jobs / "report/index.html"
    page.unlink()
    found = verify(two_jobs, {"rl": ["code changed"], "page": [f"{page} is missing"]})
    assert found.faults == [f"job page: {page} is missing", "job rl: code changed"]
    *_, way, verdict = render(two_jobs, found, "sage-rlvr run x").splitlines()
    assert way == "`sage-rlvr run x` makes again what does not match, and what depends on it"
    assert verdict.endswith("2 do not match")
    strange = verify(two_jobs, {"rl": []})
    assert strange.faults[0].endswith(
        "is missing; the report does not need it, so it can be deleted"
    )
    lines = render(two_jobs, verify(two_jobs, {"rl": []}, ["a"]), "run").splitlines()
    assert "No record says what a was made from. `run --forcerun a` makes it again" in lines
    assert lines[-1].endswith("2 do not match")


@pytest.fixture
def weights(two_jobs: Path) -> Path:
    """The policy's weights, whose bytes changed on the disk under the same size and times."""
    weights = two_jobs / "models/tiny/grpo/seed3/weights.safetensors"
    note = two_jobs / "provenance/sums/models/tiny/grpo/seed3.json"
    weights.write_text("v")
    sums, stat = json.loads(note.read_text()), weights.stat()
    sums[weights.name] |= {"mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
    note.write_text(json.dumps(sums))
    return weights


def test_verification_reads_what_a_run_takes_as_known(two_jobs: Path, weights: Path) -> None:
    """A run learns of it then."""
    assert changes(two_jobs) == {}
    assert verify(two_jobs, {"rl": [], "page": []}).faults == [f"job rl: {weights} changed"]
    assert changes(two_jobs)["rl"] == [f"{weights} changed"]


def test_a_job_does_not_start_from_weights_that_are_not_as_they_were_written(
    two_jobs: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = weights.parent

    def use() -> None:
        run_job(two_jobs, "sample", "samples/a.csv", "1", {"policy": policy})

    says = rf"{policy}: weights.safetensors is not as it was written .* delete {policy} and run"
    with pytest.raises(Damaged, match=says):
        use()
    monkeypatch.setenv(records.CHECKED, "0")
    use()


def test_added_and_unrecorded_files_are_named(two_jobs: Path) -> None:
    extra = two_jobs / "models/tiny/grpo/seed3/extra.bin"
    extra.write_text("x")
    (two_jobs / "report/mine.txt").write_text("x")
    found = verify(two_jobs, {"rl": [], "page": []})
    assert found.faults == [f"{extra}: not made by the job that made {extra.parent}; delete it"]
    assert found.strange == [f"{two_jobs}/report/mine.txt"]
    assert changes(two_jobs) == {}


def test_results_without_records_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no records of jobs"):
        verify(tmp_path, {})


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
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "MY_TOKEN_FILE", "db_password", "Client_Secret"),
        *("DB_PASS", "AWS_CREDENTIALS", "MYSQL_PWD", "BASIC_AUTH"),
    ],
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


@pytest.mark.parametrize(
    "text",
    [
        "ghp_" + "a1B2" * 9,
        "hf_" + "a1B2" * 8,
        "AKIA" + "A1B2" * 4,
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "postgres://me:" + "pass@host/db",
    ],
)
def test_what_looks_like_a_secret_is_one_whatever_its_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"x={text} y")
    with pytest.raises(Fault, match="looks like a secret") as error:
        archive.refuse_secrets([tmp_path / "log"])
    assert text not in str(error.value)


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
