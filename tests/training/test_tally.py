"""What a run logs of its guide and of the KL term, by hand."""

import math
from collections.abc import Sequence

import pytest
import torch
from accelerate import Accelerator

from sage.training.anchoring import DoseTally, LossCall, Tally, guide_log, log_kl

CLAMP = (0.5, 2.0)


def test_sums_of_two_micro_batches_of_a_moment_by_hand() -> None:
    tally = Tally(Accelerator(cpu=True))
    factors = torch.tensor([[2.0, 1.0, 4.0], [0.5, 1.0, 9.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    first = guide_log(tally, ("train", 1), factors, mask, CLAMP)
    assert first == pytest.approx(
        {
            "q_mean": 3.5 / 3,
            "q_min": 0.5,
            "q_max": 2.0,
            "amplified_share": 1 / 3,
            "clamped_share": 2 / 3,
            "log_q": 0.0,  # log 2 of one completion, -log 2 of the other
        }
    )
    more = torch.tensor([[1.5, 1.5]])
    both = guide_log(tally, ("train", 1), more, torch.tensor([[True, True]]), CLAMP)
    assert both["log_q"] == pytest.approx(2 * math.log(1.5) / 3)
    assert both["amplified_share"] == pytest.approx(3 / 5)
    again = guide_log(tally, ("train", 2), more, torch.tensor([[True, False]]), CLAMP)
    assert again["log_q"] == pytest.approx(math.log(1.5))
    assert again["q_mean"] == pytest.approx(1.5)


def test_a_completion_without_tokens_counts_for_nothing() -> None:
    tally = Tally(Accelerator(cpu=True))
    factors = torch.full((2, 2), 1.5)
    mask = torch.tensor([[True, True], [False, False]])
    log = guide_log(tally, 0, factors, mask, CLAMP)
    assert log["log_q"] == pytest.approx(2 * math.log(1.5))
    assert guide_log(tally, 1, factors, torch.zeros(2, 2, dtype=torch.bool), CLAMP) == {}


def loss_call(
    advantages: Sequence[float],
    log_ratios: Sequence[Sequence[float]],
    log_q: Sequence[Sequence[float]] | None,
    groups: Sequence[int] = (0, 0, 1, 1),
    step: int = 1,
) -> LossCall:
    """Completions of two tokens, the last of which is padding where its log ratio is NaN."""
    ratios = torch.tensor(log_ratios)
    inputs = {
        "completion_mask": (~ratios.isnan()).long(),
        "group": torch.tensor(groups),
        "advantages": torch.tensor(advantages),
    }
    return LossCall(
        inputs,
        ("train", step),
        reference=torch.full_like(ratios, -2.0),
        log_probs=ratios.nan_to_num(9.0) - 2.0,
        log_factors=None if log_q is None else torch.tensor(log_q),
    )


def test_doses_by_hand() -> None:
    """beta = 0.5; sums of log(pi / pi_ref): 1, 0 | 0.2, -0.2; of log q: 0.6, 0 | 0.1, 0.1.

    Within the groups beta times these has SDs 0.5 / sqrt 2, 0.2 / sqrt 2 and 0.3 / sqrt 2, 0. That
    of the advantages is sqrt 2 in the first; in the second they are equal, which is no unit.
    """
    ratios = [[0.7, 0.3], [0.0, math.nan], [0.2, 0.0], [-0.1, -0.1]]
    log_q = [[0.2, 0.4], [0.0, 5.0], [0.1, 0.0], [0.1, 0.0]]
    doses = DoseTally(Accelerator(cpu=True))
    call = loss_call([1.0, -1.0, 0.0, 0.0], ratios, log_q)
    expected = {"kl_dose": (0.25 + 0.1) / 2, "guide_dose": (0.15 + 0.0) / 2}
    assert doses.add(call, 0.5, generation=0) == pytest.approx(expected)
    without = loss_call([1.0, -1.0, 0.0, 0.0], ratios, None, step=2)
    assert doses.add(without, 0.5, generation=0) == pytest.approx({"kl_dose": 0.175})


def test_doses_do_not_depend_on_the_micro_batches_of_a_step() -> None:
    torch.manual_seed(0)
    ratios, log_q = torch.randn(2, 8, 2).tolist()
    advantages, groups = torch.randn(8).tolist(), [0, 1, 2, 0, 1, 2, 0, 1]
    whole = DoseTally(Accelerator(cpu=True))
    once = whole.add(loss_call(advantages, ratios, log_q, groups), 0.2, generation=3)
    parts = DoseTally(Accelerator(cpu=True))
    for rows in (slice(0, 3), slice(3, 8)):
        call = loss_call(advantages[rows], ratios[rows], log_q[rows], groups[rows])
        twice = parts.add(call, 0.2, generation=3)
    assert once == pytest.approx(twice)
    assert min(once.values()) > 0.01


def test_groups_that_several_steps_learn_from_are_taken_whole() -> None:
    """Each step has a part of every group, and the next generation is another."""
    torch.manual_seed(0)
    ratios, log_q = torch.randn(2, 8, 2).tolist()
    advantages, groups = torch.randn(8).tolist(), [0, 0, 1, 1] * 2
    whole = DoseTally(Accelerator(cpu=True))
    expected = whole.add(loss_call(advantages, ratios, log_q, groups), 0.2, generation=3)
    parts = DoseTally(Accelerator(cpu=True))
    for generation in (2, 3):
        for step, rows in enumerate((slice(0, 4), slice(4, 8)), 2 * generation):
            call = loss_call(advantages[rows], ratios[rows], log_q[rows], groups[rows], step)
            found = parts.add(call, 0.2, generation, last=step % 2 == 1)
            assert found == (pytest.approx(expected) if step % 2 else {})


def test_completions_that_teach_nothing_and_groups_of_one_have_no_dose() -> None:
    doses = DoseTally(Accelerator(cpu=True))
    nothing = [math.nan, math.nan]
    ratios = [[1.0, 0.0], [0.0, 0.0], nothing, [7.0, 0.0]]
    call = loss_call([1.0, -1.0, 9.0, 5.0], ratios, None, groups=[0, 0, 0, 1])
    assert doses.add(call, 1.0, generation=0) == pytest.approx({"kl_dose": 0.5})
    # The same number in another generation is another group.
    other = loss_call([1.0], [[100.0, 0.0]], None, groups=[0])
    assert doses.add(other, 1.0, generation=1) == pytest.approx({"kl_dose": 0.5})
    equal = loss_call([0.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], None, groups=[0, 0], step=2)
    assert doses.add(equal, 1.0, generation=2) == {}


def test_the_mean_kl_is_what_the_run_pays_for() -> None:
    """Another divergence, or that in the rewards, over the two tokens and the one that have loss.

    A micro-batch without a token has 0, as TRL says; without another divergence TRL's stays.
    """
    logged = {"kl": [0.1, 19.5]}
    call = loss_call([0.0, 0.0], [[1.0, 1.0], [1.0, math.nan]], None)
    log_kl(call, logged, Accelerator(cpu=True))
    assert logged == {"kl": [0.1, 19.5]}
    call.replace_k3(torch.tensor([[0.25, 0.5], [0.75, 9.0]]))
    log_kl(call, logged, Accelerator(cpu=True))
    assert logged == {"kl": [0.1, 0.5]}
    nothing = loss_call([0.0], [[math.nan, math.nan]], None)
    nothing.replace_k3(torch.ones(1, 2))
    log_kl(nothing, logged, Accelerator(cpu=True))
    assert logged == {"kl": [0.1, 0.0]}
