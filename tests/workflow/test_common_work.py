"""Work that is taken from the results of another study, where its record there says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_jobs import Job, a_job, run_job

from sage.runtime.common_work import take_over, taken_over
from sage.runtime.records import FOLDER, compare


def jobs(folder: Path, steps: int = 4) -> list[tuple[Job, dict[str, Any]]]:
    """A base, a policy and its samples, each read by the next, and what `run_job` takes of them."""
    asked: list[tuple[str, str, str | dict[str, str], dict[str, Path], dict[str, Any]]] = [
        ("base", "models/base", {"a.json": "1", "b/c.json": "2"}, {}, {"seed": 3}),
        (
            "rl",
            "models/rl",
            {"weights": f"{steps}"},
            {"parent": folder / "models/base"},
            {"rl": {"steps": steps}, "scratch": str(folder / "scratch/rl")},
        ),
        ("sample", "samples/rl.parquet", f"{steps}", {"policy": folder / "models/rl"}, {}),
    ]
    return [
        (
            a_job(folder, name, output, inputs, settings),
            {"name": name, "output": output, "content": content, "inputs": inputs}
            | {"settings": settings},
        )
        for name, output, content, inputs, settings in asked
    ]


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a finished study."""
    folder = tmp_path / "results/parent"
    monkeypatch.setenv(FOLDER, str(folder))
    for _, made in jobs(folder):
        run_job(folder, **made)
    return folder


def taken_by(child: Path, parent: Path, look: bool = False, **change: Any) -> dict[str, str]:
    """The names of jobs of which it was taken, with the study that made it."""
    asked = [job for job, _ in jobs(child, **change)]
    return {job.name: at for job, at in take_over(asked, child, [parent], look).items()}


def test_the_same_work_is_taken_with_its_records(parent: Path) -> None:
    child = parent.with_name("child")
    assert taken_by(child, parent) == dict.fromkeys(("base", "rl", "sample"), str(parent))
    assert (child / "models/base/b/c.json").read_text() == "2"
    compared = compare([job for job, _ in jobs(child)], child)
    assert (compared.changed, compared.unrecorded) == ([], [])
    record = json.loads((child / "provenance/jobs/rl.json").read_text())
    assert (record["folder"], record["taken_from"]) == (str(child), str(parent))
    assert record["settings"]["scratch"] == str(child / "scratch/rl")
    assert taken_over(child) == [(str(parent), 3)]
    assert taken_over(parent) == []


def test_what_differs_and_what_follows_it_is_made(parent: Path) -> None:
    child = parent.with_name("child")
    assert taken_by(child, parent, steps=5) == {"base": str(parent)}
    assert (child / "models/base").is_dir()
    assert not (child / "models/rl").exists()


def test_a_damaged_product_is_not_taken(parent: Path) -> None:
    (parent / "models/rl/weights").write_text("other")
    assert taken_by(parent.with_name("child"), parent) == {"base": str(parent)}


def test_what_is_there_stays(parent: Path) -> None:
    child = parent.with_name("child")
    own = child / "models/base/a.json"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    assert taken_by(child, parent) == {}
    assert own.read_text() == "mine"


def test_a_look_says_the_same_and_writes_nothing(parent: Path) -> None:
    child = parent.with_name("child")
    assert list(taken_by(child, parent, look=True)) == ["base", "rl", "sample"]
    assert not child.exists()


def test_the_first_study_is_named_over_several(parent: Path) -> None:
    child, grandchild = parent.with_name("child"), parent.with_name("grandchild")
    taken_by(child, parent)
    assert set(taken_by(grandchild, child).values()) == {str(parent)}


def test_an_edit_of_taken_files_leaves_the_first_study_whole(parent: Path) -> None:
    child = parent.with_name("child")
    taken_by(child, parent)
    run_job(child, **jobs(child, steps=9)[2][1])
    assert (parent / "samples/rl.parquet").read_text() == "4"
