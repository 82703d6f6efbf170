"""Forward passes of the loss: without padding, and on a CPU all logits of a small one at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from transformers import GemmaConfig, GemmaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from sage.training import trimming
from sage.training.trimming import group_sizes, one_pass, trimmed

TINY: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 40,
}
PROMPT, COMPLETION, TEMPERATURE = 5, 7, 0.7


def policy() -> Any:
    """A model of random weights as TRL patches it."""
    torch.manual_seed(0)
    model: Any = Qwen2ForCausalLM(Qwen2Config(**TINY))
    for weights in model.parameters():
        weights.data.mul_(5.0)
    add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    return model


def by_trl(model: Any, ids: Any, mask: Any, keep: int, **kwargs: Any) -> Any:
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-keep] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -keep:], output.entropy[:, -keep:], None


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts padded on the left, completions on the right."""
    ids = torch.randint(0, 40, (4, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    mask[1, -3:] = 0
    return ids, mask


ALONE = SimpleNamespace(num_processes=1, mixed_precision="no")


@pytest.mark.parametrize("adapted", [False, True])
def test_all_logits_at_once_give_the_scores_and_gradients_of_trl(adapted: bool) -> None:
    model, (ids, mask) = policy(), batch()
    if adapted:
        model = get_peft_model(
            model, LoraConfig(r=2, init_lora_weights=False, task_type="CAUSAL_LM")
        )
    weights = torch.randn(2, 4, COMPLETION, generator=torch.Generator().manual_seed(2))
    outputs, gradients = [], []
    never = pytest.fail
    for read in (by_trl, one_pass(lambda *_, **__: never("read by TRL"), ALONE, TEMPERATURE)):
        model.zero_grad()
        log_probs, entropies, _ = read(model, ids, mask, COMPLETION, compute_entropy=True)
        (weights[0] * log_probs + weights[1] * entropies).sum().backward()
        outputs.append((log_probs, entropies))
        gradients.append([w.grad.clone() for w in model.parameters() if w.grad is not None])
    assert outputs[0][1].min() < 0.5 * outputs[0][1].max()
    for part in range(2):
        torch.testing.assert_close(outputs[1][part], outputs[0][part], rtol=1e-5, atol=1e-5)
        assert not outputs[1][part][1, -3:].any()
    assert len(gradients[0]) == len(gradients[1]) > 0
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-5 * float(left.abs().max()))


def test_what_is_not_small_or_not_plain_is_left_to_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = batch()
    plain = policy()
    gemma = GemmaForCausalLM(GemmaConfig(**TINY, head_dim=8))
    prefix = get_peft_model(
        policy(), PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    )

    def left(model: Any, accelerator: Any = ALONE, **kwargs: Any) -> bool:
        read = one_pass(lambda *_, **__: "left", accelerator, TEMPERATURE)
        return bool(read(model, ids, mask, COMPLETION, **kwargs) == "left")

    assert not left(plain)
    assert not left(plain, batch_size=4)
    assert left(plain, batch_size=3)
    assert left(plain, SimpleNamespace(num_processes=2, mixed_precision="no"))
    assert left(plain, SimpleNamespace(num_processes=1, mixed_precision="bf16"))
    assert left(gemma)
    assert left(prefix)
    monkeypatch.setattr(trimming, "_SMALL", 4 * (PROMPT + COMPLETION) * 40 - 1)
    assert left(plain)


def test_rows_are_read_together_where_a_pass_would_not_pay() -> None:
    # 4 rows of 10 tokens padded to 100 would cost 4 x 90 tokens more.
    assert group_sizes([100, 10, 10, 10, 10], worth=359) == [1, 4]
    assert group_sizes([100, 10, 10, 10, 10], worth=360) == [5]
    assert group_sizes([100, 90, 10, 10], worth=15) == [2, 2]
    assert group_sizes([7, 7], worth=0) == [2]


class OnGpu(torch.Tensor):
    device = property(lambda self: torch.device("cuda"))  # type: ignore[assignment]


@pytest.mark.parametrize("shorter", [100, 500])
def test_a_further_pass_must_save_more_on_a_gpu(shorter: int) -> None:
    """Reading the long row apart saves 400 or 2,500 tokens of padding."""
    rows = [5 + shorter] + [5] * (4 if shorter == 100 else 5)
    mask = (torch.arange(max(rows)) < torch.tensor(rows)[:, None]).long()
    mask = torch.cat([torch.ones(len(rows), 1, dtype=torch.long), mask], dim=1)
    passes: list[int] = []
    bert = SimpleNamespace(
        config=SimpleNamespace(model_type="bert")
    )  # whose prompts are not shared

    def read(model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> Any:
        passes.append(len(ids))
        return torch.zeros(len(ids), keep), None, None

    for ids in (torch.zeros_like(mask), torch.zeros_like(mask).as_subclass(OnGpu)):
        trimmed(read, ALONE)(bert, ids, mask, mask.shape[1] - 1)
    on_cpu, on_gpu = [1, len(rows) - 1], [1, len(rows) - 1] if shorter == 500 else [len(rows)]
    assert passes == on_cpu + on_gpu
