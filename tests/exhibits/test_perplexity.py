"""Perplexity under the base policy, and where samples leave it, against numbers worked by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from graded import problem, samples
from tiny_models import tiny
from transformers import PreTrainedModel

from sage.evaluation.token_signals import _read, length_sorted, signals_of, token_signals
from sage.exhibits.perplexity_of_responses import (
    choose_problems,
    choose_responses,
    perplexity,
    perplexity_table,
    tail_table,
)
from sage.policies import build_tiny, train_tokenizer
from sage.prompting import prompt_ids


@pytest.fixture(scope="module")
def network() -> PreTrainedModel:
    """A random tiny model with sharpened logits, so that probabilities differ."""
    shape = tiny(heads=4, key_value_heads=2, max_positions=64)
    model = build_tiny(shape, train_tokenizer(["Calculate 1+2."] * 9, 300), seed=5)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(20)
    return model


def random_pairs(vocabulary: int) -> tuple[list[list[int]], list[list[int]]]:
    rng = random.Random(1)

    def ids(length: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(length)]

    lengths = [(1, 1), (9, 3), (3, 20), (5, 1), (12, 17), (3, 7), (2, 30)]
    return [ids(first) for first, _ in lengths], [ids(second) for _, second in lengths]


@torch.inference_mode()
def token_by_token(model: Any, prompt: list[int], written: list[int]) -> list[float]:
    """A token at a time with a key-value cache, alone in its batch."""
    output = model(torch.tensor([prompt]), use_cache=True)
    log_probs = []
    for token in written:
        log_probs.append(output.logits[0, -1].float().log_softmax(-1)[token].item())
        output = model(
            torch.tensor([[token]]), past_key_values=output.past_key_values, use_cache=True
        )
    return log_probs


@pytest.mark.parametrize(
    ("batch_tokens", "chunk_logits"), [(16_384, 2**27), (40, 2**27), (16_384, 5 * 7 * 300), (1, 1)]
)
def test_log_probs_agree_with_reading_token_by_token(
    network: PreTrainedModel, batch_tokens: int, chunk_logits: int
) -> None:
    prompts, written = random_pairs(network.config.vocab_size)
    signals = token_signals(network, prompts, written, batch_tokens, chunk_logits)
    found = [log_probs for log_probs, _ in signals]
    for prompt, ids, row in zip(prompts, written, found, strict=True):
        expected = token_by_token(network.eval(), prompt, ids)
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-5)
        assert perplexity(row) == pytest.approx(math.exp(-np.mean(expected)), rel=1e-5)
    assert np.ptp(np.concatenate(found)) > 1


def test_logits_held_at_a_time_are_bounded(
    network: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, written = random_pairs(network.config.vocab_size)
    sizes = []
    forward = network.forward

    def measured(*arguments: Any, **settings: Any) -> Any:
        output = forward(*arguments, **settings)
        sizes.append(output.logits.numel())
        return output

    monkeypatch.setattr(network, "forward", measured)
    token_signals(network, prompts, written, 16_384, chunk_logits=10 * 300)
    assert max(sizes) <= 10 * 300
    assert len(sizes) > 7


def test_batches_are_of_like_length_and_bounded() -> None:
    assert length_sorted([5, 1, 4, 2, 50], 10, 8) == [[1, 3], [2, 0], [4]]
    assert length_sorted([3, 3, 3], 100, 2) == [[0, 1], [2]]
    assert length_sorted([], 10, 8) == []


def test_perplexity_of_known_probabilities() -> None:
    """Probabilities 1/2, 1/4, 1/8: the geometric mean of 2, 4, 8 is 4."""
    assert perplexity(np.log([1 / 2, 1 / 4, 1 / 8])) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="without tokens"):
        perplexity(np.array([]))


def test_empty_prompts_and_completions_are_refused(network: PreTrainedModel) -> None:
    for prompt, ids in ([], [1]), ([1], []):
        with pytest.raises(ValueError, match="pair 0"):
            token_signals(network, [prompt], [ids])


def with_tokens(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(token_ids=[[row % 7 + 3, 5] for row in range(len(frame))])


def test_the_same_responses_are_chosen_whatever_the_order() -> None:
    frame = with_tokens(samples({"p1": "cwcw", "p2": "wwww"}))
    shuffled = frame.sample(frac=1.0, random_state=0)
    runs = {
        ("m", "base", 0, "b"): shuffled,
        ("m", "grpo", 9, "b"): frame.assign(status="timeout"),
        ("m", "grpo", 3, "b"): frame,
    }
    chosen = choose_responses(runs, ["base", "grpo"], ["p2", "p1"], responses=3)
    assert chosen["problem_id"].tolist() == (["p2"] * 3 + ["p1"] * 3) * 3
    assert chosen["sample_index"].tolist() == [0, 1, 2] * 6
    assert chosen.loc[chosen["algorithm"] == "grpo", "train_seed"].unique().tolist() == [3, 9]
    assert chosen.loc[3, "token_ids"] == frame.loc[0, "token_ids"]


def test_lacking_responses_are_named() -> None:
    runs = {("m", "base", 0, "b"): with_tokens(samples({"p1": "cw"}))}
    with pytest.raises(ValueError, match="2 samples of problem 'p1'"):
        choose_responses(runs, ["base"], ["p1"], responses=3)
    with pytest.raises(ValueError, match="no samples of 'grpo'; there are base"):
        choose_responses(runs, ["grpo"], ["p1"], responses=2)
    without = {run: frame.drop(columns="token_ids") for run, frame in runs.items()}
    with pytest.raises(ValueError, match="no column token_ids"):
        choose_responses(without, ["base"], ["p1"], responses=2)


def test_problems_are_the_named_or_the_first() -> None:
    assert choose_problems(["b", "a", "c"]) == ["b", "a"]
    assert choose_problems(["b", "a", "c"], ["c"]) == ["c"]
    with pytest.raises(ValueError, match="problems x are not"):
        choose_problems(["a"], ["x"])
    with pytest.raises(ValueError, match="the benchmark has 1"):
        choose_problems(["a"])


def test_the_table_reads_the_stored_tokens(network: PreTrainedModel) -> None:
    tokenizer = train_tokenizer(["Calculate 1+2."] * 9, 300)
    asked = [problem("p1"), problem("p2")]
    runs = {("m", "base", 0, "b"): with_tokens(samples({"p1": "cw", "p2": "cw"}))}
    chosen = choose_responses(runs, ["base"], ["p1", "p2"], responses=2)
    table = perplexity_table(network, tokenizer, asked, chosen)
    for place, row in table.iterrows():
        prompt = prompt_ids(tokenizer, f"Calculate {row['problem_id']}.")
        alone = token_by_token(network, prompt, chosen.loc[place, "token_ids"])
        assert row["perplexity"] == pytest.approx(math.exp(-sum(alone) / 2), rel=1e-5)
    with pytest.raises(ValueError, match="2 tokens but n_tokens 3"):
        perplexity_table(network, tokenizer, asked, chosen.assign(n_tokens=3))


def test_an_answer_drawn_several_times_is_read_once(
    network: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = train_tokenizer(["Calculate 1+2."] * 9, 300)
    asked = [problem("p1"), problem("p2")]
    drawn = [("p1", [5, 6]), ("p2", [5, 6]), ("p1", [5, 7]), ("p1", [5, 6]), ("p2", [5, 6])]
    frame = pd.DataFrame(drawn, columns=["problem_id", "token_ids"])
    read: list[int] = []

    def counted(model: Any, pairs: Any, *more: Any) -> Any:
        read.append(len(pairs))
        return _read(model, pairs, *more)

    monkeypatch.setattr("sage.evaluation.token_signals._read", counted)
    found = signals_of(network, tokenizer, asked, frame)
    assert sum(read) == 3
    for (name, ids), (row, _) in zip(drawn, found, strict=True):
        alone = token_by_token(network, prompt_ids(tokenizer, f"Calculate {name}."), ids)
        np.testing.assert_allclose(row, alone, rtol=0, atol=1e-5)
    signals_of(network, tokenizer, asked, frame, others=1)  # other tokens are drawn for each
    assert sum(read) == 3 + 5


def test_tails_are_measured_against_the_base() -> None:
    values = {"base": np.arange(1.0, 101.0), "grpo": np.full(4, 2.0), "branch": [99.0, 1.0]}
    frame = pd.concat(
        pd.DataFrame({"problem_id": "p", "algorithm": name, "perplexity": column})
        for name, column in values.items()
    )
    table = tail_table(frame).set_index("algorithm")
    assert table["tail_share"].to_dict() == {"base": 0.05, "grpo": 0.0, "branch": 0.5}
    assert table.loc["base", "upper"] == pytest.approx(95.05)
    assert table["median"].tolist() == [50.5, 2.0, 50.0]
    with pytest.raises(ValueError, match="no responses of 'base'"):
        tail_table(frame[frame["algorithm"] != "base"])
