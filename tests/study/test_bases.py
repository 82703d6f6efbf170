"""Where pretrained models come from, and how one model's parent becomes another's."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from sage.exhibits import load_study
from sage.fetched_bases import adopt_base, fetch_base
from sage.method.guides import Moment, Noise, Signals
from sage.runtime.manifest import Manifest
from sage.tools import command


def manifest() -> Manifest:
    return Manifest({}, 1, time.time())


def checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "manifest.json", ".snakemake_timestamp"):
        (folder / name).write_text(name)
    return folder


def test_an_adopted_parent_has_the_weights_and_a_manifest_of_its_own(tmp_path: Path) -> None:
    adopt_base(checkpoint(tmp_path / "parent"), tmp_path / "adopted", manifest())
    names = {path.name for path in (tmp_path / "adopted").iterdir()}
    # Snakemake touches its timestamp: shared by a link, it would make the parent look newer.
    assert names == {"config.json", "model.safetensors", "manifest.json"}
    assert (tmp_path / "adopted/model.safetensors").read_text() == "model.safetensors"
    assert "versions" in (tmp_path / "adopted/manifest.json").read_text()
    assert (tmp_path / "parent/manifest.json").read_text() == "manifest.json"


def test_a_base_comes_from_the_mirror_without_pickles_and_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = checkpoint(tmp_path / "mirror/owner/name")
    for name in ("pytorch_model.bin", "modeling.py", "tokenizer.json"):
        (copy / name).write_text(name)
    monkeypatch.setenv("SAGE_MIRROR", str(tmp_path / "mirror"))
    base = {"source": "hub", "repository": "owner/name", "revision": "main"}
    fetch_base(base, tmp_path / "base", manifest())
    names = {path.name for path in (tmp_path / "base").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"}
    assert (copy / "manifest.json").read_text() == "manifest.json"  # the mirror is left alone


def test_a_base_without_safetensors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror/owner/name").mkdir(parents=True)
    (tmp_path / "mirror/owner/name/pytorch_model.bin").write_text("x")
    monkeypatch.setenv("SAGE_MIRROR", str(tmp_path / "mirror"))
    base = {"source": "hub", "repository": "owner/name", "revision": "main"}
    with pytest.raises(FileNotFoundError, match="no safetensors"):
        fetch_base(base, tmp_path / "base", manifest())
    assert not (tmp_path / "base").exists()


def test_a_damaged_model_of_ones_own_is_to_be_copied_again(tmp_path: Path) -> None:
    own = checkpoint(tmp_path / "own")
    (own / "config.json").write_text("{}")
    (own / "tokenizer.json").write_text("{}")
    base = {"source": "folder", "folder": str(own)}
    with pytest.raises(
        FileNotFoundError, match=r"own/model\.safetensors is damaged .*copy the mode"
    ):
        fetch_base(base, tmp_path / "base", manifest())
    assert not (tmp_path / "base").exists()


def test_a_method_of_ones_own_is_written_with_its_study_and_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert command.main(["new", "--method", "mine"]) == 0
    assert sorted(file.name for file in Path("mine").iterdir()) == ["my_method.py", "study.yaml"]
    study = load_study("mine/study.yaml", ROOT / "config")
    assert study.name == "mine"
    guide = study.algorithms["mine"].guide
    assert guide is not None
    assert guide.kind == "my_method:MyGuide"
    assert "mine" in study.model("tiny").algorithms
    files = guide.family.files(guide.kind)
    assert tmp_path / "mine/my_method.py" in files  # an edit trains it again
    made = guide.made
    entropies = torch.tensor([[1.0, 2.0]])
    signals = Signals(-entropies, entropies, torch.ones(1, 2))
    factors = made.factors(signals, Moment(0, 1, Noise("x")))
    torch.testing.assert_close(factors, torch.tensor([[1.0, 1.3]]))
    assert command.main(["new", "--method", "mine", "--out", "own/elsewhere"]) == 0
    assert sorted(file.name for file in Path("own/elsewhere").iterdir()) == [
        "my_method.py",
        "study.yaml",
    ]


def test_a_package_that_is_not_there_is_named_with_the_way_out(tmp_path: Path) -> None:
    base = {"source": "package", "package": "no_such_package", "file": "x.gguf"}
    with pytest.raises(FileNotFoundError, match=r"not installed; install it: python3 workflow"):
        fetch_base(base, tmp_path / "base", manifest())
