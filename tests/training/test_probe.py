"""An engine that loses the adapter, or gives no numbers, ends the run within one step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_drawing import build, push
from trainers import with_made_up_reference
from transformers import TrainerCallback

from sage.policies import load_policy, load_tokenizer
from sage.sampling.interface import Completion, Request
from sage.sampling.probe import AdapterLost, probe
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Sampling
from sage.study.watch import Watch
from sage.training import drawers
from sage.training.drawers import VllmDrawer, sampling_of
from sage.training.watching import TrainingStopped, Watching


class Engine:
    """In vLLM's place: it draws from the adapter of a folder, and loses it with the wake `loses`.

    Wake 0 is its start. With `shift` that is added to log-probs from then on.
    """

    def __init__(self, base: Path, folder: Path, loses: float, shift: float = 0.0) -> None:
        self.base, self.loses, self.shift = base, loses, shift
        self.wakes, self.sleeps, self.probes = 0, 0, 0
        self.adopt(folder)

    @property
    def is_faulty(self) -> bool:
        return self.wakes >= self.loses

    def adopt(self, folder: Path) -> None:
        trained = None if self.is_faulty and not self.shift else folder
        model = load_policy(self.base, trained, torch.float32, "cpu")
        self._sampler = TransformersSampler.from_model(model, load_tokenizer(self.base), 256)

    def wake(self) -> None:
        self.wakes += 1

    def sleep(self) -> None:
        self.sleeps += 1

    def sample(
        self, requests: Sequence[Request], sampling: Sampling, log_probs: bool = False
    ) -> list[Completion]:
        self.probes += requests[0].stream.startswith("probe/")
        drawn = self._sampler.sample(requests, sampling, log_probs=log_probs)
        shift = self.shift if self.is_faulty else 0.0
        return [replace(c, log_probs=tuple(p + shift for p in c.log_probs)) for c in drawn]


def trained(parent: Path, loses: float = math.inf, **more: Any) -> tuple[Any, list[Engine]]:
    """A trainer that draws from such an engine, and the engine once it is open."""
    engines: list[Engine] = []
    shift, sleeps = more.pop("shift", 0.0), more.pop("sleeps", True)

    def make(trainer: Any) -> VllmDrawer:
        def opened(folder: Path) -> Engine:
            engines.append(Engine(parent, folder, loses, shift))
            return engines[-1]

        return VllmDrawer(opened, sampling_of(trainer), sleeps)

    settings = {"steps": 4, "prompts_per_step": 2, "rollouts": 4}
    return build(parent, settings=settings, make_drawer=make, **more), engines


def test_an_engine_that_keeps_the_adapter_is_probed_at_its_start_and_first_wake(
    parent: Path,
) -> None:
    trainer, engines = trained(parent)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.train()
    assert engines[0].probes == 2
    assert all(row["sampler/gap_mean"] < 1e-5 for row in trainer.state.log_history if "loss" in row)
    after = trainer.model.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        name for name in before if "lora_" in name
    }


@pytest.mark.parametrize(
    ("sleeps", "free", "counts"),
    [
        (True, None, (4, 3)),
        (False, None, (0, 0)),
        (None, [30, 30, 30, 30], (1, 1)),  # asleep once: what training takes is not known yet
        (None, [30, 30, 29, 30], (2, 2)),
        (None, [30, 14, 14, 14], (4, 3)),
    ],
)
def test_an_engine_sleeps_where_memory_does_not_hold_it_beside_training(
    parent: Path,
    sleeps: bool | None,
    free: list[int] | None,
    counts: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training takes 20 GB: 30 must be free."""
    left = iter(free or ())
    monkeypatch.setattr(drawers, "free_memory", lambda: next(left))
    monkeypatch.setattr(drawers, "training_memory", lambda: 20)
    trainer, engines = trained(parent, sleeps=sleeps)
    trainer.train()
    assert (engines[0].sleeps, engines[0].wakes) == counts
    assert engines[0].probes == 2


@pytest.mark.parametrize("wake", [0, 1])
@pytest.mark.parametrize("shift", [0.0, math.nan])
def test_an_engine_that_loses_the_adapter_is_caught_within_the_step(
    parent: Path, wake: int, shift: float
) -> None:
    """A fresh adapter changes nothing, so only the probe can tell."""
    trainer, _ = trained(parent, loses=wake, shift=shift)
    with pytest.raises(AdapterLost, match=r"does not draw from the adapter.*of the change"):
        trainer.train()
    assert trainer.state.global_step == wake


def test_an_adapter_lost_between_probes_is_caught_by_the_gap(parent: Path, tmp_path: Path) -> None:
    class Pushing(TrainerCallback):
        def on_step_begin(self, *args: Any, model: Any, **kwargs: Any) -> None:
            push(model, 0.3)

    trainer, _ = trained(parent, loses=2)
    with_made_up_reference(trainer).add_callback(Pushing())
    trainer.add_callback(Watching(Watch(), tmp_path))
    with pytest.raises(TrainingStopped, match="step 3 the sampler's and the trainer's log-probs"):
        trainer.train()


def test_an_engine_is_probed_again_and_again(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawers, "PROBED", 3)
    trainer, engines = trained(parent)
    trainer.train()
    assert engines[0].probes == 3  # draws 1, 2 and 4


def test_the_probe_reads_the_policy_alone_and_its_weights_are_large(
    parent: Path, tmp_path: Path
) -> None:
    trainer, _ = trained(parent)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    expected = probe(trainer.model, tmp_path / "probe")
    after = trainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(w.requires_grad for n, w in trainer.model.named_parameters() if "lora_" in n)
    assert (expected.plain - expected.expected).abs().mean() > 0.5
    expected.check(Engine(parent, tmp_path / "probe", loses=math.inf))
    with pytest.raises(AdapterLost):
        expected.check(Engine(parent, tmp_path / "probe", loses=0))
