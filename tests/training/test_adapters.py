"""Adapters: what their layers compute, and how their settings are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from sage.policies import ADAPTER, load_adapter, load_model
from sage.runtime.faults import Fault
from sage.study import LoRA
from sage.training import adapters
from sage.training.adapters import PROJECTIONS, lora_config

SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}


def adapted() -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(**SIZES, num_attention_heads=2, num_key_value_heads=1)
    return get_peft_model(Qwen2ForCausalLM(config), lora_config(LoRA(rank=2, alpha=4)))


def test_a_small_layer_and_its_adapter_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted()
    layer = model.base_model.model.model.layers[0].self_attn.q_proj  # [32, 32], with a bias
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.nn.init.normal_(b)
    x = torch.randn(3, 5, 32, requires_grad=True)

    def passed(small: int) -> list[torch.Tensor]:
        monkeypatch.setattr(adapters, "SMALL", small)
        y = layer(x)
        return [y, *torch.autograd.grad(y.square().sum(), (x, a, b))]

    plain = passed(1023)
    monkeypatch.setattr(adapters.Linear, "forward", None)  # PEFT's own
    for expected, value in zip(plain, passed(1024), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)
    formula = x @ (layer.base_layer.weight + 2.0 * b @ a).T + layer.base_layer.bias
    torch.testing.assert_close(layer(x), formula)


def test_peft_computes_what_is_more_than_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    x, asked = torch.randn(3, 32), []
    plain = adapters.Linear.forward

    def noted(layer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        asked.append(layer)
        return plain(layer, *args, **kwargs)

    monkeypatch.setattr(adapters.Linear, "forward", noted)
    model = adapted()
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    torch.nn.init.normal_(layer.lora_B["default"].weight)
    with model.disable_adapter():
        torch.testing.assert_close(layer(x), layer.base_layer(x))
    assert len(asked) == 1
    folded = layer(x)
    assert len(asked) == 1
    layer.lora_dropout["default"] = torch.nn.Dropout(0.5)
    assert (layer(x) - folded).abs().max() > 0.0 < len(asked) - 1
    layer.eval()
    torch.testing.assert_close(layer(x), folded)
    assert len(asked) == 2
    model.merge_adapter()
    torch.testing.assert_close(layer(x), folded, rtol=1e-4, atol=1e-5)
    assert len(asked) == 3


def test_an_adapters_settings_are_written_in_the_same_order_by_every_process(
    tmp_path: Path,
) -> None:
    adapted().save_pretrained(tmp_path)
    written = json.loads((tmp_path / "adapter_config.json").read_text())
    assert written["target_modules"] == PROJECTIONS  # a set of 7 names has 5,040 orders
    assert len(load_file(tmp_path / "adapter_model.safetensors")) == 2 * len(PROJECTIONS)


def test_an_adapter_in_another_format_is_refused(tmp_path: Path) -> None:
    model = adapted()
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / ADAPTER)
    (tmp_path / ADAPTER).unlink()
    torch.save(weights, tmp_path / "adapter_model.bin")  # which PEFT would load
    with pytest.raises(Fault, match=r"has no adapter_model\.safetensors; other formats can hold"):
        load_adapter(model, tmp_path)


def test_weights_outside_their_folder_are_refused(tmp_path: Path) -> None:
    config = Qwen2Config(**SIZES, num_attention_heads=2, num_key_value_heads=1)
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "model", max_shard_size="8KB")
    load_model(tmp_path / "model")
    index = tmp_path / "model/model.safetensors.index.json"
    text = index.read_text()
    shard = sorted(set(json.loads(text)["weight_map"].values()))[0]
    (tmp_path / "model" / shard).rename(tmp_path / shard)
    index.write_text(text.replace(f'"{shard}"', f'"../{shard}"'))
    with pytest.raises(Fault, match=rf"names '\.\./{shard}'; only files of its own folder"):
        load_model(tmp_path / "model")
