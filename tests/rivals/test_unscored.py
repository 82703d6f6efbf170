"""Completions that no reward scores, problems without an answer, and what of a text is graded.

The right values are TRL's where it computes the same.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_groups import NAN, drawn
from token_signals import signals
from trainers import SMALL, SUMS, trainer_of, write_parent
from trl import GRPOTrainer

from sage.method.advantages import Centred, GroupNormalised, pass_at_k
from sage.rivals.dapo import Mixed
from sage.rivals.dars import Dars
from sage.rivals.guided_retry import GuidedRetry
from sage.rivals.pacs import Pacs
from sage.rivals.rlpr import Spread
from sage.rivals.steer import Steer
from sage.rivals.ucpo import Ucpo
from sage.rivals.uniqueness import Uniqueness
from sage.rivals.unsolved_only import UnsolvedOnly
from sage.study import Algorithm
from sage.tasks import Grader
from sage.training.rewards import graded, graded_reward, text_of
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

GRPO = Algorithm(title="x", loss="grpo", kl="none")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parent(tmp_path_factory.mktemp("parent") / "base", SUMS)


def some_unscored(prompts: list[Any], completion_ids: list[list[int]], **_: Any) -> list[Any]:
    """As `odd_sum`, but every third completion is not scored, and no completion of some prompts."""
    return [
        None if i % 3 == 0 or prompt[-1]["content"][2] == "0" else float(sum(ids) % 2)
        for i, (prompt, ids) in enumerate(zip(prompts, completion_ids, strict=True))
    ]


@pytest.mark.parametrize(
    ("shaping", "scale"),
    [
        (Shaping(), "group"),
        (Shaping(advantage=GroupNormalised()), "group"),
        (Shaping(advantage=Centred()), "none"),
        (Shaping(planner=Dars(cap=4)), "group"),
        (Shaping(planner=Dars(cap=4)), "none"),
        (Shaping(planner=UnsolvedOnly()), "group"),
    ],
    ids=str,
)
def test_completions_that_are_not_scored_are_trls(
    parent: Path, tmp_path: Path, shaping: Shaping, scale: str
) -> None:
    """Advantages and the gradient of a first step, in which no planner draws further."""
    batches, norms = [], []
    for kind, more in ((GRPOTrainer, {}), (SageTrainer, {"shaping": shaping})):
        trainer = trainer_of(
            parent, SUMS, SMALL, GRPO, tmp_path, some_unscored, kind=kind,
            trl={"scale_rewards": scale, "max_steps": 1, "shuffle_dataset": False}, **more,
        )  # fmt: skip
        make = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda inputs, make=make: (
            batches.append(make(inputs)) or dict(batches[-1])
        )
        trainer.train()
        log = trainer.state.log_history[0]
        norms.append((log["grad_norm"], log["reward"], log["reward_std"]))
    trls, ours = (batch["advantages"] for batch in batches)
    if shaping.planning is None or ours.shape == trls.shape:
        torch.testing.assert_close(ours, trls)
        assert norms[1] == pytest.approx(norms[0], rel=1e-5)
    else:  # prompts without right and wrong completions are left out
        torch.testing.assert_close(ours[ours != 0], trls[trls != 0])
    assert 0 < (trls != 0).sum() < 12


def test_a_reward_without_weight_scores_nothing(parent: Path, tmp_path: Path) -> None:
    """What the only reward that counts leaves out is left out, whatever another says of it."""
    trainer = trainer_of(
        parent, SUMS, SMALL, GRPO, tmp_path, some_unscored, trl={"max_steps": 1},
        shaping=Shaping(advantage=GroupNormalised()),
    )  # fmt: skip
    asked = {"completion_ids": [[1], [2], [3], [4]], "prompts": [[{"content": "1+1"}]] * 4}
    trainer.reward_funcs = [lambda **_: [1.0] * 4, lambda **_: [None, 1.0, 1.0, 0.0]]
    trainer.reward_func_names, trainer.reward_processing_classes = ["one", "two"], [None, None]
    trainer.reward_weights = torch.tensor([0.0, 1.0])
    given = ([{}] * 4, asked["prompts"], [""] * 4, asked["completion_ids"])
    rewards = trainer._calculate_rewards(*given)
    assert rewards.isnan().all(dim=1).tolist() == [True, False, False, False]
    trainer.reward_weights = torch.tensor([1.0, 1.0])
    assert trainer._calculate_rewards(*given)[0].tolist()[0] == 1.0
    trainer.reward_funcs[0] = lambda **_: [1.0, math.inf, 1.0, 1.0]
    with pytest.raises(ValueError, match="reward one is infinite"):
        trainer._calculate_rewards(*given)


NONE = [NAN] * 4


@pytest.mark.parametrize(
    ("correct", "kept"),
    [([0, NAN, 1, 0], True), ([0, NAN, 0, 0], False), ([1, NAN, 1, 1], False), (NONE, False)],
)
def test_filters_and_planners_leave_out_what_is_not_scored(
    correct: list[float], kept: bool
) -> None:
    """They decide as for a group of the scored rollouts alone."""
    table = torch.tensor([correct])
    assert Mixed().keep(table, table).tolist() == [kept]
    after = drawn([[1.0, 0, 0, 0], correct], draws=2)
    assert Dars().chosen(after).prompts.tolist() == [0, 1][: 1 + kept]
    spread = Spread(share=1.0)
    spread.load_state_dict({"mean": 0.4})
    assert spread.keep(table, table).tolist() == [kept]
    scored = [each for each in correct if not math.isnan(each)]
    assert spread._now == pytest.approx(
        float(torch.tensor(scored).float().std()) if scored else NAN, nan_ok=True
    )
    more = GuidedRetry().further(drawn([correct])).more
    assert more.tolist() == [4 * (sum(scored) == 0 < len(scored))]
    # One right of three: 27 / (2 x 4) - 3 = 0.4. None: 27 / 5 - 3 = 2.4.
    more = Dars(cap=8).further(drawn([correct])).more
    assert more.tolist() == [{1: 1, 0: 3, 3: 0}[int(sum(scored))] if scored else 0]


@pytest.mark.parametrize(
    "rule", [Pacs(), Uniqueness(right_only=False), Steer(), Steer(form="exponential"), Ucpo()]
)
def test_credit_rules_leave_out_what_is_not_scored(rule: Any) -> None:
    """The others have the credit of a smaller group, and those that are not scored none."""
    torch.manual_seed(3)
    log_probs, old = -torch.rand(5, 3), -torch.rand(5, 3)
    rewards, scored = [1.0, 0.0, NAN, 1.0, 0.0], torch.tensor([0, 1, 3, 4])
    advantages = torch.tensor([0.5, -0.5, 0.0, 0.5, -0.5])
    more = {"old_log_probs": old, "entropies": torch.rand(5, 3), "strategies": torch.zeros(5)}
    whole = signals(log_probs, [0] * 5, rewards, advantages=advantages, **more)
    rest = {key: value[scored] for key, value in more.items()}
    alone = signals(log_probs[scored], [0] * 4, [1.0, 0.0, 1.0, 0.0], **rest)
    got = rule.token_advantages(whole)
    assert got[2].tolist() == [0.0] * 3
    torch.testing.assert_close(got[scored], rule.token_advantages(alone))


def test_pass_at_k_while_training_is_of_what_is_scored(parent: Path, tmp_path: Path) -> None:
    """By hand: of two that are scored, one right, pass@1 is 1/2; a set of four there is not."""
    table = torch.tensor([[1.0, 0, NAN, NAN], [1, 1, 0, 0], [NAN] * 4])
    assert pass_at_k(table, 1).nanmean() == 0.5
    assert pass_at_k(table, 2).tolist() == pytest.approx([1, 5 / 6, NAN], nan_ok=True)
    rewards = [1.0, 0.0, None, None, 1.0, 1.0, 0.0, 0.0, *[None] * 8]
    trainer = trainer_of(
        parent, SUMS, SMALL, GRPO, tmp_path, lambda **_: list(rewards),
        trl={"per_device_eval_batch_size": 16}, eval_dataset=None,
    )  # fmt: skip
    trainer.model.eval()
    trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    log = trainer._metrics["eval"]
    assert log["pass@1"] == [0.5]
    assert log["pass@2"] == pytest.approx([(1 + 5 / 6) / 2])
    assert log["pass@4"] == [1.0]


@pytest.mark.parametrize("gold", [None, math.nan, "", " "])
def test_a_problem_without_an_answer_is_not_scored(gold: Any) -> None:
    """No completion is right for saying None."""
    texts = [f"<SOLUTION>{gold}</SOLUTION>", "<SOLUTION>4</SOLUTION>"]
    asked = {"completions": texts, "answer": [gold, 4], "kind": ["math"] * 2}
    assert graded_reward(Grader())(**asked) == [None, 1.0]
    correct, other = graded(Grader(), [("other", Right())], longest=9)
    asked |= {"completions": [[{"content": text}] for text in texts]}
    assert correct(**asked, completion_ids=[[1], [2]]) == [None, 1.0]
    assert other() == [None, 1.0]


class Right:
    def score(self, completion: Any) -> float:
        return float(completion.correct)


def test_what_the_assistant_wrote_last_is_graded() -> None:
    call = {"role": "assistant", "content": "it is 5", "tool_calls": [{"name": "add"}]}
    tool = {"role": "tool", "content": "<SOLUTION>4</SOLUTION>"}
    parts = [{"type": "text", "text": "it is 4"}, {"type": "text", "text": "2, so"}]
    last = {"role": "assistant", "content": parts}
    assert text_of([call, tool, last]) == "it is 42, so"
    assert text_of([call, tool]) == "it is 5"
    assert text_of([{**call, "content": None}, tool]) == text_of([tool]) == ""
    assert text_of("as it is") == "as it is"
    reward = graded_reward(Grader())
    assert reward(completions=[[call, tool, last]], answer=["4"]) == [0.0]
