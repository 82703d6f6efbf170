"""What a run logs of its guide and of the KL term, by hand."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from sage.method.anchors import K2, K3, K3Corrected, LogProbs
from sage.method.guides import Moment, Signals
from sage.training.anchoring import (
    ADDED,
    REFERENCE,
    DoseTally,
    Guidance,
    LossCall,
    TokenMeans,
    guide_log,
    guide_pushes,
)
from sage.training.credit import SAMPLED, Correction, SamplerFault, correct, gap_log
from sage.training.first_call import WrongGuide
from sage.training.shaping import Shaping
from sage.training.tallies import Evaluated, StepLog, Tally

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
        ("train", step, 0),
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


def test_the_dose_leaves_out_what_is_not_scored() -> None:
    """The advantages 1 and -1 have the deviation sqrt 2; with a third row of 0 it would be 1."""
    call = loss_call([1.0, -1.0, 0.0], [[0.4, 0.0], [0.0, 0.0], [9.0, 0.0]], None, groups=[0] * 3)
    call.inputs["reward"] = torch.tensor([1.0, 0.0, math.nan])
    log = DoseTally(Accelerator(cpu=True)).add(call, 0.5, generation=0)
    assert log["kl_dose"] == pytest.approx(0.5 * (0.4 / 2**0.5) / 2**0.5)


def test_pushes_in_the_loss_by_hand() -> None:
    """q = 1.5, pi_ref / pi = 0.8: k3 weighs a gradient by 1 - rho, so that q adds 0.5 * 0.8.

    Tokens of a state share 0.5 of it, what q adds where pi_ref is pi. k2 weighs it by -log rho, and
    so does k3 corrected for the policy that drew.
    """
    policy = torch.tensor([[-1.0, -2.0]])
    log_q = torch.full((1, 2), math.log(1.5))
    anchor = policy + math.log(0.8) + log_q
    seen = LogProbs(policy=policy, anchor=anchor, old=policy)
    for estimator, pushes, of_state in (
        (K3(), 0.5 * 0.8, 0.5 * (0.8 - 1.0)),
        (K2(), math.log(1.5), 0.0),
        (K3Corrected(), math.log(1.5), 0.0),
    ):
        for alike, expected in ((False, pushes), (True, of_state)):
            found = guide_pushes(estimator, seen, log_q, alike)
            torch.testing.assert_close(found, torch.full((1, 2), expected), atol=1e-6, rtol=1e-5)


def test_the_dose_in_the_loss_by_hand() -> None:
    """beta 0.5 times the root mean square of 0.3, 0.1 and 0.2 over the advantages' sqrt 2.

    Padding does not count, nor does the group whose advantages are equal as a unit.
    """
    ratios = [[0.7, 0.3], [0.0, math.nan]]
    call = loss_call([1.0, -1.0], ratios, [[0.0, 0.0], [0.0, 0.0]], groups=[0, 0])
    pushes = torch.tensor([[0.3, -0.1], [0.2, 7.0]])
    log = DoseTally(Accelerator(cpu=True)).add(call, 0.5, generation=0, pushes=pushes)
    assert log["loss_dose"] == pytest.approx(0.5 * (0.14 / 3) ** 0.5 / 2**0.5)
    halves = DoseTally(Accelerator(cpu=True))
    for row in (slice(0, 1), slice(1, 2)):
        part = loss_call([1.0, -1.0][row], ratios[row], [[0.0, 0.0]], groups=[0])
        twice = halves.add(part, 0.5, generation=0, pushes=pushes[row])
    assert twice == pytest.approx(log)


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


def test_means_over_tokens_do_not_depend_on_micro_batches() -> None:
    """Completions of 2 and 1 tokens with loss, then one that teaches nothing, then one of 1.

    TRL logs 0.3, 0 and 0.9 for them; over all four tokens that is (3 * 0.3 + 0.9) / 4.
    """
    means, entries = TokenMeans(Accelerator(cpu=True), by_sequence=False), StepLog()
    nothing = [math.nan, math.nan]
    logged: dict[str, list[float]] = {}
    parts = ([[1.0, 1.0], [1.0, math.nan]], 0.3), ([nothing], 0.0), ([[1.0, math.nan]], 0.9)
    for ratios, mean in parts:
        call = loss_call([0.0] * len(ratios), ratios, None)
        for name in ("kl", "entropy", "clip_ratio/low_mean", "reward"):
            logged.setdefault(name, []).append(mean)
        entries.put(logged, call.moment, means.add(call, logged))
    names, once = ("kl", "entropy", "clip_ratio/low_mean"), [pytest.approx(0.45)]
    of_trl = {name: [0.3, 0.0, 0.9] for name in (*names, "reward")}
    assert logged == of_trl | {f"step/{name}": once for name in names}
    # A further step without a token leaves the entry of the one before; another adds its own.
    call = loss_call([0.0], [nothing], None, step=2)
    entries.put(logged, call.moment, means.add(call, logged | {"kl": [0.0]}))
    assert logged["step/kl"] == once
    call = loss_call([0.0], [[1.0, 1.0]], None, step=3)
    entries.put(logged, call.moment, means.add(call, logged | {"kl": [2.0]}))
    assert logged["step/kl"] == [*once, 2.0]


def test_the_mean_kl_is_without_what_the_seam_adds_or_that_in_the_rewards() -> None:
    means = TokenMeans(Accelerator(cpu=True), by_sequence=True)
    call = loss_call([0.0], [[1.0, 1.0]], None)
    call.replaced = True
    logged = {"kl": [ADDED + 0.25], "entropy": [2.0], "clip_ratio/low_mean": [0.5]}
    expected = {"kl": 0.25, "entropy": 2.0, "clip_ratio/low_mean": 0.5}
    assert means.add(call, logged) == {f"step/{name}": expected[name] for name in expected}
    assert logged == {name: [expected[name]] for name in expected}
    call = loss_call([0.0], [[1.0, 1.0]], None, step=2)
    call.reward_kl = torch.tensor(3.0, dtype=torch.float64)
    logged = {"kl": [0.0]}
    assert means.add(call, logged) == {"step/kl": 1.5}
    assert logged == {"kl": [1.5]}


def test_means_of_an_evaluation_are_over_its_problems() -> None:
    """5 problems in batches of 2 pairs, the last filled up with one that was there."""
    evaluated = Evaluated(5)

    def means(*right: float) -> dict[str, float]:
        scores = torch.tensor([[one + 0.5, one] for one in right])
        return evaluated.means(scores, 2, ["reward", "rewards/x/mean"])

    first = means(1.0, 1.0, 0.0, 0.0)
    assert first == {"pass@1": 0.5, "pass@2": 0.5, "step/reward": 1.0, "step/rewards/x/mean": 0.5}
    means(0.0, 0.0, 0.0, 0.0)
    last = {"pass@1": 0.2, "pass@2": 0.2, "step/reward": 0.7, "step/rewards/x/mean": 0.2}
    assert means(0.0, 0.0, 1.0, 1.0) == pytest.approx(last)


def test_tokens_that_the_sampler_has_no_number_for_are_left_out() -> None:
    trained, mask = torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2, dtype=torch.bool)
    tally = Tally(Accelerator(cpu=True))
    log = gap_log(tally, 1, trained, torch.tensor([[-1.5, math.nan]]), 3.0, mask)
    assert log == {"gap_mean": 0.5, "gap_max": 0.5, "clipped_share": 0.0}
    inputs = {"completion_mask": mask.long(), "advantages": torch.tensor([2.0])}
    inputs[SAMPLED] = torch.tensor([[-1.5, math.nan]])
    call = LossCall(inputs, ("train", 2, 0), log_probs=trained)
    correct(call, Correction("token"), tally, "grpo")
    assert inputs["advantages"].tolist() == [[pytest.approx(2 * math.exp(0.5)), 2.0]]
    for sampled in ([[math.nan, math.nan]], [[-1.0, -1.0]]):
        both = torch.full((1, 2), math.nan) if sampled[0][0] == -1.0 else trained
        with pytest.raises(SamplerFault, match="2 sampled tokens"):
            gap_log(tally, (3, sampled[0][0] == -1.0), both, torch.tensor(sampled), 3.0, mask)


def test_a_guide_is_checked_at_the_first_batch_that_has_a_token() -> None:
    class Wrong:
        def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
            return -1.2 * signals.mask.float()

    accelerator = Accelerator(cpu=True)
    guidance = Guidance(SimpleNamespace(accelerator=accelerator), seed=1)  # type: ignore[arg-type]
    shaping = Shaping(guide=Wrong())  # type: ignore[arg-type]
    for tokens in (0, 2):
        call = loss_call([1.0], [[0.1] * tokens + [math.nan] * (2 - tokens)], None, groups=[0])
        call.entropies = torch.zeros(1, 2)
        call.inputs |= {REFERENCE: torch.zeros(1, 2), "rollout": torch.tensor([0])}
        if not tokens:
            assert guidance.shape(call, shaping, 10).get("log_q", 0.0) == 0.0
            continue
        with pytest.raises(WrongGuide, match=r"-1\.2 for 2 of 2 tokens"):
            guidance.shape(call, shaping, 10)
