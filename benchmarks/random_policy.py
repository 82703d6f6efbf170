"""A tiny policy with random weights; its completions vary in length like those of a trained one."""

from __future__ import annotations

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sage.policies import build_tiny, train_tokenizer
from sage.study import Architecture


def random_policy(hidden_size: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The policy and its tokenizer; one token in twenty ends a completion."""
    architecture = Architecture(
        hidden_size=hidden_size,
        intermediate_size=256,
        layers=3,
        heads=4,
        key_value_heads=2,
        max_positions=256,
        vocab_size=384,
    )
    texts = [f"Calculate {a}+{b}-{a * b}. The sum is {a + b}." for a in range(30) for b in range(9)]
    tokenizer = train_tokenizer(texts, architecture.vocab_size)
    model = build_tiny(architecture, tokenizer, seed=0)
    ends = [tokenizer.eos_token_id, *range(100, 100 + len(tokenizer) // 20)]
    model.generation_config.eos_token_id = ends
    return model, tokenizer
