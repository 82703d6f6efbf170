"""Policies and tokenizers: built from scratch, loaded, merged and saved.

Weights are read and written as safetensors only, and code from a hub repository is never
run. The tiny model is of Qwen2 architecture, so every later stage treats it like any
other checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from tokenizers import AddedToken
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

from sage.prompting import SOLUTION_CLOSE, TAGS, open_working_out, prepared_chat_template
from sage.runtime.faults import Damaged, Fault
from sage.study import Architecture

PRODUCTS = "SAGE_FLOAT32_PRODUCTS"
"""The environment variable with the precision of products of float32: one of PRECISIONS."""

PRECISIONS = ("highest", "high", "medium")
"""As `torch.set_float32_matmul_precision` takes them: float32, TF32, bfloat16."""

ADAPTER = "adapter_model.safetensors"
"""The file that PEFT writes an adapter to."""

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"

# The tiny model has no room for instructions: its template shows the problem alone.
TINY_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ 'Problem: ' + message['content'] + '\\n' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ message['content'] + '" + END_OF_TEXT + "' }}"
    "{% endif %}{% endfor %}"
)


def train_tokenizer(documents: Iterable[str], vocab_size: int) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer trained on `documents`: any text round-trips.

    It is a Qwen2Tokenizer because `AutoTokenizer` loads that class for a Qwen2 model
    whatever the checkpoint says; another pre-tokenizer would be replaced on loading.
    """
    trained: Any = Qwen2Tokenizer().train_new_from_iterator(
        documents, vocab_size - len(TAGS) - 1, show_progress=False
    )
    trained.add_special_tokens({"pad_token": PADDING})
    trained.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    trained.padding_side = "left"
    trained.chat_template = open_working_out(TINY_CHAT_TEMPLATE)
    return trained


def build_tiny(
    architecture: Architecture, tokenizer: PreTrainedTokenizerBase, seed: int
) -> PreTrainedModel:
    """A randomly initialised Qwen2 model with tied embeddings, in float32."""
    _set_products()
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.key_value_heads,
        max_position_embeddings=architecture.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=stop_token_ids(tokenizer), pad_token_id=tokenizer.pad_token_id
    )
    return model


def stop_token_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that end a completion: end of text, and `</SOLUTION>` where it is one token."""
    closing = tokenizer.encode(SOLUTION_CLOSE, add_special_tokens=False)
    return [tokenizer.eos_token_id, *(closing if len(closing) == 1 else [])]


def load_tokenizer(path: Path | str, gguf_file: str | None = None) -> PreTrainedTokenizerBase:
    """A tokenizer set up for this project: left padding and the opening tag in its template."""
    source = {"gguf_file": gguf_file} if gguf_file else {}
    tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False, **source)
    tokenizer.chat_template = prepared_chat_template(tokenizer)
    tokenizer.padding_side = "left"
    tokenizer.clean_up_tokenization_spaces = False  # a completion is read as it was written
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    path: Path | str, dtype: torch.dtype = torch.float32, revision: str | None = None
) -> PreTrainedModel:
    """A causal language model from safetensors; products are as exact as PRODUCTS asks.

    Raises Fault for a list of files that names one outside the folder, and Damaged.
    """
    _set_products()
    with _whole_weights(Path(path)):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            str(path), revision=revision, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    return model


def _set_products() -> None:
    """Have this process compute products of float32 as PRODUCTS says. Raises ValueError for
    another word. Here, for jobs of several processes load their models in each."""
    if products := os.environ.get(PRODUCTS):
        if products not in PRECISIONS:
            raise ValueError(f"{PRODUCTS}={products}: set one of {', '.join(PRECISIONS)}")
        torch.set_float32_matmul_precision(products)


def load_policy(
    base: Path, trained: Path | None, dtype: torch.dtype, device: str
) -> PreTrainedModel:
    """The policy trained from `base` into the folder `trained`, or `base` itself if None.

    An adapter is merged into float32 weights of `base`. Beside 16-bit weights it stays as it is,
    for rounding takes most of a young one away. A full checkpoint stands for itself.
    """
    model: Any
    if trained is None:
        model = load_model(base, dtype)
    elif (trained / "adapter_config.json").is_file():
        model = load_adapter(load_model(base, dtype), trained)
        if dtype == torch.float32:
            model = model.merge_and_unload()
    else:
        model = load_model(trained, dtype)
    on_device: PreTrainedModel = model.to(device)
    return on_device


def load_adapter(model: PreTrainedModel, adapter: Path) -> Any:
    """`model` with the LoRA adapter saved in `adapter`, in float32, beside its weights.

    Raises Fault where it is not in safetensors: other formats can hold code.
    """
    from peft import PeftModel

    if not (adapter / ADAPTER).is_file():
        raise Fault(f"{adapter} has no {ADAPTER}; other formats can hold code and are not loaded")
    with _whole_weights(adapter):
        return PeftModel.from_pretrained(model, str(adapter))


@contextmanager
def _whole_weights(folder: Path) -> Iterator[None]:
    """Raises Damaged where loading fails because a file of weights in `folder` is not whole."""
    for index in folder.glob("*.safetensors.index.json"):
        names = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()
        if outside := sorted(name for name in set(names) if Path(name).name != name):
            raise Fault(f"{index} names {outside[0]!r}; only files of its own folder are loaded")
    try:
        yield
    except Exception as error:
        for file in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(file, "pt"):
                    continue
            except Exception as fault:
                raise Damaged(folder, f"{file.name} is damaged ({fault})") from error
        raise


def save_checkpoint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Write weights (safetensors) and tokenizer into the folder `path`."""
    model.save_pretrained(path, safe_serialization=True)
    tokenizer.save_pretrained(path)
