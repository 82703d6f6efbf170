"""RLPR: probabilities of the gold answer, its reward, and the filter with its running mean."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from trainers import SUMS, assert_same_run, small_trainer, unbroken_and_resumed

from sage.method.rewards import Completion
from sage.policies import load_model, load_tokenizer
from sage.prompting import SOLUTION_OPEN, WORK_CLOSE, completion, prompt_ids
from sage.rivals.rlpr import Rlpr, Spread
from sage.training.rewards import ids_before_answer, plain_ids, with_answer_probabilities
from sage.training.trainer import SageTrainer

pytestmark = [pytest.mark.timeout(4000)]

ROW: dict[str, Any] = {
    "title": "x",
    "loss": "grpo",
    "kl": "none",
    "rewards": ["rlpr"],
    "filter": {"kind": "spread", "settings": {"share": 0.5, "decay": 0.5}, "max_refills": 0},
}


def alone(values: torch.Tensor) -> torch.Tensor:
    return values


def graded(after: float | None, before: float | None) -> Completion:
    return Completion("x", "3", False, 4, 8, after, before)


@pytest.mark.parametrize(("after", "before", "reward"), [(0.75, 0.5, 0.25), (0.25, 0.5, 0.0)])
def test_the_reward_is_what_reasoning_adds(after: float, before: float, reward: float) -> None:
    assert Rlpr().score(graded(after, before)) == reward


def test_a_completion_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the policy's probabilities"):
        Rlpr().score(graded(None, 0.5))


def test_the_filter_by_hand() -> None:
    """Deviations 0.1 and 0.3: all of the first are kept, and their mean is 0.2. With decay 0.5:
    then below 0.1 is dropped, and the mean is (0.2 + 0.05) / 2; then below 0.0625.
    """
    wide = math.sqrt(2)  # the deviation of two rewards is their difference over this

    def pairs(*deviations: float) -> torch.Tensor:
        return torch.tensor([[0.5, 0.5 + wide * each] for each in deviations])

    spread, blank = Spread(share=0.5, decay=0.5), torch.zeros(2, 2)
    assert spread.keep(blank, pairs(0.1, 0.3)).tolist() == [True, True]
    spread.end_step(alone)
    assert spread.state_dict()["mean"] == pytest.approx(0.2)
    for _ in range(2):  # asked twice in a step
        assert spread.keep(blank, pairs(0.0, 0.1001)).tolist() == [False, True]
    spread.end_step(alone)
    spread.end_step(alone)  # a step that learns from the same generation
    assert spread.state_dict()["mean"] == pytest.approx(0.125, abs=1e-4)
    assert spread.keep(blank, pairs(0.062, 0.063)).tolist() == [False, True]


def test_the_filter_counts_the_rollouts_that_are_there() -> None:
    spread, nan = Spread(), math.nan
    rewards = torch.tensor([[0.0, 1.0, nan, nan], [0.0, 0.5, 1.0, 0.5]])
    spread.keep(rewards, rewards)
    spread.end_step(alone)
    deviations = math.sqrt(0.5), math.sqrt(0.5 / 3)
    assert spread.state_dict()["mean"] == pytest.approx(sum(deviations) / 2)


def test_where_the_answer_begins(parent: Path) -> None:
    tokenizer = load_tokenizer(parent)

    def before(text: str) -> str | None:
        ids = ids_before_answer(tokenizer, plain_ids(tokenizer, text))
        return None if ids is None else str(tokenizer.decode(ids))

    written = completion("2+2", "4")
    assert before(written) == f"2+2{WORK_CLOSE}{SOLUTION_OPEN}"
    assert before(f"{written} {completion('3', '5')}").endswith(f"3{WORK_CLOSE}{SOLUTION_OPEN}")  # type: ignore[union-attr]
    assert before(f"1+1{SOLUTION_OPEN}") == f"1+1{SOLUTION_OPEN}"
    assert before("2+2=4") is None
    assert before(SOLUTION_OPEN * 300) == SOLUTION_OPEN * 300


class Glued:
    """A tokenizer in which the tag's last letter and what follows are one token."""

    PARTS = ("2", "<SOLUTION", ">4", "</SOLUTION>")

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self.PARTS[i] if i < 10 else chr(i) for i in ids)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


def test_a_token_across_the_tags_end_is_cut_there() -> None:
    assert ids_before_answer(Glued(), [0, 1, 2, 3]) == [0, 1, ord(">")]


def test_probabilities_are_those_of_one_text_at_a_time(parent: Path, tmp_path: Path) -> None:
    """Answers of one and of several tokens, with and without a tag, and repeated prompts."""
    trainer = small_trainer(parent, ROW, tmp_path, reward=None)
    tokenizer: Any = load_tokenizer(parent)
    model: Any = load_model(parent)
    problems = [SUMS[0], SUMS[0], SUMS[7], SUMS[7]]
    texts = [completion("0+0", "0"), "no answer", completion("1+2=3", "9"), completion("", "3")]
    golds = ["0", "0", "12+1", "12+1"]
    dataset = trainer.train_dataset
    by_text = {row["prompt"][-1]["content"]: row["prompt"] for row in dataset}
    prompts = [by_text[problem.problem] for problem in problems]
    inputs = [{"answer": gold, "kind": "math"} for gold in golds]
    written = [plain_ids(tokenizer, text) for text in texts]
    read = partial(trainer._read, trainer.model)
    rows = with_answer_probabilities(inputs, prompts, written, tokenizer, read, alone=True)
    after, before = ([row[f"{k}_probability"] for row in rows] for k in ("answer", "prior"))

    def mean(problem: str, context: str, gold: str) -> float:
        start = [*prompt_ids(tokenizer, problem), *plain_ids(tokenizer, context)]
        answer = plain_ids(tokenizer, gold)
        with torch.no_grad():
            logits = model(torch.tensor([start + answer])).logits[0]
        of_answer = logits[len(start) - 1 : -1].softmax(-1)
        return float(of_answer.gather(1, torch.tensor(answer)[:, None]).mean())

    bare = f"{WORK_CLOSE}{SOLUTION_OPEN}"
    wanted = [
        0.0
        if text == "no answer"
        else mean(p.problem, text.split(SOLUTION_OPEN)[0] + SOLUTION_OPEN, g)
        for p, text, g in zip(problems, texts, golds, strict=True)
    ]
    assert after == pytest.approx(wanted, rel=1e-4)
    priors = [mean(p.problem, bare, g) for p, g in zip(problems, golds, strict=True)]
    assert before == pytest.approx(priors, rel=1e-4)
    assert after[3] == pytest.approx(before[3])  # reasoning of nothing adds nothing
    assert len({round(each, 6) for each in wanted}) == 4


def written_by_place(trainer: Any) -> None:
    """Completions of the same texts whatever the random model would draw, some without a tag."""
    tokenizer = trainer._tokenizer
    texts = [completion(f"{n}+{n % 3}", str(n)) for n in range(5)] + ["nothing", "2+2"]

    def draw(prompt_ids: Any, *_: Any, **__: Any) -> Any:
        step = trainer.state.global_step
        ids = [plain_ids(tokenizer, texts[(3 * i + step) % 7]) for i in range(len(prompt_ids))]
        return ids, [[0.0] * len(row) for row in ids]

    trainer._generate_single_turn = draw


def test_groups_that_are_dropped_have_no_loss(parent: Path, tmp_path: Path) -> None:
    row = ROW | {"filter": ROW["filter"] | {"settings": {"share": 1.0, "decay": 0.5}}}
    trainer = small_trainer(parent, row, tmp_path, reward=None, prompts_per_step=6)
    trainer.shaping.filter.load_state_dict({"mean": 0.05})
    trainer.model.train()
    rewards = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 1.0, 0.5] * 3)
    trainer.reward_funcs[:] = [lambda **_: [0.0] * 24, lambda **_: rewards.tolist()]
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    has_loss = batch["completion_mask"].any(dim=1)
    assert batch["reward"][has_loss].tolist() == [0.0, 0.5, 1.0, 0.5] * 3
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()


def test_a_resumed_run_equals_an_unbroken_one(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = SageTrainer.train

    def fixed(self: Any, *args: Any, **kwargs: Any) -> Any:
        written_by_place(self)
        return train(self, *args, **kwargs)

    monkeypatch.setattr(SageTrainer, "train", fixed)
    whole, resumed = unbroken_and_resumed(
        parent, ROW, tmp_path, reward=None, sampling={"temperature": 1.0, "max_tokens": 90}
    )
    assert_same_run(whole, resumed)
    log = [row for row in whole.state.log_history if "loss" in row]
    assert log[0]["rewards/rlpr/mean"] > 0
    assert log[0]["reward"] == pytest.approx(log[0]["rewards/rlpr/mean"])  # correctness weighs 0
    assert whole.shaping.filter.state_dict()["mean"] > 0
