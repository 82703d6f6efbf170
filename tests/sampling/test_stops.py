"""Where completions end: stop texts of several bytes or blanks, and models that refuse a length."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from tokenizers.trainers import BpeTrainer
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import PreTrainedTokenizerFast as Fast

from sage.policies import train_tokenizer
from sage.sampling.decoders import ModuleDecoder
from sage.sampling.stops import Stops


def first_end(stops: Stops, tokens: Sequence[int]) -> int | None:
    """The place in `tokens` at which a completion ends."""
    row, only = torch.tensor([tokens]), torch.tensor([0])
    for place, token in enumerate(tokens):
        ended = stops.new_ends(torch.tensor([token]), row, only, place)
        if ended is not None and ended[0]:
            return place
    return None


def stops_of(tokenizer: PreTrainedTokenizerBase, *texts: str) -> Stops:
    size = len(tokenizer)
    return Stops([tokenizer.eos_token_id], size, tokenizer, texts, torch.device("cpu"))


@pytest.mark.parametrize("stop", ["。", "答案", "…"])
def test_a_stop_text_of_several_bytes_ends_with_its_last(stop: str) -> None:
    tokenizer = train_tokenizer((f"Calculate {i}. The sum." for i in range(50)), 300)
    before, whole = (tokenizer.encode(text, add_special_tokens=False) for text in ("ab", stop))
    assert len(whole) > 2  # no token is the whole text
    behind = tokenizer.encode("cd", add_special_tokens=False)
    assert first_end(stops_of(tokenizer, stop), [*before, *whole, *behind]) == 1 + len(whole)


def test_blanks_of_a_stop_text_are_seen_where_a_text_loses_its_first() -> None:
    """A tokenizer as Llama's: its decoder leaves out the blank that a text begins with."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    blank = normalizers.Replace(" ", "▁")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), blank])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    texts = [f"So END of it. Answer: {i} END" for i in range(50)]
    made.train_from_iterator(texts, BpeTrainer(vocab_size=80, special_tokens=["<unk>", "</s>"]))
    tokenizer = Fast(tokenizer_object=made, unk_token="<unk>", eos_token="</s>")
    random_ids, found = random.Random(0), 0
    for stop in (": ", " END", "it. "):
        stops = stops_of(tokenizer, stop)
        for _ in range(300):
            tokens = [random_ids.randrange(2, len(tokenizer)) for _ in range(14)]
            heads = (tokenizer.decode(tokens[: place + 1]) for place in range(14))
            expected = next((i for i, head in enumerate(heads) if stop in head), None)
            assert first_end(stops, tokens) == expected
            found += expected is not None
    assert found > 100


def dynamic() -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
            num_attention_heads=4, max_position_embeddings=24,
            rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
        )
    )  # fmt: skip


def longrope() -> PreTrainedModel:
    config = Phi3Config(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        original_max_position_embeddings=24, pad_token_id=0, eos_token_id=1, bos_token_id=None,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4,
            "long_factor": [1.3, 2.0, 3.0, 4.0], "original_max_position_embeddings": 24,
        },
    )  # fmt: skip
    return Phi3ForCausalLM(config)


@pytest.mark.parametrize("model", [longrope, dynamic])
def test_rope_that_changes_with_the_length_is_refused_behind_the_change(model: Any) -> None:
    decoder = ModuleDecoder(model().eval())
    with torch.no_grad():
        assert decoder.start([(2, 3), (2,) * 4], room=20, rows=2)[1].shape == (2, 50)
    with pytest.raises(ValueError, match=r"24 tokens.*prompts of up to 4 tokens and 21"):
        decoder.start([(2, 3), (2,) * 4], room=21, rows=2)
