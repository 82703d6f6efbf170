"""Both decoders compute what the model does, while rows branch, move and end.

The fused one refuses what it cannot compute.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftConfig, PromptTuningConfig, get_peft_model
from sampled import LETTERS, sample
from trainers import SMALL
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from sage.policies import load_model, load_policy, load_tokenizer, save_checkpoint
from sage.sampling import fused_rows
from sage.sampling.decoders import ModuleDecoder
from sage.sampling.fused import FusedDecoder, is_fusible
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler, branched
from sage.study import Sampling
from sage.training.adapters import FoldedLinear
from sage.training.drawers import drawer_for

pytestmark = [pytest.mark.usefixtures("one_thread")]


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


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("adapted", [False, True])
def test_the_fused_decoder_computes_what_the_model_does(
    base: Path, adapted: bool, records: bool
) -> None:
    """Prompts of several lengths, rows that branch or are dropped, a cache that has to grow.

    With `records` steps are made as a GPU records them: always over the whole cache.
    """
    for model in (load_model(base).eval(), llama()):
        policy: Any = model
        if adapted:
            targets = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
            config = LoraConfig(r=3, lora_alpha=7, target_modules=targets, init_lora_weights=False)
            policy = get_peft_model(model, config).eval()
        prompts = [(5, 6, 7), tuple(range(9, 40)), (5, 6, 7), (8,)]
        with torch.inference_mode():
            decoder = FusedDecoder(policy)
            decoder.records = records
            fused, logits = decoder.start(prompts, 200, 9)
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
        assert (fused._recorded is not None) == records


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_branches_follow_their_completions(count: int) -> None:
    random = torch.Generator().manual_seed(count)
    for completions in (1, 7, 48, 49, 64):
        rows = torch.randint(count, (completions,), generator=random)
        tokens = torch.randint(3, (completions,), generator=random)
        sources, following, after, shared = branched(rows, tokens, count, 3)
        assert torch.equal(sources[after], rows)
        assert torch.equal(following[after], tokens)
        different = len({*zip(rows.tolist(), tokens.tolist(), strict=True)})
        assert len({*after.tolist()}) == different <= len(sources)
        assert shared == (different < completions)
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


class Rounded(torch.nn.Linear):
    """A stand-in of a layer that computes otherwise than its weight says, as quantised ones do."""


def test_another_architecture_is_not_fused(base: Path) -> None:
    model = load_model(base)
    for name in ("model.layers.0.mlp.up_proj", "lm_head"):
        other = load_model(base)
        module = other.get_submodule(name)
        module.__class__ = Rounded
        assert not is_fusible(other)
    assert is_fusible(model)
    for key, value in (("hidden_act", "gelu"), ("model_type", "qwen3")):
        other = load_model(base)
        setattr(other.config, key, value)
        assert not is_fusible(other)
        with pytest.raises(ValueError, match="not an architecture"):
            FusedDecoder(other)


PLAIN: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "up_proj"]}
PLAIN |= {"init_lora_weights": False}


@pytest.mark.parametrize(
    ("more", "plain"),
    [
        ({}, True),
        ({"use_rslora": True, "alpha_pattern": {"q_proj": 3}}, True),
        ({"rank_pattern": {"up_proj": 2}, "lora_dropout": 0.5}, True),
        ({"init_lora_weights": "pissa"}, True),
        ({"init_lora_weights": "olora"}, True),
        ({"bias": "lora_only"}, True),
        ({"use_dora": True}, False),
        ({"lora_bias": True, "target_modules": ["q_proj"]}, False),
        ({"alora_invocation_tokens": [3]}, False),
        ({"target_modules": ["q_proj", "lm_head"]}, False),
        ({"target_modules": ["q_proj", "embed_tokens"]}, False),
        ({"modules_to_save": ["norm"]}, False),
        ({"trainable_token_indices": [3]}, False),
    ],
    ids=str,
)
def test_fast_paths_take_plain_lora_alone_and_compute_what_peft_does(
    base: Path, more: dict[str, Any], plain: bool
) -> None:
    """Drawing from merged weights and training with layers added up; the rest is left to PEFT.

    An adapter that is merged, switched off, or one of two counts as PEFT counts it.
    """
    config = LoraConfig(**PLAIN | more)
    policy: Any = get_peft_model(load_model(base), config).eval()
    for name, weight in policy.named_parameters():
        if "magnitude" in name:  # of DoRA, which begin as if it were plain LoRA
            weight.data *= 1.5
    folded = LoraConfig(**PLAIN | more)
    folded._register_custom_module({torch.nn.Linear: FoldedLinear})
    trained: Any = get_peft_model(load_model(base), folded).eval()
    trained.load_state_dict(policy.state_dict())
    assert is_fusible(policy) == is_fusible(trained) == plain
    ids = torch.tensor([[5, 6, 7]])

    def same() -> None:
        with torch.inference_mode():
            expected = policy(ids).logits[:, -1]
            torch.testing.assert_close(trained(ids).logits[:, -1], expected, rtol=1e-4, atol=1e-4)
            if plain:
                logits = FusedDecoder(policy).start([(5, 6, 7)], 2, 1)[1]
                torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)

    same()
    if not plain:
        with pytest.raises(ValueError, match="not plain LoRA"):
            FusedDecoder(policy)
        return
    for model in (policy, trained):
        model.merge_adapter()
    same()
    with policy.disable_adapter(), trained.disable_adapter():
        same()
    for model in (policy, trained):
        model.unmerge_adapter()
        model.add_adapter("other", LoraConfig(**PLAIN))
        model.base_model.set_adapter(["default", "other"])
    trained.load_state_dict(policy.state_dict())
    same()


@pytest.mark.parametrize(
    "config",
    [
        PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
        IA3Config(task_type="CAUSAL_LM"),
    ],
)
def test_an_adapter_of_another_kind_is_not_fused(base: Path, config: PeftConfig) -> None:
    assert not is_fusible(get_peft_model(load_model(base), config))


MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
LINEAR |= {"linear_value_head_dim": 8, "head_dim": 8}
MIXED = {"layer_types": ["linear_attention", "full_attention"]}


def recurrent(kind: str, **more: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0}
    heads = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.for_model(
        kind, **sizes, **({} if "mamba" in kind else heads), initializer_range=0.3,
        bos_token_id=1, eos_token_id=2, **more,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("lfm2", {"layer_types": ["conv", "full_attention"]}),
        ("qwen3_next", LINEAR | MIXED | {"num_experts": 0, "mlp_only_layers": [0, 1]}),
        ("qwen3_5_text", LINEAR | MIXED),
        ("olmo_hybrid", {}),
        ("jamba", {"num_experts": 1, "num_experts_per_tok": 1, "attn_layer_period": 2,
                   "attn_layer_offset": 1, "mamba_d_state": 4, "use_mamba_kernels": False}),
        ("bamba", MAMBA | {"attn_layer_indices": [1], "mamba_n_groups": 1}),
        ("falcon_h1", MAMBA | {"mamba_n_heads": 4, "mamba_d_ssm": 32, "mamba_n_groups": 1}),
        ("granitemoehybrid", MAMBA | {"layer_types": ["mamba", "attention"], "mamba_n_groups": 1,
                                      "num_local_experts": 0, "num_experts_per_tok": 0,
                                      "shared_intermediate_size": 64}),
    ],
)  # fmt: skip
def test_a_model_with_recurrent_layers_is_decoded(kind: str, more: dict[str, Any]) -> None:
    """Its rows hold states as well as keys and values: all of them follow a row that moves."""
    model = recurrent(kind, **more)
    texts = [[5, 6, 7, 14], [8, 9, 10], [11]]
    with torch.inference_mode():
        decoding, _ = ModuleDecoder(model).start([tuple(text) for text in texts], 5, 4)
        for kept, tokens in (
            ([0, 1, 1], [1, 2, 3]),
            ([2, 1, 0, 0], [4, 5, 6, 7]),
            ([3, 0], [8, 9]),
        ):
            decoding.keep(torch.tensor(kept))
            texts = [[*texts[row], token] for row, token in zip(kept, tokens, strict=True)]
            expected = torch.cat([model(torch.tensor([text])).logits[:, -1] for text in texts])
            torch.testing.assert_close(
                decoding.step(torch.tensor(tokens)), expected, rtol=1e-3, atol=1e-4
            )


@pytest.mark.parametrize("kind", ["mamba", "mamba2", "minimax"])
def test_a_model_whose_states_do_not_follow_its_rows_is_refused(kind: str, tmp_path: Path) -> None:
    """TRL draws its rollouts: `make_drawer` would have drawn from another distribution."""
    more: dict[str, Any] = {"num_heads": 8, "head_dim": 8} if kind == "mamba2" else {}
    if kind == "minimax":
        more = MIXED | {"num_local_experts": 1, "num_experts_per_tok": 1, "head_dim": 8}
    model = recurrent(kind, **more)
    with pytest.raises(ValueError, match="keeps states of its own between tokens"):
        ModuleDecoder(model)
    assert drawer_for(SMALL, model, tmp_path, sharded=False) is None
    assert drawer_for(SMALL, llama(), tmp_path, sharded=False) is not None


def test_a_young_adapter_is_not_rounded_away_in_16_bit_weights(base: Path, tmp_path: Path) -> None:
    """Half of it would be, were it merged."""
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
    sampler = TransformersSampler.from_model(policy, load_tokenizer(short), 64, consume=True)
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


@pytest.mark.parametrize("decoder", [FusedDecoder, ModuleDecoder])
def test_a_prompt_without_tokens_is_refused(base: Path, decoder: Any) -> None:
    """Beside others it would be read as padding, and continued."""
    with pytest.raises(ValueError, match="a prompt has no tokens"):
        decoder(load_model(base).eval()).start([(), (5, 6)], 3, 2)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_recording_without_memory_is_tried_once_more(
    failures: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What PyTorch keeps reserved is given back first; the second time steps stay unrecorded."""
    decoder: Any = SimpleNamespace(device=torch.device("cuda"), records=True)
    rows, told = fused_rows.FusedRows(decoder, 8, 8), []

    def recorded(step: Any, inputs: Any) -> str:
        told.append("record")
        if told.count("record") <= failures:
            raise torch.OutOfMemoryError("full")
        return "recording"

    monkeypatch.setattr(fused_rows, "recorded", recorded)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: told.append("empty"))
    assert (rows._record(()) == "recording") == decoder.records == (failures < 2)
    assert told == ["record", "empty", "record"][: 1 + 2 * min(failures, 1)]
    assert ("steps are not recorded" in capsys.readouterr().out) == (failures == 2)
