"""The transformers engine and its shards: right frequencies, own streams, nothing drawn twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from peft import IA3Config, LoraConfig, PeftConfig, PromptTuningConfig, get_peft_model
from scipy.stats import chisquare
from transformers import (
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MinPLogitsWarper,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from sage.evaluation.samples import evaluate
from sage.policies import (
    build_tiny,
    load_model,
    load_policy,
    load_tokenizer,
    save_checkpoint,
    train_tokenizer,
)
from sage.problems.record import Problem
from sage.prompting import prompt_ids
from sage.runtime.manifest import Manifest
from sage.sampling import Completion, Request, TransformersSampler, stream_key
from sage.sampling.decoders import Decoding, ModuleDecoder, Prompts
from sage.sampling.distribution import draw, next_token_probabilities, stream_uniforms
from sage.sampling.engines import open_sampler
from sage.sampling.fused import FusedDecoder, is_fusible
from sage.sampling.identity import checkpoint_digest, code_digest
from sage.sampling.memory import bytes_per_row, is_out_of_memory
from sage.sampling.shards import Sample, Shards
from sage.sampling.transformers_engine import branched
from sage.study import Architecture, Evaluation, Sampling

P = [0.5, 0.3, 0.15, 0.05]
FILTERS = [
    ({}, P),
    ({"top_k": 2}, [0.625, 0.375, 0, 0]),
    ({"top_p": 0.8}, [0.625, 0.375, 0, 0]),
    ({"top_p": 0.81}, [50 / 95, 30 / 95, 15 / 95, 0]),
    ({"min_p": 0.25}, [50 / 95, 30 / 95, 15 / 95, 0]),
    ({"temperature": 0.5}, [25 / 36.5, 9 / 36.5, 2.25 / 36.5, 0.25 / 36.5]),
    ({"temperature": 0.5, "top_k": 3, "top_p": 0.9}, [25 / 34, 9 / 34, 0, 0]),
]


def sampling(**settings: object) -> Sampling:
    return Sampling(**{"temperature": 1.0, "max_tokens": 12, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(("settings", "expected"), FILTERS)
def test_each_setting_gives_its_distribution(
    settings: dict[str, float], expected: list[float]
) -> None:
    """By hand, and by the frequencies of 20,000 draws (chi-square)."""
    found = next_token_probabilities(torch.tensor([P]).log(), sampling(**settings))
    assert found[0].tolist() == pytest.approx(expected)
    uniforms = [stream_uniforms(f"chi-square/{settings}/{i}", 1)[0] for i in range(20_000)]
    tokens = draw(found.expand(20_000, -1), torch.tensor(uniforms))
    counts = torch.bincount(tokens, minlength=4).numpy()
    possible = np.array(expected) > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], 20_000 * np.array(expected)[possible]).pvalue > 1e-3


def test_settings_mean_what_they_mean_in_transformers() -> None:
    logits = torch.randn(50, 40, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 3
    theirs = logits.clone()
    for warper in (
        TemperatureLogitsWarper(0.7),
        TopKLogitsWarper(20),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.05),
    ):
        theirs = warper(torch.zeros(50, 1, dtype=torch.long), theirs)
    ours = next_token_probabilities(
        logits, sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05)
    )
    torch.testing.assert_close(ours, theirs.softmax(dim=-1))
    assert ((ours > 0).sum(dim=-1) < 20).any()


def test_draw_inverts_the_distribution_function() -> None:
    p = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.double).expand(5, -1)
    uniforms = torch.tensor([0.0, 0.2499, 0.25, 0.9, 1.0 - 1e-16], dtype=torch.double)
    assert draw(p, uniforms).tolist() == [1, 1, 3, 3, 3]


def test_draws_from_shared_rows_are_those_from_copies() -> None:
    random = torch.Generator().manual_seed(0)
    p = torch.rand(5, 9, generator=random, dtype=torch.float64)
    p[1, 4:] = 0.0
    p = p / p.sum(dim=-1, keepdim=True)
    rows = torch.randint(5, (4000,), generator=random)
    uniforms = torch.rand(4000, generator=random, dtype=torch.float64)
    uniforms[0], rows[0] = 1.0 - 2.0**-53, 1
    assert torch.equal(draw(p, uniforms, rows), draw(p[rows], uniforms))


def test_a_row_that_is_not_a_number_spoils_no_other() -> None:
    p = torch.full((4, 8), 1 / 8, dtype=torch.float64)
    uniforms = torch.tensor([0.1, 0.3, 0.5, 0.99])
    clean = draw(p, uniforms)
    for bad in ([0], [1], [2, 3], [0, 1, 2, 3]):
        broken = p.clone()
        broken[bad] = torch.nan
        expected = clean.clone()
        expected[bad] = 7
        assert torch.equal(draw(broken, uniforms), expected)


def test_a_stream_depends_on_its_name_alone() -> None:
    assert (stream_uniforms("a", 3) == stream_uniforms("a", 9)[:3]).all()
    assert (stream_uniforms("a", 3) != stream_uniforms("b", 3)).all()
    assert stream_uniforms("a", 1)[0] == pytest.approx(0.16441050396696144)


def test_every_part_of_a_name_makes_another_stream() -> None:
    base = ("m", 1, "b", "p", 0, 0)
    others = [("n", *base[1:]), ("m", 2, *base[2:]), ("m", 1, "c", *base[3:])]
    others += [("m", 1, "b", "q", 0, 0), ("m", 1, "b", "p", 1, 0), ("m", 1, "b", "p", 0, 1)]
    others += [("m", 1, "b", 'p", 0', 0, 0), ("m", 1, "b|p", "", 0, 0)]
    assert len({stream_key(*name) for name in [base, *others]}) == 9


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So that two processes sum in one order, whatever else the machine does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random weights: any text, of any length."""
    folder = tmp_path_factory.mktemp("model") / "base"
    tokenizer = train_tokenizer((f"Calculate {i}+{i % 7}. The sum." for i in range(200)), 320)
    architecture = Architecture(
        hidden_size=32,
        intermediate_size=64,
        layers=2,
        heads=2,
        key_value_heads=1,
        max_positions=128,
        vocab_size=320,
    )
    save_checkpoint(build_tiny(architecture, tokenizer, seed=1), tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def requests(base: Path) -> list[Request]:
    """Prompts of several lengths, several samples each."""
    tokenizer = load_tokenizer(base)
    problems = ["Calculate 1+2.", "Calculate 1+2-3+4-5.", "Calculate 7-9+1."]
    prompts = [tuple(prompt_ids(tokenizer, problem)) for problem in problems]
    return [Request(prompt, f"{i}/{j}") for i, prompt in enumerate(prompts) for j in range(24)]


LETTERS = sampling(stop=["e", "lcu", "</SOLUTION>"], max_tokens=24)


def sample(
    base: Path, requests: Sequence[Request], batch_size: int, settings: Sampling = LETTERS
) -> list[Completion]:
    sampler = TransformersSampler.of(load_model(base), load_tokenizer(base), batch_size)
    return sampler.sample(requests, settings)


def test_batches_do_not_change_a_sample(base: Path, requests: list[Request]) -> None:
    alone = [sample(base, [request], 1)[0] for request in requests[:8]]
    together = sample(base, requests, 640)
    assert together[:8] == alone
    assert sample(base, requests, 7) == together
    assert sample(base, requests[::-1], 64) == together[::-1]
    assert len({c.text for c in together}) > len(together) / 2


def llama() -> PreTrainedModel:
    """Llama with biases, grouped heads of another size, an untied head and scaled rotations."""
    torch.manual_seed(2)
    scaled = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0}
    scaled |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled |= {"original_max_position_embeddings": 32}
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=90,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            attention_bias=True,
            tie_word_embeddings=False,
            max_position_embeddings=512,
            initializer_range=0.3,
            rope_parameters=scaled,
        )
    ).eval()


KEPT = {3: [0, 1, 2, 3, 1], 20: [4, 1, 2, 3, 1, 0, 0, 2, 2], 60: [0, 1, 7, 3], 80: [3, 1]}
"""After which step which rows go on."""


@pytest.mark.parametrize("adapted", [False, True])
def test_the_fused_decoder_computes_what_the_model_does(base: Path, adapted: bool) -> None:
    """Prompts of several lengths, rows that branch or are dropped, a cache that has to grow."""
    for model in (load_model(base).eval(), llama()):
        policy: Any = model
        if adapted:
            targets = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
            config = LoraConfig(r=3, lora_alpha=7, target_modules=targets, init_lora_weights=False)
            policy = get_peft_model(model, config).eval()
        prompts = [(5, 6, 7), tuple(range(9, 40)), (5, 6, 7), (8,)]
        with torch.inference_mode():
            fused, logits = FusedDecoder(policy).start(prompts, 200, 9)
            plain, expected = ModuleDecoder(policy).start(prompts, 200, 9)
            for step in range(200):
                torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
                tokens = (torch.arange(len(logits)) * 7 + step * 3) % 80
                logits, expected = fused.step(tokens), plain.step(tokens)
                if step in KEPT:
                    kept = torch.tensor(KEPT[step])
                    fused.keep(kept)
                    plain.keep(kept)
                    logits, expected = logits[kept], expected[kept]
        assert expected.std() > 0.1


def test_rows_branch_where_completions_draw_different_tokens() -> None:
    rows, tokens = torch.tensor([1, 0, 1, 0, 3, 1]), torch.tensor([7, 5, 7, 6, 5, 2])
    sources, following, after = branched(rows, tokens, 4, 10)
    # Row 2 has nobody left: a branch of another row takes its place.
    assert (sources[0], sources[1], sources[3]) == (0, 1, 3)
    assert sources[after].tolist() == rows.tolist()
    assert following[after].tolist() == tokens.tolist()
    assert len({*after.tolist()}) == len(sources) == 5  # 1 drew 7 twice


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_branches_follow_their_completions(count: int) -> None:
    random = torch.Generator().manual_seed(count)
    for completions in (1, 7, 48, 49, 64):
        rows = torch.randint(count, (completions,), generator=random)
        tokens = torch.randint(3, (completions,), generator=random)
        sources, following, after = branched(rows, tokens, count, 3)
        assert torch.equal(sources[after], rows)
        assert torch.equal(following[after], tokens)
        different = len({*zip(rows.tolist(), tokens.tolist(), strict=True)})
        assert len({*after.tolist()}) == different <= len(sources)
        # Rows of nobody stay while they are few, since dropping them moves others.
        assert len(sources) == different or 0.75 * count <= different < count == len(sources)
        assert sources.max() < count
        own = sources == torch.arange(len(sources))
        kept = {*rows.tolist()} & set(range(len(sources)))
        assert own[list(kept)].all()


def test_completions_share_a_row_while_they_are_the_same(base: Path) -> None:
    class Counting(FusedDecoder):
        def logits(self, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
            rows.append(len(ids))
            return super().logits(ids, *rest)

    rows: list[int] = []
    tokenizer = load_tokenizer(base)
    sampler = TransformersSampler(Counting(load_model(base)), tokenizer, [], 64)
    requests = [Request(prompt, f"{prompt}{i}") for prompt in [(5, 6), (7,)] for i in range(32)]
    cold = Sampling(temperature=1e-5, max_tokens=6)
    drawn = sampler.sample(requests, cold)
    assert rows == [2] * 6
    assert len({one.token_ids for one in drawn}) == 2
    rows.clear()
    warm = sampler.sample(requests, Sampling(temperature=1.0, max_tokens=6))
    for step, batch in enumerate(rows):
        begun = {  # with what has been drawn so far, and whether more is
            (request.prompt_ids, one.token_ids[:step]): one.n_tokens > step
            for request, one in zip(requests, warm, strict=True)
        }
        assert sum(begun.values()) <= batch <= len(begun)
    assert rows[0] == 2 < rows[1] < rows[-1] <= 64


def test_a_fused_decoder_follows_training_and_writes_nothing_back(base: Path) -> None:
    config = LoraConfig(r=3, lora_alpha=7, target_modules=["q_proj", "up_proj"])
    policy: Any = get_peft_model(load_model(base), config).eval()
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    decoder = FusedDecoder(policy)

    def first_logits() -> torch.Tensor:
        with torch.inference_mode():
            return decoder.start([(5, 6, 7)], 1, 1)[1]

    untrained = first_logits()
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data += 0.1
            before[name] += 0.1
    torch.testing.assert_close(first_logits(), untrained, rtol=0, atol=0)
    decoder.refresh()
    with torch.no_grad():
        expected = policy(torch.tensor([[5, 6, 7]])).logits[:, -1]
    torch.testing.assert_close(first_logits(), expected, rtol=1e-4, atol=1e-5)
    assert (expected - untrained).abs().max() > 1e-3
    assert all(torch.equal(before[name], weight) for name, weight in policy.named_parameters())


def test_another_architecture_is_not_fused(base: Path) -> None:
    model = load_model(base)
    assert is_fusible(model)
    for key, value in (("hidden_act", "gelu"), ("model_type", "qwen3")):
        other = load_model(base)
        setattr(other.config, key, value)
        assert not is_fusible(other)
        with pytest.raises(ValueError, match="not an architecture"):
            FusedDecoder(other)


@pytest.mark.parametrize(
    "more",
    [
        {"use_dora": True},
        {"lora_bias": True},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"modules_to_save": ["norm"]},
        {"trainable_token_indices": [3]},
    ],
)
def test_an_adapter_that_is_more_than_plain_lora_is_not_fused(
    base: Path, more: dict[str, Any]
) -> None:
    plain = {"r": 3, "target_modules": ["q_proj", "up_proj"], "init_lora_weights": False}
    assert is_fusible(get_peft_model(load_model(base), LoraConfig(**plain)))
    policy: Any = get_peft_model(load_model(base), LoraConfig(**plain | more))
    assert not is_fusible(policy)
    with pytest.raises(ValueError, match="not plain LoRA"):
        FusedDecoder(policy)


@pytest.mark.parametrize(
    "config",
    [
        PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
        IA3Config(task_type="CAUSAL_LM"),
    ],
)
def test_an_adapter_of_another_kind_is_not_fused(base: Path, config: PeftConfig) -> None:
    assert not is_fusible(get_peft_model(load_model(base), config))


def test_a_model_with_recurrent_layers_is_decoded(base: Path) -> None:
    """Its rows hold states as well as keys and values: all of them follow a row that moves."""
    torch.manual_seed(0)
    config = Lfm2Config(
        vocab_size=48,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
        initializer_range=0.3,
    )
    model = Lfm2ForCausalLM(config).eval()
    texts = [[5, 6, 7], [8, 9, 10], [11, 12, 13]]
    with torch.inference_mode():
        decoding, _ = ModuleDecoder(model).start([tuple(text) for text in texts], 5, 4)
        for kept, tokens in (
            ([0, 1, 1], [1, 2, 3]),
            ([2, 1, 0, 0], [4, 5, 6, 7]),
            ([3, 0], [8, 9]),
        ):
            decoding.keep(torch.tensor(kept))
            texts = [[*texts[row], token] for row, token in zip(kept, tokens, strict=True)]
            expected = model(torch.tensor(texts)).logits[:, -1]
            torch.testing.assert_close(
                decoding.step(torch.tensor(tokens)), expected, rtol=1e-3, atol=1e-4
            )


def test_a_young_adapter_is_not_rounded_away_in_16_bit_weights(base: Path, tmp_path: Path) -> None:
    """Half of it would be, were it merged; in float32 nothing else differs."""
    short = tmp_path / "base"
    save_checkpoint(load_model(base, torch.bfloat16), load_tokenizer(base), short)
    config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    adapted: Any = get_peft_model(load_model(short), config).eval()
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=2.5e-4)
    adapted.save_pretrained(tmp_path / "adapter")
    policy: Any = load_policy(short, tmp_path / "adapter", torch.bfloat16, "cpu")
    assert policy.dtype == torch.bfloat16
    sampler = TransformersSampler.of(policy, load_tokenizer(short), 64, consume=True)
    policy.float()  # what the sampler draws from is the policy itself, and no copy
    prompt = (5, 6, 7)
    requests = [Request(prompt, str(i)) for i in range(16)]
    for one in sampler.sample(requests, LETTERS, log_probs=True):
        ids = torch.tensor([[*prompt, *one.token_ids]])
        drawn = ids[0, len(prompt) :, None]
        with torch.no_grad():
            logits = adapted(ids).logits[0, len(prompt) - 1 : -1]
        expected = logits.double().log_softmax(-1).gather(-1, drawn)[:, 0]
        torch.testing.assert_close(
            torch.tensor(one.log_probs).double(), expected, rtol=0, atol=1e-5
        )


def test_both_decoders_draw_the_same(base: Path, requests: list[Request]) -> None:
    tokenizer = load_tokenizer(base)
    decoder = ModuleDecoder(load_model(base).eval())
    plain = TransformersSampler(decoder, tokenizer, [tokenizer.eos_token_id], 64)
    assert plain.sample(requests, LETTERS) == sample(base, requests, 64)


def test_log_probs_are_those_of_the_drawn_tokens(base: Path, requests: list[Request]) -> None:
    settings = LETTERS.model_copy(update={"temperature": 0.7, "min_p": 0.02})
    sampler = TransformersSampler.of(load_model(base), load_tokenizer(base), 64)
    drawn = sampler.sample(requests[::9], settings, log_probs=True)
    model = load_model(base).eval()
    for request, one in zip(requests[::9], drawn, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *one.token_ids]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1]
        p = next_token_probabilities(logits, settings).gather(-1, ids[0, -one.n_tokens :, None])
        assert len(one.log_probs) == one.n_tokens
        torch.testing.assert_close(
            torch.tensor(one.log_probs), p[:, 0].log().float(), rtol=1e-4, atol=1e-4
        )


def written(tokenizer: PreTrainedTokenizerBase, drawn: list[int], stops: Sequence[str]) -> bool:
    return any(stop in tokenizer.decode(drawn, skip_special_tokens=True) for stop in stops)


def test_samples_agree_with_a_token_by_token_reference(base: Path, requests: list[Request]) -> None:
    """No cache, no padding, no batch, the whole text read at each token."""
    model, tokenizer = load_model(base).eval(), load_tokenizer(base)
    reasons = set()
    for request, completion in zip(requests, sample(base, requests, 64), strict=True):
        ids, drawn = list(request.prompt_ids), list[int]()
        for uniform in stream_uniforms(request.stream, LETTERS.max_tokens):
            with torch.no_grad():
                logits = model(torch.tensor([ids + drawn])).logits[:, -1]
            p = next_token_probabilities(logits, LETTERS)
            drawn.append(int(draw(p, torch.tensor([uniform]))[0]))
            ended = written(tokenizer, drawn, LETTERS.stop) or drawn[-1] == tokenizer.eos_token_id
            if ended:
                break
        whole = tokenizer.decode(drawn, skip_special_tokens=True)
        assert whole.startswith(completion.text)
        assert completion.n_tokens == len(drawn)
        assert completion.finish_reason == ("stop" if ended else "length")
        reasons.add(completion.finish_reason)
    assert reasons == {"stop", "length"}


def test_a_stop_text_is_kept_and_nothing_behind_it(base: Path, requests: list[Request]) -> None:
    tokenizer = load_tokenizer(base)
    pieces = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    assert any("e" in piece[:-1] for piece in pieces)  # a token that goes on behind it
    completions = sample(base, requests, 64)
    endings = {c.text[-1:] for c in completions if c.finish_reason == "stop"}
    assert {"e"} < endings | {""}
    for completion in completions:
        assert completion.text.count("e") == completion.text.endswith("e")
        if completion.finish_reason == "length":
            assert completion.n_tokens == LETTERS.max_tokens


def test_without_stop_texts_only_the_end_of_text_ends(base: Path, requests: list[Request]) -> None:
    completions = sample(base, requests, 64, sampling(stop=[], max_tokens=24))
    assert any("e" in completion.text[:-1] for completion in completions)


def test_first_tokens_have_the_models_frequencies(base: Path) -> None:
    model, tokenizer = load_model(base).eval(), load_tokenizer(base)
    prompt = tuple(prompt_ids(tokenizer, "Calculate 3+4."))
    settings = sampling(max_tokens=1, stop=[], temperature=0.8, top_k=12)
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[:, -1]
    expected = next_token_probabilities(logits, settings)[0]
    drawn = sample(base, [Request(prompt, f"{i}") for i in range(6_000)], 2_000, settings)
    by_text = pd.Series(expected).groupby(
        tokenizer.batch_decode([[i] for i in range(len(expected))], skip_special_tokens=True)
    )
    likely = by_text.sum().loc[lambda p: p > 0]
    counts = pd.Series([c.text for c in drawn]).value_counts().reindex(likely.index, fill_value=0)
    assert counts.sum() == 6_000
    assert chisquare(counts, 6_000 * likely / likely.sum()).pvalue > 1e-3


def test_short_dtypes_sample_too(base: Path, requests: list[Request]) -> None:
    for dtype in ("bfloat16", "float16"):
        settings = Evaluation(samples=1, seeds=[0], sampling=LETTERS, dtype=dtype, batch_size=64)
        sampler = open_sampler(base, None, load_tokenizer(base), settings, "cpu")
        completions = sampler.sample(requests, LETTERS)
        assert len(completions) == len(requests)
        # The streams are those of float32, so most first tokens and many samples agree.
        same = sum(a == b for a, b in zip(completions, sample(base, requests, 64), strict=True))
        assert same > len(requests) / 4


class Cramped:
    """A decoder that raises `error` when it is to read or continue more than `rows` rows."""

    def __init__(self, model: PreTrainedModel, rows: int, error: Exception) -> None:
        self._decoder, self._rows, self._error = FusedDecoder(model), rows, error
        self.config, self.device, self.dtype = model.config, model.device, model.dtype
        self.seen: list[int] = []

    def start(self, prompts: Prompts, room: int, rows: int) -> tuple[Decoding, torch.Tensor]:
        self.seen.append(rows)
        if rows > self._rows:
            raise self._error
        return self._decoder.start(prompts, room, rows)


def cramped_sampler(base: Path, decoder: Cramped, batch_size: int) -> TransformersSampler:
    tokenizer = load_tokenizer(base)
    return TransformersSampler(decoder, tokenizer, [tokenizer.eos_token_id], batch_size)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes."),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_batches_are_halved_when_memory_runs_out(
    base: Path, requests: list[Request], error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    cramped = Cramped(load_model(base), 20, error)
    drawn = cramped_sampler(base, cramped, 64).sample(requests, LETTERS)
    assert drawn == sample(base, requests, 64)
    assert max(cramped.seen[-3:]) <= 20
    printed = capsys.readouterr().out
    assert "out of memory with 64 rows: batches of 32 from here" in printed
    assert "batches of 16 from here" in printed


def test_what_does_not_fit_at_all_is_an_error(base: Path, requests: list[Request]) -> None:
    cramped = Cramped(load_model(base), 0, MemoryError())
    with pytest.raises(MemoryError, match="a single completion of up to 24 tokens"):
        cramped_sampler(base, cramped, 4).sample(requests, LETTERS)
    cramped = Cramped(load_model(base), 0, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="multiplied"):
        cramped_sampler(base, cramped, 4).sample(requests, LETTERS)
    assert not is_out_of_memory(ValueError("out of memory"))


def test_batches_start_no_larger_than_memory(
    base: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(base)
    # Two layers of one key-value head of 16 numbers, keys and values, and a half more; logits.
    tokens = max(len(request.prompt_ids) for request in requests) + LETTERS.max_tokens
    row = bytes_per_row(FusedDecoder(model), tokens)
    assert row == int(1.5 * 2 * 2 * 16 * tokens * 4) + 6 * 8 * len(load_tokenizer(base))
    memory = type("Memory", (), {"available": 2 * 10 * row})
    monkeypatch.setattr("sage.sampling.memory.psutil.virtual_memory", lambda: memory)
    cramped = Cramped(model, 10**6, MemoryError())
    cramped_sampler(base, cramped, 64).sample(requests, LETTERS)
    assert max(cramped.seen) == 10


PROMPTS = {f"p{i}": (1, 2, i) for i in range(40)}
SETTINGS = {"temperature": 1.0}


class Recorder:
    """Stands for a sampler: remembers what was asked, answers with the sample's own name."""

    def __init__(self) -> None:
        self.asked: list[Sample] = []

    def __call__(self, samples: Sequence[Sample]) -> list[Completion]:
        self.asked += samples
        return [Completion(repr(sample), (1, 2, 3), "stop") for sample in samples]


def drawn(folder: Path, seeds: list[int], samples: int, size: int = 64, **changes: object) -> int:
    """Draw what is missing, check that all is there as asked, and return how much was drawn."""
    settings = {**SETTINGS, **{k: v for k, v in changes.items() if k != "prompts"}}
    prompts = changes.get("prompts", PROMPTS)
    shards, recorder = Shards(folder, settings, prompts), Recorder()  # type: ignore[arg-type]
    shards.draw(shards.missing(seeds, samples, size), recorder)
    assert shards.missing(seeds, samples, size) == []
    found = pd.concat(list(shards.chunks(seeds, samples)), ignore_index=True)
    keys = [(p, s, i) for p in prompts for s in seeds for i in range(samples)]  # type: ignore[attr-defined]
    assert list(found[["problem_id", "eval_seed", "sample_index"]].itertuples(index=False)) == keys
    assert found["completion"].tolist() == [repr(key) for key in keys]
    assert len(set(recorder.asked)) == len(recorder.asked)
    return len(recorder.asked)


def test_more_samples_seeds_or_problems_reuse_what_is_there(tmp_path: Path) -> None:
    assert drawn(tmp_path, [0], 5) == 40 * 5
    assert drawn(tmp_path, [0], 5) == 0
    assert drawn(tmp_path, [0], 3) == 0
    assert drawn(tmp_path, [0], 8, size=1000) == 40 * 3
    assert drawn(tmp_path, [0, 7], 8, size=1) == 40 * 8
    more = {**PROMPTS, "new": (9,)}
    assert drawn(tmp_path, [0, 7], 8, prompts=more) == 9 * 8 * 2  # the last 8 problems and it


def test_shards_of_other_settings_or_prompts_are_not_reused(tmp_path: Path) -> None:
    assert drawn(tmp_path, [0], 2) == 80
    assert drawn(tmp_path, [0], 2, temperature=0.9) == 80
    assert drawn(tmp_path, [0], 2, prompts={**PROMPTS, "p0": (5, 5)}) == 32 * 2
    assert drawn(tmp_path, [0], 2) == 0


def test_a_broken_or_misplaced_shard_is_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn(tmp_path, [0], 2)
    first, second = sorted(tmp_path.rglob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-20])
    drawn(tmp_path, [0], 2, temperature=0.5)
    theirs = [path for path in tmp_path.rglob(second.name) if path != second]
    second.write_bytes(theirs[0].read_bytes())
    left_by_a_kill = first.with_name(".half.parquet")
    left_by_a_kill.write_bytes(b"PAR1")
    capsys.readouterr()
    assert drawn(tmp_path, [0], 2) == 80
    assert capsys.readouterr().out.count("drawn again") == 2
    assert not left_by_a_kill.exists()


def test_digests_follow_contents_only(tmp_path: Path, base: Path) -> None:
    before = checkpoint_digest(base)
    (base / "manifest.json").write_text("{}")
    assert checkpoint_digest(base) == before
    (base / "extra.json").write_text("{}")
    assert checkpoint_digest(base) != before
    (base / "extra.json").unlink()
    (base / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        checkpoint_digest(tmp_path)
    assert code_digest("sage.sampling.distribution") == code_digest("sage.sampling.distribution")
    assert code_digest("sage.sampling.distribution") != code_digest("sage.grading")


PROBLEMS = [
    Problem(f"p{i}", f"Calculate {i}+{i * i}.", str(i + i * i), "math", "1", "test", "0")
    for i in range(5)
]


def run_evaluation(base: Path, folder: Path, shard_size: int = 20, **changes: object) -> bytes:
    """Evaluate the base into `folder` and return the file of samples."""
    settings = Evaluation.model_validate(
        {
            "samples": 60,
            "seeds": [0, 1],
            "sampling": sampling(max_tokens=24, stop=["+1"]),
            "batch_size": 20,
            "shard_size": shard_size,
            **changes,
        }
    )
    output = folder / "samples.parquet"
    manifest = Manifest({}, 1, time.time())
    evaluate(
        base, None, PROBLEMS, settings, "cpu", "tiny", "b", 0, folder / "shards", output, manifest
    )
    return output.read_bytes()


def shards_in(folder: Path) -> dict[Path, int]:
    """Shards with the time of their writing; half-written ones have hidden names."""
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*-eval*.parquet") if p.name[0] != "."}


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import torch
torch.set_num_threads(1)
import test_sampling
test_sampling.run_evaluation(Path({base!r}), Path({folder!r}))
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_killed_job_goes_on_and_ends_with_the_same_bytes(base: Path, tmp_path: Path) -> None:
    """SIGKILL at a random moment between the first and the last shard."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = run_evaluation(base, whole)
    total = len(shards_in(whole))
    tests = Path(__file__).parent
    code = CHILD.format(
        root=str(tests.parent), tests=str(tests), base=str(base), folder=str(killed)
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-c", code], env=environment)
    moment = random.randrange(1, total // 2)
    while len(shards := shards_in(killed)) < moment:
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.05))
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    kept = shards_in(killed)
    assert len(shards) <= len(kept) < total
    assert not (killed / "samples.parquet").exists()
    assert run_evaluation(base, killed) == expected
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert not list(killed.rglob(".*.parquet"))


@pytest.mark.slow
def test_settings_that_change_nothing_draw_nothing(base: Path, tmp_path: Path) -> None:
    first = run_evaluation(base, tmp_path)
    before = shards_in(tmp_path)
    assert run_evaluation(base, tmp_path, batch_size=3, shard_size=500, bootstrap=100) == first
    more = run_evaluation(base, tmp_path, samples=61)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    longer = pd.read_parquet(tmp_path / "samples.parquet")
    assert len(longer) == 61 * 2 * len(PROBLEMS)
    assert more != first
    run_evaluation(base, tmp_path, samples=2, sampling=sampling(temperature=0.5))
    assert len(list((tmp_path / "shards").iterdir())) == 2
