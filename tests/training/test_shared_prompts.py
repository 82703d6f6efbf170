"""A prompt read once for its group: scores and gradients are those of reading it for each row."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from method_entries import ROWS
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from trainers import SUMS, small_trainer, write_parent
from transformers import AutoConfig, AutoModelForCausalLM, TrainerCallback
from trl.trainer.utils import add_fused_lm_head

from sage.training import trimming
from sage.training.shared_prompts import _EXACT, is_exact
from sage.training.trimming import one_pass, trimmed

pytestmark = [pytest.mark.usefixtures("one_thread")]

PROMPT, COMPLETION, VOCABULARY = 6, 7, 40
TINY: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
}
OF_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}
CHANGES: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3_text": {"query_pre_attn_scalar": 8},
    "mixtral": OF_EXPERTS,
    "qwen3_moe": OF_EXPERTS,
}
ALONE = SimpleNamespace(num_processes=1, mixed_precision="no", autocast=nullcontext)


def bare_model(kind: str, **changes: Any) -> Any:
    """A random model of this type."""
    torch.manual_seed(0)
    settings = TINY | CHANGES.get(kind, {}) | changes
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings))


def model_of(kind: str, **changes: Any) -> Any:
    """A random model of this type, with TRL's head and a random adapter."""
    model: Any = bare_model(kind, **changes)
    for name, weights in model.named_parameters():
        if "norm" not in name:
            weights.data.mul_(4.0)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    adapter = LoraConfig(
        r=2, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    return get_peft_model(model, adapter).train()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Three prompts of 2 to 6 tokens, of 5, 3 and 1 rows in no order; completions of 2 to 7."""
    draw = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, VOCABULARY, (3, PROMPT), generator=draw)
    of_row = torch.tensor([0, 1, 0, 2, 1, 0, 0, 1, 0])
    completions = torch.randint(1, VOCABULARY, (9, COMPLETION), generator=draw)
    lengths = torch.tensor([7, 2, 2, 7, 5, 3, 7, 2, 4])[:, None]
    shortest = PROMPT - torch.tensor([6, 2, 4])[of_row][:, None]
    mask = torch.cat([torch.arange(PROMPT) >= shortest, torch.arange(COMPLETION) < lengths], dim=1)
    return torch.cat([prompts[of_row], completions], dim=1) * mask, mask.long()


def by_trl(model: Any, ids: Any, mask: Any, keep: int, batch_size: int = 9, **_: Any) -> Any:
    """As TRL reads them: `batch_size` rows at a time, with labels for its own head."""
    outputs = []
    for rows, seen in zip(ids.split(batch_size), mask.split(batch_size), strict=True):
        labels = rows.masked_fill(seen == 0, -100)
        labels[:, :-keep] = -100
        given = {"input_ids": rows, "attention_mask": seen, "labels": labels}
        outputs.append(model(**given, fused_lm_head=True))
    scores = torch.cat([output.log_probs[:, -keep:] for output in outputs])
    return scores, torch.cat([output.entropy[:, -keep:] for output in outputs]), None


def read(model: Any, reader: Any, **kwargs: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Scores and entropies, and the gradients of a random sum of them."""
    model.zero_grad()
    output = reader(model, *batch(), COMPLETION, compute_entropy=True, **kwargs)[:2]
    weights = torch.randn(2, 9, COMPLETION, generator=torch.Generator().manual_seed(2))
    (weights[0] * output[0] + weights[1] * output[1]).sum().backward()
    return [*output], [w.grad.clone() for w in model.parameters() if w.grad is not None]


@pytest.mark.parametrize("parts", [{}, {"batch_size": 2}], ids=["whole", "chunks"])
@pytest.mark.parametrize("kind", [*sorted(_EXACT), "at once"])
def test_scores_and_gradients_are_those_of_the_plain_reading(
    kind: str, parts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each known model; `at once` is Qwen2 where all logits of a pass are held."""
    monkeypatch.setattr(trimming, "_WORTH", 1)
    model = model_of("qwen2" if kind == "at once" else kind)
    assert is_exact(model, PROMPT + COMPLETION)
    inner = one_pass(by_trl, ALONE, 1.0) if kind == "at once" else by_trl
    widths: list[tuple[int, int]] = []
    bare = model.get_base_model()
    bare.base_model.register_forward_pre_hook(
        lambda _, given, named: widths.append(tuple((given or [named["input_ids"]])[0].shape)),
        with_kwargs=True,
    )
    plain = read(model, by_trl)
    assert widths.pop() == (9, PROMPT + COMPLETION)
    shared = read(model, trimmed(inner, ALONE), **parts)
    assert widths[0] == (3, PROMPT - 1)
    assert {width for _, width in widths[1:]} <= set(range(2, COMPLETION + 2))
    assert len(plain[1]) == len(shared[1]) > 0
    mask = batch()[1][:, -COMPLETION:]
    for left, right in zip(plain[0], shared[0], strict=True):
        torch.testing.assert_close(right * mask, left * mask, rtol=1e-5, atol=2e-5)
    for left, right in zip(plain[1], shared[1], strict=True):
        torch.testing.assert_close(right, left, rtol=1e-4, atol=2e-5 * float(left.abs().max()))


def test_what_is_not_exact_is_read_in_full() -> None:
    columns = PROMPT + COMPLETION
    scaled = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    refused = {
        "absolute positions": bare_model("gpt2", n_embd=16, n_head=2, n_layer=1),
        "a recurrent layer": bare_model("mamba", state_size=4),
        "a short window": model_of("mistral", sliding_window=columns - 1),
        "positions that turn": model_of("llama", rope_parameters=scaled),
        "dropout": model_of("qwen2", attention_dropout=0.1),
        "its own attention": model_of("qwen2", attn_implementation="flex_attention"),
    }
    checkpointing = model_of("qwen2")
    checkpointing.get_base_model().gradient_checkpointing_enable()
    refused["no keys kept"] = checkpointing
    of_prompts = PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    refused["tokens of the adapter"] = get_peft_model(model_of("qwen2").unload(), of_prompts)
    assert [why for why, model in refused.items() if is_exact(model, columns)] == []
    assert is_exact(refused["dropout"].eval(), columns)
    assert is_exact(model_of("mistral", sliding_window=columns), columns)


BRANCH = {"guide": {"kind": "branch", "settings": {"ratio": 0.3, "threshold": 0.3}}}
CASES = {
    **{
        f"loss {loss}": ({}, {"loss_type": loss}, 1) for loss in ("grpo", "bnpo", "dr_grpo", "dapo")
    },
    **{f"loss {loss}": ({}, {"loss_type": loss}, 1) for loss in ("cispo", "sapo", "vespo")},
    "loss luspo": ({}, {"loss_type": "luspo", "importance_sampling_level": "sequence"}, 1),
    "branch": (BRANCH, {}, 1),
    "branch in parts": (BRANCH, {}, 8),
    "no KL": ({"kl": "none", "estimator": None}, {}, 1),
    "exact forward": ({"kl": "forward", "estimator": "exact"}, {}, 2),
    "sampled forward": ({"kl": "forward", "estimator": "sampled"}, {}, 1),
    "bnpo in parts": ({}, {"loss_type": "bnpo"}, 4),
}


class Noting(TrainerCallback):
    """Keeps the gradient of each step."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        self.gradients.append(
            torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])
        )


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parent(tmp_path_factory.mktemp("parent") / "base", SUMS, spread=4.0)


@pytest.mark.parametrize("case", CASES)
def test_a_step_has_the_gradient_of_one_that_reads_every_prompt(
    case: str, parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every loss and anchor, and where micro-batches cut groups: TRL shuffles the rows."""
    row, trl, parts = CASES[case]
    noted = []
    monkeypatch.setattr(trimming, "_WORTH", 4)
    for exact in (is_exact, lambda *_: False):
        monkeypatch.setattr(trimming, "is_exact", exact)
        trainer = small_trainer(
            parent,
            ROWS["grpo"] | row,
            tmp_path,
            trl=trl,
            micro_batches=parts,
            steps=2,
            learning_rate=1e-4,
        )
        noted.append(Noting())
        trainer.add_callback(noted[-1])
        trainer.train()
    for shared, plain in zip(noted[0].gradients, noted[1].gradients, strict=True):
        assert plain.abs().max() > 1e-4
        torch.testing.assert_close(shared, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()))
