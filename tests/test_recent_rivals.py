"""Rivals of 2026 by hand-worked numbers, what each reduces to, and each in training and resumed."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from method_entries import ROWS, derived
from test_credit import signals
from test_signs import GOOD, rows
from test_signs import signs as signs_of
from trainers import (
    SMALL,
    SUMS,
    assert_same_run,
    odd_sum,
    small_trainer,
    trainer_of,
    unbroken_and_resumed,
)
from trainers import write_parent as write

from sage.exhibits import load_study
from sage.method.advantages import GroupNormalised
from sage.method.anchors import K2, K3, LogProbs, Scope
from sage.method.credit import TokenSignals, Ucpo, Uniqueness
from sage.method.guides import BranchGuide, Moment, Noise, Signals, guide_log_factors
from sage.method.planners import Drawn, UnsolvedOnly
from sage.problems.sets import draw_problems
from sage.problems.sum_sets import SumsSet
from sage.problems.sums import STRATEGIES, Sheet
from sage.problems.working import route_taken
from sage.prompting import completion, messages
from sage.study import REGISTRIES, RL, Algorithm
from sage.study.algorithms import run_conflicts
from sage.study.watch import Watch
from sage.training import rl
from sage.training.anchoring import REFERENCE, LossCall
from sage.training.rewards import SOURCE, strategies_of
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("parent") / "base", SUMS, spread=6.0)


def logged(trainer: SageTrainer) -> list[dict[str, Any]]:
    """Train, and return what each step has logged."""
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def seen(**changes: Any) -> LogProbs:
    """Two completions of two and three tokens; the first is right."""
    given = {
        "policy": torch.tensor([[0.5, 0.9, 0.2], [0.5, 0.5, 0.5]]).log(),
        "anchor": torch.full((2, 3), 0.25).log(),
        "old": torch.tensor([[0.5, 0.9, 0.2], [0.5, 0.5, 0.5]]).log(),
        "entropies": torch.tensor([[0.1, 0.3, 9.0], [0.7, 0.2, 0.5]]),
        "mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
        "advantages": torch.tensor([1.0, -1.0]),
    }
    return LogProbs(**(given | changes))


def test_scope_keeps_the_tokens_of_the_highest_score_by_hand() -> None:
    """p (1 - p) max(A, 0) is .25 and .09 in the right completion, 0 in the wrong one."""
    for share, chosen in ((0.2, [1.0, 0.0]), (0.4, [1.0, 1.0]), (1.0, [1.0, 1.0])):
        kept = Scope(share=share).chosen(seen())
        assert kept.tolist() == [[*chosen, 0.0], [0.0] * 3]
    # ceil(.3 x 5) = 2 tokens by entropy: .7 and .5; the 9 stands on padding.
    by_entropy = Scope(share=0.3, score="entropy").chosen(seen())
    assert by_entropy.tolist() == [[0.0] * 3, [1.0, 0.0, 1.0]]
    # k3 at the one token kept: rho = .25 / .5.
    values = Scope(share=0.2).values(seen())
    assert values[0, 0] == pytest.approx(0.5 + math.log(2) - 1)
    assert values.count_nonzero() == 1


def test_scope_of_all_tokens_is_the_estimator_itself() -> None:
    given = seen(mask=torch.ones(2, 3, dtype=torch.long))
    for name, plain in (("k3", K3()), ("k2", K2())):
        whole = Scope(share=1.0, score="entropy", of=name)
        assert torch.equal(whole.values(given), plain.values(given))


def test_scope_ranks_the_tokens_of_all_processes_that_share_a_micro_batch() -> None:
    """The other process has five tokens of a higher entropy: of ten the best five are its own."""
    other = torch.tensor([[8.0, 8.0, 0.0], [8.0, 8.0, 8.0]])

    def everyone(own: torch.Tensor) -> torch.Tensor:
        return torch.cat([own, other if own.is_floating_point() else own])

    kept = Scope(share=0.5, score="entropy").chosen(seen(everyone=everyone))
    assert kept.sum() == 0
    kept = Scope(share=0.6, score="entropy").chosen(seen(everyone=everyone))
    assert kept.nonzero().tolist() == [[1, 0]]


def test_a_token_out_of_scope_has_no_gradient_from_the_kl_term(
    parent: Path, tmp_path: Path
) -> None:
    """In training with every advantage 0 no token is in scope, so nothing is learnt."""
    row = ROWS["scope"] | {"title": "x"}
    alike = small_trainer(parent, row, tmp_path, reward=lambda prompts, **_: [1.0] * len(prompts))
    before = [weights.clone() for weights in alike.model.parameters() if weights.requires_grad]
    alike.args.weight_decay = 0.0
    assert all(entry["grad_norm"] == 0.0 for entry in logged(alike))
    after = [weights for weights in alike.model.parameters() if weights.requires_grad]
    assert len(before) == len(after)


def test_ucpo_shares_the_right_ones_advantage_out_by_hand() -> None:
    """Two right ones whose mean token probabilities are 1/2 and 1/4, so 1/q is as 1 to 2."""
    old = torch.tensor([[0.5, 0.5], [0.25, 1.0], [0.5, 0.5]]).log()
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    of = signals(old, [0, 0, 0], [1.0, 1.0, 0.0], mask=mask)
    # (1 - tau) + tau 2 (1/3) and (1 - tau) + tau 2 (2/3), tau = .3, times A = 1/3.
    got = Ucpo(tau=0.3).token_advantages(of)
    expected = torch.tensor([[0.9 / 3], [1.1 / 3], [-2.0 / 3]]).expand(3, 2)
    torch.testing.assert_close(got, expected)


def test_ucpo_keeps_the_sum_of_a_group_and_reduces_to_grpo() -> None:
    rng = random.Random(3)
    for _ in range(50):
        groups = [group for group in range(3) for _ in range(rng.randint(2, 6))]
        rewards = [float(rng.random() < 0.5) for _ in groups]
        log_probs = -3.0 * torch.rand(len(groups), 4).double()
        of = signals(log_probs, groups, rewards)
        plain = of.advantages[:, None].expand_as(log_probs)
        torch.testing.assert_close(Ucpo(tau=0.0).token_advantages(of), plain)
        got = Ucpo(tau=0.7).token_advantages(of)[:, 0]
        for group in range(3):
            own = of.groups == group
            torch.testing.assert_close(got[own].sum(), of.advantages[own].sum())
            right = own & (of.rewards > 0)
            if right.sum() == 1:
                torch.testing.assert_close(got[right], of.advantages[right])


def test_uniqueness_divides_by_the_size_of_the_cluster_by_hand() -> None:
    """Right ones follow the strategies 7, 7, 9; a wrong one follows 9 as well."""
    log_probs = torch.zeros(4, 2)
    rewards, strategies = [1.0, 1.0, 1.0, 0.0], torch.tensor([7, 7, 9, 9])
    of = signals(log_probs, [0] * 4, rewards, strategies=strategies)  # A = 1/4 and -3/4
    right_only = Uniqueness(alpha=1.0).token_advantages(of)[:, 0]
    torch.testing.assert_close(right_only, torch.tensor([0.125, 0.125, 0.25, -0.75]))
    of_all = Uniqueness(alpha=0.5, right_only=False).token_advantages(of)[:, 0]
    root = math.sqrt(0.5)
    torch.testing.assert_close(of_all, root * torch.tensor([0.25, 0.25, 0.25, -0.75]))
    plain = of.advantages[:, None].expand(4, 2)
    torch.testing.assert_close(Uniqueness(alpha=0.0).token_advantages(of), plain)
    with pytest.raises(ValueError, match="strategy of each completion"):
        Uniqueness().token_advantages(signals(log_probs, [0] * 4, rewards))


def test_strategies_are_those_that_the_checkers_know() -> None:
    sheet = Sheet(((5, 2), (6, 2)))
    example = {"prompt": messages(sheet.text), SOURCE: "sage/sums"}
    texts = [
        completion(f"{mark} a5+2=3+4=7 b6+2=4+4=8", "78") for mark in ("P", "P", "R", "nothing")
    ]
    asked = [[{"role": "assistant", "content": text}] for text in texts]
    first, again, named, none = strategies_of([example] * 4, asked)
    assert first == again != named  # R is named but not followed: no strategy, as in the last
    assert named == none
    assert STRATEGIES["plain"].mark == "P"
    assert route_taken("", completion("ab bc", " ab  bc ")) == "ab bc"
    with pytest.raises(ValueError, match="not of source 'sage/knights'"):
        strategies_of([{**example, SOURCE: "sage/knights"}], asked[:1])


def test_training_hands_the_strategies_of_sheets_to_the_rule(parent: Path, tmp_path: Path) -> None:
    made = {"source": "sums", "title": "Sheets", "count": 8, "seed": 1, "parts": 3}
    sheets = SumsSet.model_validate(made | {"split": "train"}).problems("sheets")
    algorithm = Algorithm.model_validate(ROWS["uniqueness"])
    heard: list[TokenSignals] = []

    class Noting(Uniqueness):
        def token_advantages(self, told: TokenSignals) -> torch.Tensor:
            heard.append(told)
            return super().token_advantages(told)

    trainer = trainer_of(
        parent, sheets, SMALL, algorithm, tmp_path, reward=odd_sum, shaping=Shaping(credit=Noting())
    )
    trainer.train()
    assert len(heard) == 4
    for told in heard:  # a random model follows no strategy, so all follow the same
        assert len(set(told.strategies.tolist())) == 1
        assert told.strategies.shape == told.rewards.shape


def drawn(problems: list[str], correct: list[list[float]]) -> Drawn:
    table = torch.tensor(correct)
    present = torch.ones_like(table, dtype=torch.bool)
    return Drawn(present, table, table, ~present, len(problems), 2, 1, tuple(problems))


def test_a_problem_weighs_until_the_step_after_its_first_success() -> None:
    planner = UnsolvedOnly()
    first = drawn(["a", "b"], [[1.0, 0.0], [0.0, 0.0]])
    assert planner.further(first) is None
    for _ in range(2):  # asked again in the same step it says the same
        assert planner.chosen(first).loss.tolist() == [True, True]
    planner.end_step(lambda sums: sums)
    second = drawn(["b", "a"], [[0.0, 1.0], [0.0, 0.0]])
    assert planner.chosen(second).loss.tolist() == [True, False]
    resumed = UnsolvedOnly()
    resumed.load_state_dict(planner.state_dict())
    assert resumed.chosen(first).loss.tolist() == [False, True]
    assert resumed.chosen(first).prompts is None


def test_where_no_problem_comes_twice_unsolved_only_is_grpo(parent: Path, tmp_path: Path) -> None:
    """Four steps of four problems each, of 25; the rows of a batch stand in another order."""
    plain, unsolved = (
        small_trainer(parent, ROWS[name], tmp_path / name)
        for name in ("grpo_no_kl", "unsolved_only")
    )
    kept = ("reward", "entropy", "grad_norm")
    logs = [[[e[key] for key in kept] for e in logged(one)] for one in (plain, unsolved)]
    torch.testing.assert_close(torch.tensor(logs[0]), torch.tensor(logs[1]), rtol=1e-3, atol=1e-5)


def test_solved_problems_are_not_learnt_from_again(parent: Path, tmp_path: Path) -> None:
    """All problems are solved in the first pass of 16 problems, so the second learns nothing."""
    trainer = small_trainer(
        parent, ROWS["unsolved_only"], tmp_path, steps=3, prompts_per_step=24, schedule="constant"
    )
    norms = [entry["grad_norm"] for entry in logged(trainer)]
    assert norms[0] > 0.0
    assert norms[1] < norms[0]
    assert len(trainer.shaping.planner.state_dict()["solved"]) > 20


def test_the_branch_guide_on_the_reference_by_hand() -> None:
    ones = torch.ones(1, 2)
    guide = BranchGuide(ratio=0.5, threshold=1.0, entropy_of="reference")
    told = Signals(-ones, 9.0 * ones, ones, reference_entropies=torch.tensor([[0.5, 1.4]]))
    factors = guide_log_factors(guide, told, Moment(0, 1, Noise("x")), 0.6, 1.4).exp()
    torch.testing.assert_close(factors, torch.tensor([[1.0, 1.2]]))
    with pytest.raises(ValueError, match="entropies of the reference"):
        guide.factors(Signals(-ones, ones, ones), Moment(0, 1, Noise("x")))


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


def test_a_guide_that_feeds_itself_is_a_sign() -> None:
    watch = Watch(patience=2)
    calm, wild = {"log_q": 1.0, "reward": 0.4}, {"log_q": 1.6, "reward": 0.3}
    assert signs_of(rows(calm, calm, wild, wild), watch) == [("runaway", 1, 4)]
    long = {"log_q": 1.0, "reward": 0.3, "truncated_share": 0.2}
    assert signs_of(rows(calm, calm, long, long), watch) == [("runaway", 1, 4)]
    learning = wild | {"reward": 0.5}
    assert signs_of(rows(calm, calm, learning, learning), watch) == []
    without = [{"reward": 0.4}, {"reward": 0.4}, *[{"reward": 0.3, "truncated_share": 0.2}] * 2]
    assert signs_of(rows(*without), watch) == []
    assert "log_q" not in GOOD


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


RIVALS = [
    *("pass_at_k", "pkpo", "w_reinforce", "steer", "pacs", "maxrl", "ucpo", "uniqueness"),
    *("dars", "dars_hardness", "guided_retry", "verl_rank", "rlpr", "scope", "scope_entropy"),
    *("unsolved_only", "unsolved_only_signed"),
]


@pytest.mark.parametrize("changes", [{}, {"kl": "reverse"}], ids=["alone", "kl"])
@pytest.mark.parametrize("name", RIVALS)
def test_rivals_can_take_several_steps_a_generation(name: str, changes: dict[str, str]) -> None:
    settings = RL.model_validate(SMALL.model_dump() | {"steps_per_generation": 4})
    long = settings.sampling.model_copy(update={"max_tokens": 64})
    algorithm = Algorithm.model_validate(derived(name, **changes))
    large = settings.model_copy(update={"sampling": long, "rollouts": 8})
    assert list(run_conflicts(algorithm, large)) == []
    config = rl.grpo_config(large, algorithm, 1, "cpu", Path("scratch"))
    assert config.steps_per_generation == 4 * config.gradient_accumulation_steps


@pytest.mark.parametrize("name", ["ucpo", "scope", "unsolved_only", "pacs"])
def test_four_steps_a_generation_train(parent: Path, tmp_path: Path, name: str) -> None:
    row = derived(name, **({"kl": "reverse"} if name == "ucpo" else {}))
    trainer = small_trainer(parent, row, tmp_path, steps_per_generation=4)
    log = logged(trainer)
    assert len(log) == 4
    assert all(math.isfinite(entry["grad_norm"]) for entry in log)
    assert sum("rewards/odd_sum/mean" in entry for entry in log) >= 1


def test_a_resumed_run_remembers_what_was_solved(parent: Path, tmp_path: Path) -> None:
    whole, resumed = unbroken_and_resumed(
        parent, ROWS["unsolved_only_signed"], tmp_path, prompts_per_step=12
    )
    assert_same_run(whole, resumed)
    assert whole.shaping.planner.state_dict()["solved"]


def test_group_advantages_are_what_the_credit_rules_weight() -> None:
    """A group of one right and three wrong: UCPO and uniqueness leave GRPO's advantages alone."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    group = GroupNormalised().advantages(rewards[None])[0]
    log_probs = torch.randn(4, 3)
    of = signals(log_probs, [0] * 4, rewards.tolist(), advantages=group, strategies=torch.arange(4))
    for rule in (Ucpo(tau=1.0), Uniqueness(alpha=1.0)):
        torch.testing.assert_close(rule.token_advantages(of), group[:, None].expand(4, 3))
    assert odd_sum([[1], [2]]) == [1.0, 0.0]


def test_every_rival_stands_beside_its_authors_settings() -> None:
    text = (ROOT / "docs/method.md").read_text().split("### The authors' settings")[1]
    ours = {"group", "centred", "beta", "mixed"}  # of GRPO, Dr. GRPO, BNPO and DAPO themselves
    for key in ("advantage", "credit", "planner"):
        for kind in set(REGISTRIES[key].classes) - ours:
            assert f"| `{kind}` |" in text


def test_rates_are_tuned_on_problems_that_no_verdict_is_about() -> None:
    tuning, verdicts = (load_study(name, ROOT / "config") for name in ("rivals_tuning", "rivals"))
    asked = [
        {problem.problem for problem in draw_problems("x", study.problem_set("sheets"))}
        for study in (tuning, verdicts)
    ]
    assert not asked[0] & asked[1]
    rates = {model: tuning.model(model).rl.learning_rate for model in tuning.study.models}
    assert rates == {"plus": 1e-3, "low": 3e-4, "high": 3e-3}
    assert len({tuple(tuning.trained(model)) for model in rates}) == 1
    assert {"grpo", "grpo_no_kl"} < set(tuning.trained("plus"))
    settings = [tuning.model(model).rl.model_dump(exclude={"learning_rate"}) for model in rates]
    assert settings[0] == settings[1] == settings[2]
