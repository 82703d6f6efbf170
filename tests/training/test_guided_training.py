"""Guides in training: whose entropy they read, and that a strong dose reaches the anchor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from method_entries import ROWS
from trainers import small_trainer

from sage.method.guides import Moment, RandomGuide, Signals
from sage.training.anchoring import REFERENCE, LossCall
from sage.training.first_call import WrongGuide


def test_the_reference_is_asked_for_its_entropies_in_training(parent: Path, tmp_path: Path) -> None:
    """At the first step policy and reference are one, so both guides log the same q."""
    settings = {"ratio": 0.3, "threshold": 4.9}
    logs = {}
    for whose in ("policy", "reference"):
        guide = {"kind": "branch", "settings": settings | {"entropy_of": whose}}
        row = ROWS["grpo_branch"] | {"guide": guide}
        trainer = small_trainer(parent, row, tmp_path / whose, learning_rate=3e-2)
        trainer.train()
        logs[whose] = [e["sage/log_q"] for e in trainer.state.log_history if "sage/log_q" in e]
    assert logs["policy"][0] == pytest.approx(logs["reference"][0], rel=1e-4)
    assert logs["policy"][0] > 0.1
    assert logs["policy"][-1] != pytest.approx(logs["reference"][-1], rel=1e-4)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_schedule_of_loss_calls_lasts_as_long_as_training(
    parent: Path, tmp_path: Path, parts: int
) -> None:
    """Whatever parts a step is run in; it was over after a quarter of a run in four parts."""
    heard: list[float] = []

    class Noting(RandomGuide):
        def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
            heard.append(moment.step / moment.total_steps)
            return super().factors(signals, moment)

    row = ROWS["grpo_random"] | {"fidelity": "released"}
    trainer = small_trainer(parent, row, tmp_path, micro_batches=parts)
    trainer.shaping = replace(trainer.shaping, guide=Noting())
    trainer.train()
    assert heard == pytest.approx([call / (4 * parts) for call in range(4 * parts)])
    assert heard[::parts] == [0.0, 0.25, 0.5, 0.75]  # at the start of each step as without parts


@pytest.mark.parametrize("estimator", ["k1_reward", "k3", "k3_corrected"])
@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_a_strong_dose_reaches_the_anchor(
    parent: Path, tmp_path: Path, estimator: str, ratio: float
) -> None:
    """What stands in the reference's place is log pi_ref + log q, up to q = 4 by entropy."""
    guide = {"kind": "branch", "settings": {"ratio": ratio, "threshold": 4.0}}
    row = ROWS["grpo_branch_k1_reward"] | {
        "estimator": estimator,
        "kl_coefficient": 0.8,
        "guide": guide | {"clamp": [0.25, 4.0]},
    }
    trainer = small_trainer(parent, row, tmp_path, schedule="constant")
    assert trainer.beta == trainer.args.beta == 0.8
    assert trainer.args.lr_scheduler_type == "constant"
    assert trainer.args.use_bias_correction_kl == (estimator == "k3_corrected")
    shape, largest = trainer._guidance.shape, []

    def checked(call: LossCall, *rest: Any) -> dict[str, float]:
        log = shape(call, *rest)
        q = (1.0 + ratio * (call.entropies.detach() - 4.0).clamp(min=0.0)).clamp(0.25, 4.0)
        q = torch.where(call.mask.bool(), q, 1.0)
        torch.testing.assert_close(call.inputs[REFERENCE], call.reference + q.log())
        largest.append(float(q.max()))
        return log

    trainer._guidance.shape = checked
    trainer.train()
    assert len(largest) == 4
    assert max(largest) == (4.0 if ratio == 3.0 else pytest.approx(2.1, abs=0.5))
    doses = [e["sage/guide_dose"] for e in trainer.state.log_history if "sage/guide_dose" in e]
    assert min(doses) > 0.05
    in_loss = [e["sage/loss_dose"] for e in trainer.state.log_history if "sage/loss_dose" in e]
    assert len(in_loss) == (0 if estimator == "k1_reward" else len(doses))
    assert all(dose < min(doses) for dose in in_loss)  # q is the same for all tokens of a state


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda signals: signals.mask[:, 0], r"factors\(\) gave \(\d+,\), but must give a tensor"),
        (lambda signals: 1.1, r"factors\(\) gave float, but must give a tensor \(\d+, \d+\)"),
        (
            lambda signals: -signals.mask,
            r"factors\(\) gave -1 for (\d+) of \1 tokens, which is not above 0",
        ),
        (
            lambda signals: signals.mask / 0,
            r"factors\(\) gave inf for (\d+) of \1 tokens, which is not finite",
        ),
        (
            lambda signals: signals.entropy,
            r"AttributeError: 'Signals' object has no attribute 'entropy' \(.*test_guided_training"
            r"\.py, line \d+\); correct it. A guide can look at signals.log_probs, signals.entrop",
        ),
    ],
)
def test_a_wrong_guide_is_refused_at_its_first_batch(
    parent: Path, tmp_path: Path, gives: Any, said: str
) -> None:
    class Wrong(RandomGuide):
        def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
            return gives(signals)

    trainer = small_trainer(parent, ROWS["grpo_random"], tmp_path)
    trainer.shaping = replace(trainer.shaping, guide=Wrong())
    with pytest.raises(WrongGuide, match=f"guide Wrong: {said}"):
        trainer.train()
