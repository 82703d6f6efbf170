"""Bases from scratch that come with the repository: they are today's, and what is pretrained."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from sage.exhibits import load_study
from sage.fetched_bases import kept_base, take_base
from sage.policies import load_policy, load_tokenizer
from sage.runtime.manifest import Manifest, versions
from sage.study import ScratchBase
from sage.training.pretrain import draw_documents, pretrain

KEPT = ROOT / "config" / "bases"
STALE = "run `make bases` and commit config/bases: what pretrains, or its settings, changed"


def bases() -> dict[str, ScratchBase]:
    models = load_study("mini", ROOT / "config").study.models
    return {name: m.base for name, m in models.items() if isinstance(m.base, ScratchBase)}


def manifest() -> Manifest:
    return Manifest(settings={}, threads=1, started=0.0)


def test_the_bases_of_the_default_study_are_kept_and_no_others() -> None:
    folders = {kept_base(base, KEPT) for base in bases().values()}
    assert folders == {*KEPT.iterdir()}, STALE


def test_another_seed_or_setting_has_no_kept_base() -> None:
    base = bases()["sums"]
    for change in ({"seed": 24}, {"steps": 3001}):
        pretraining = base.pretraining.model_copy(update=change)
        other = base.model_copy(update={"pretraining": pretraining})
        assert not kept_base(other, KEPT).is_dir()


def test_a_kept_base_is_copied_and_says_what_made_it(tmp_path: Path) -> None:
    kept = kept_base(bases()["sums"], KEPT)
    take_base(kept, tmp_path / "base", manifest())
    made = {file.name for file in kept.iterdir()}
    assert {file.name for file in (tmp_path / "base").iterdir()} == made
    for name in made - {"manifest.json"}:
        assert (tmp_path / "base" / name).read_bytes() == (kept / name).read_bytes()
    then, now = (
        json.loads((folder / "manifest.json").read_text()) for folder in (kept, tmp_path / "base")
    )
    assert now["pretrained_at"] == then["git_commit"]


@pytest.mark.skipif(
    "SAGE_PRETRAIN" not in os.environ, reason="pretrains for minutes: SAGE_PRETRAIN=1 runs it"
)
@pytest.mark.timeout(3000)
def test_pretraining_again_gives_the_kept_base(tmp_path: Path) -> None:
    """The same bytes with the same versions and processor; else the same loss to 0.02 nats."""
    base = bases()["sums"]
    kept = kept_base(base, KEPT)
    torch.set_num_threads(1)
    pretrain(base, tmp_path / "base", manifest())
    made = json.loads((kept / "manifest.json").read_text())
    now = manifest().content()
    alike = made["versions"]["torch"] == versions()["torch"]
    alike &= made["hardware"]["cpu"] == now["hardware"]["cpu"]
    weights = [(folder / "model.safetensors").read_bytes() for folder in (kept, tmp_path / "base")]
    if alike and made["versions"]["python"] == platform.python_version():
        assert weights[0] == weights[1]
    losses = [loss(folder, base) for folder in (kept, tmp_path / "base")]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
    assert losses[0] < 0.6


@torch.no_grad()
def loss(folder: Path, base: ScratchBase) -> float:
    """The mean loss per token of solutions in 200 documents of another seed."""
    settings = base.pretraining.model_copy(update={"seed": 1, "documents": 200})
    model, tokenizer = load_policy(folder, None, torch.float32, "cpu"), load_tokenizer(folder)
    total, count = 0.0, 0
    for problem, solution in draw_documents(base.corpus, settings):
        start, rest = (tokenizer(part)["input_ids"] for part in (problem, solution))
        logits = model(torch.tensor([start + rest])).logits[0, len(start) - 1 : -1]
        own = torch.nn.functional.cross_entropy(logits, torch.tensor(rest), reduction="sum")
        total, count = total + float(own), count + len(rest)
    return total / count
