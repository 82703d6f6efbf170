"""Rollouts through our own samplers: the policy's distribution, streams by place, corrections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from trainers import SMALL, logged, odd_sum, trainer_of, write_parent
from transformers import LlamaConfig, PreTrainedModel, set_seed

from sage.policies import load_model
from sage.problems.record import Problem
from sage.prompting import prompt_ids
from sage.sampling.distribution import next_token_probabilities
from sage.sampling.interface import Completion, Request
from sage.sampling.memory import cache_bytes, vllm_share
from sage.study import RL, Algorithm
from sage.training import rl
from sage.training.credit import Correction, SamplerFault
from sage.training.drawers import copy_dtype, drawer_for, transformers_rollouts
from sage.training.drawing import Drawer, rollout_stream
from sage.training.trainer import SageTrainer

PROBLEMS = [
    Problem(f"{a}+{b}", f"{a}+{b}{'+1' * (b % 3)}", str(a + b), "math", "1", "test", "0")
    for a in range(5)
    for b in range(5)
]
SETTINGS = SMALL.model_copy(update={"steps": 2})
GRPO: dict[str, Any] = {"title": "x", "loss": "grpo", "kl": "reverse", "estimator": "k3"}
REFILLED: dict[str, Any] = {"title": "x", "loss": "dapo", "kl": "none"}
REFILLED |= {"filter": {"kind": "mixed", "max_refills": 2}}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model, its logits spread so that tokens differ in probability."""
    return write_parent(tmp_path_factory.mktemp("parent") / "base", PROBLEMS, spread=6.0)


def build(parent: Path, row: dict[str, Any] = GRPO, **changes: Any) -> SageTrainer:
    """A trainer as `train_rl` builds it, but for the reward; nothing is saved.

    Of `changes`, `make_drawer`, `correction` and `trims` are the trainer's, the others settings.
    """
    settings = RL.model_validate(SETTINGS.model_dump() | changes.pop("settings", {}))
    algorithm = Algorithm.model_validate(row)
    drawer = drawer_for(settings, load_model(parent), parent, sharded=False)
    return trainer_of(
        parent,
        PROBLEMS,
        settings,
        algorithm,
        parent.with_name("scratch"),
        reward=odd_sum,
        stop_texts=settings.sampling.stop,
        shaping=rl.shaping_of(algorithm),
        **{"make_drawer": drawer, **changes},
    )


def push(model: Any, size: float) -> None:
    """Give a fresh adapter an effect."""
    torch.manual_seed(3)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0.0, size)


def two_tokens(
    model: PreTrainedModel, ends: Sequence[int], prompt: tuple[int, ...], settings: RL
) -> dict[tuple[int, ...], float]:
    """The exact distribution of completions of two tokens, or of one that ends them."""
    sampling = settings.sampling
    with torch.no_grad():
        first = next_token_probabilities(model(torch.tensor([prompt])).logits[:, -1], sampling)[0]
        tokens = first.nonzero()[:, 0].tolist()
        rows = torch.tensor([[*prompt, token] for token in tokens])
        second = next_token_probabilities(model(rows).logits[:, -1], sampling)
    exact: dict[tuple[int, ...], float] = {}
    for token, following in zip(tokens, first[tokens, None] * second, strict=True):
        if token in ends:
            exact[token,] = float(first[token])
        else:
            exact |= {(token, i): float(following[i]) for i in following.nonzero()[:, 0].tolist()}
    return exact


@pytest.mark.slow
@pytest.mark.parametrize("copies", [True, False], ids=["copy", "adapter"])
@pytest.mark.parametrize("by", ["sage", "trl"])
def test_rollouts_have_the_policys_distribution(parent: Path, copies: bool, by: str) -> None:
    """Chi-square of 4,000 rollouts of two tokens, ours and TRL's, against the exact numbers."""
    sampling = {"temperature": 1.2, "max_tokens": 2, "top_k": 5}
    changes = {"sampling": sampling}
    drawer = transformers_rollouts(torch.float32 if copies else None) if by == "sage" else None
    trainer = build(parent, settings=changes, make_drawer=drawer)
    push(trainer.model, 0.3)
    settings = RL.model_validate(SETTINGS.model_dump() | changes)
    prompt = tuple(prompt_ids(trainer.processing_class, PROBLEMS[7].problem))
    plain = {n: w.detach().clone() for n, w in trainer.model.named_parameters()}
    set_seed(11)
    trainer.model.train()
    drawn, log_probs = trainer._generate_single_turn([list(prompt)] * 4_000, None, {}, 4)
    assert all(torch.equal(plain[n], w) for n, w in trainer.model.named_parameters())
    policy: Any = trainer.model.eval()
    exact = two_tokens(policy, trainer.eos_token_ids, prompt, settings)
    counts = Counter(map(tuple, drawn))
    assert set(counts) <= set(exact)
    common = [tokens for tokens, p in exact.items() if p * 4_000 >= 5]
    assert len(common) >= 10
    observed = [counts[tokens] for tokens in common]
    expected = [exact[tokens] * 4_000 for tokens in common]
    observed.append(4_000 - sum(observed))
    expected.append(max(1e-3, 4_000 - sum(expected)))
    assert chisquare(observed, expected, sum_check=False).pvalue > 1e-3
    with policy.disable_adapter():  # another policy's numbers would not fit
        others = two_tokens(policy, trainer.eos_token_ids, prompt, settings)
    other = [others.get(tokens, 0.0) * 4_000 + 1e-3 for tokens in common]
    other.append(max(1e-3, 4_000 - sum(other)))
    assert chisquare(observed, other, sum_check=False).pvalue < 1e-6
    if by == "sage":
        assert log_probs is None  # behind top_k they are not the policy's


class Noted:
    """A drawer in front of another: keeps the names of streams and what was drawn."""

    def __init__(self, drawer: Drawer, shift: float = 0.0) -> None:
        self._drawer, self._shift = drawer, shift
        self.drawn: dict[str, tuple[int, ...]] = {}

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        completions = self._drawer.draw(policy, requests)
        self.drawn |= {r.stream: c.token_ids for r, c in zip(requests, completions, strict=True)}
        return [
            replace(c, log_probs=tuple(x + self._shift for x in c.log_probs)) for c in completions
        ]


def noting(parent: Path, shift: float = 0.0, **settings: Any) -> Any:
    """`make_drawer` for drawers of these settings that are noted."""
    changed = RL.model_validate(SETTINGS.model_dump() | settings)
    make = drawer_for(changed, load_model(parent), parent, sharded=False)
    assert make is not None
    return lambda trainer: Noted(make(trainer), shift)


def test_rollouts_are_named_by_run_step_and_place(parent: Path) -> None:
    """And do not follow from the parts that a step is run in, nor from torch's own generator."""
    drawn = []
    for parts in (1, 4):
        trainer = build(parent, settings={"micro_batches": parts}, make_drawer=noting(parent))
        torch.manual_seed(parts)
        trainer.train()
        drawn.append(trainer._draws.drawer.drawn)  # type: ignore[union-attr]
    first = {rollout_stream(1, "train", 0, 0, place) for place in range(16)}
    assert first <= set(drawn[0])
    assert len(drawn[0]) == 32
    assert drawn[0].keys() == drawn[1].keys()
    assert {drawn[0][name] == drawn[1][name] for name in first} == {True}
    assert len(set(drawn[0].values())) > 20


def test_a_draw_again_in_a_step_has_other_streams(parent: Path) -> None:
    settings = {"steps": 1, "sampling": {"temperature": 1.0, "max_tokens": 1, "stop": []}}
    trainer = build(parent, REFILLED, settings=settings, make_drawer=noting(parent, **settings))
    trainer.reward_funcs[0] = lambda completion_ids, **_: [0.0] * len(completion_ids)
    trainer.train()
    names = set(trainer._draws.drawer.drawn)  # type: ignore[union-attr]
    assert names == {rollout_stream(1, "train", 0, n, p) for n in range(3) for p in range(16)}


def test_drawn_tokens_are_those_of_all_draws_also_after_a_resume(parent: Path) -> None:
    trainer = build(parent, REFILLED, make_drawer=noting(parent))
    trainer.state.log_history = [{"drawn_tokens": 1_000.0}]  # as a checkpoint has them
    trainer.reward_funcs[0] = lambda completion_ids, **_: [0.0] * len(completion_ids)
    first = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    tokens = sum(map(len, trainer._draws.drawer.drawn.values()))  # type: ignore[union-attr]
    assert len(trainer._draws.drawer.drawn) == 3 * 16  # type: ignore[union-attr]
    assert tokens > 0 == first["completion_mask"].sum()  # no group is kept
    assert trainer._metrics["train"]["drawn_tokens"] == [1_000.0 + tokens]


def test_the_sampler_computes_what_the_trainer_does(parent: Path) -> None:
    rows = logged(build(parent, settings={"learning_rate": 3e-2, "steps": 4}))
    assert len(rows) == 4
    for row in rows:
        assert 0.0 < row["sampler/gap_mean"] < 1e-5
        assert row["sampler/gap_mean"] <= row["sampler/gap_max"] < 1e-4
        assert row["sampler/clipped_share"] == 0.0
    assert rows[-1]["kl"] > 1e-3  # it has moved, and the sampler with it


def test_a_sampler_whose_probabilities_are_no_numbers_ends_the_run(parent: Path) -> None:
    trainer = build(parent, make_drawer=noting(parent, shift=float("nan")))
    with pytest.raises(SamplerFault, match=r"\d+ sampled tokens have a log-prob"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("loss", ["grpo", "dapo", "cispo", "vespo"])
def test_the_correction_weights_each_token_up_to_its_cap(parent: Path, loss: str) -> None:
    """A sampler that claims e^-0.5 of its probabilities: the trainer's are e^0.5 times as high."""
    row = {**GRPO, "kl": "none", "estimator": None}
    trl = {"loss_type": loss} | ({"epsilon_high": 1.0 + rl.NO_CLIP} if loss == "cispo" else {})
    norms = []
    for correction in (Correction(), Correction("token"), Correction("token", cap=1.2)):
        trainer = build(
            parent,
            row,
            settings={"steps": 1},
            trl=trl,
            make_drawer=noting(parent, shift=-0.5),
            correction=correction,
        )
        (entry,) = logged(trainer)
        assert entry["sampler/gap_mean"] == pytest.approx(0.5, abs=1e-4)
        assert entry["sampler/gap_max"] == pytest.approx(0.5, abs=1e-4)
        assert entry["sampler/clipped_share"] == float(correction.cap == 1.2)
        norms.append(entry["grad_norm"])
    assert norms[0] > 1e-3
    if loss == "vespo":  # it puts the weights into its own, which are not linear in them
        assert len(set(norms)) == 3
    else:
        assert norms[1] / norms[0] == pytest.approx(1.6487, rel=1e-3)
        assert norms[2] / norms[0] == pytest.approx(1.2, rel=1e-3)


def test_passes_without_padding_give_the_same_gradient(parent: Path) -> None:
    whole, cut = (
        logged(build(parent, settings={"prompts_per_step": 8, "rollouts": 8}, trims=trims))
        for trims in (False, True)
    )
    for left, right in zip(whole, cut, strict=True):
        assert left["grad_norm"] > 1e-3
        for key in ("grad_norm", "kl", "entropy", "completions/mean_length", "reward"):
            assert right[key] == pytest.approx(left[key], rel=1e-3, abs=1e-6), key


def test_what_draws_is_a_copy_only_where_that_is_exact() -> None:
    def dtype(sharded: bool = False, fusible: bool = True, **changes: Any) -> torch.dtype | None:
        return copy_dtype(SETTINGS.model_copy(update=changes), fusible, sharded)

    short = {"precision": "bfloat16"}
    assert dtype() == torch.float32
    assert dtype(fusible=False) is None
    assert dtype(**short) is None
    assert dtype(**short, lora=None, sharded=True) == torch.bfloat16


def test_vllms_share_of_a_gpu_follows_from_what_it_holds() -> None:
    gib = 2**30
    # 10 of weights, 8 of cache and 2 of its own, of 40.
    assert vllm_share(40 * gib, 10 * gib, 8 * gib) == 0.5
    # The trainer needs 10 of weights and 4 more, which leaves 26.
    assert vllm_share(40 * gib, 10 * gib, 20 * gib) == 0.65
    assert vllm_share(80 * gib, 0, 0) == 0.1
    # 2 x 3 layers x 2 key-value heads x 8 numbers x 10 tokens in bfloat16.
    config = LlamaConfig(
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=32
    )
    assert cache_bytes(config, 10, 2) == 2 * 3 * 2 * 8 * 10 * 2


def test_behind_a_filter_the_samplers_probabilities_are_not_compared(parent: Path) -> None:
    """They are of another distribution: no gaps, no ratios, and no off-policy mask from them."""
    sampling = SMALL.sampling.model_dump() | {"top_k": 3}
    rows = logged(build(parent, settings={"sampling": sampling, "steps": 2}))
    assert len(rows) == 2
    assert not any(key.startswith("sampler/") for row in rows for key in row)
    cut = rl.RL.model_validate(SMALL.model_dump() | {"engine": "vllm", "sampling": sampling})
    assert rl.correction_of(cut).kind == "none"
    assert rl.correction_of(cut.model_copy(update={"sampling": SMALL.sampling})).kind == "token"


def test_behind_a_filter_no_completion_counts_as_off_policy(parent: Path) -> None:
    """TRL's mask takes the sampler's log-probs for the policy's; those behind top_k are higher."""
    sampling = SMALL.sampling.model_dump() | {"top_k": 3}

    def step(threshold: float | None, **more: Any) -> tuple[float, float]:
        trl = {"off_policy_mask_threshold": threshold}
        (row,) = logged(build(parent, trl=trl, **more))
        return row["loss"], row["grad_norm"]

    cut: dict[str, Any] = {"settings": {"steps": 1, "sampling": sampling}}
    assert step(0.1, **cut) == step(None, **cut)
    assert step(None, **cut)[1] > 1e-3
    shifted: dict[str, Any] = {"settings": {"steps": 1}, "make_drawer": noting(parent, shift=0.5)}
    assert step(0.1, **shifted) != step(None, **shifted)  # what the mask does without a filter


class Silent:
    """A drawer in front of another that knows no log-prob of a completion's first token."""

    def __init__(self, drawer: Drawer) -> None:
        self._drawer = drawer

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        drawn = self._drawer.draw(policy, requests)
        return [replace(one, log_probs=(None, *one.log_probs[1:])) for one in drawn]


def test_a_token_whose_log_prob_the_sampler_does_not_know_is_not_compared(parent: Path) -> None:
    make = noting(parent, shift=-0.5)
    rows = [
        logged(build(parent, settings={"steps": 1}, make_drawer=drawer))[0]
        for drawer in (make, lambda trainer: Silent(make(trainer)))
    ]
    for row in rows:
        assert row["sampler/gap_mean"] == pytest.approx(0.5, abs=1e-4)
    assert rows[0]["grad_norm"] == rows[1]["grad_norm"] > 1e-3
