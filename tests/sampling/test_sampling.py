"""The transformers engine: batches, stops, frequencies, log-probs, and what fits in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sampled import LETTERS, sample, sampling
from transformers import PreTrainedModel

from sage.policies import load_model, load_tokenizer
from sage.sampling.decoders import Decoding, Prompts
from sage.sampling.distribution import draw, next_token_probabilities, stream_uniforms
from sage.sampling.fused import FusedDecoder
from sage.sampling.interface import Request, engine
from sage.sampling.memory import bytes_per_row, is_out_of_memory
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Draws

pytestmark = [pytest.mark.usefixtures("one_thread")]


def test_batches_do_not_change_a_sample(base: Path, requests: list[Request]) -> None:
    alone = [sample(base, [request], 1)[0] for request in requests[:8]]
    together = sample(base, requests, 640)
    assert together[:8] == alone
    assert sample(base, requests, 7) == together
    assert sample(base, requests[::-1], 64) == together[::-1]
    assert len({c.text for c in together}) > len(together) / 2


def test_a_completion_is_read_as_it_was_written(base: Path, tmp_path: Path) -> None:
    """Also where a tokenizer asks for spaces to be tidied, as SmolLM2's does."""
    load_tokenizer(base).save_pretrained(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    tidied = "clean_up_tokenization_spaces"
    asked = dict.fromkeys([tidied, f"{tidied}_for_bpe_even_though_it_will_corrupt_output"], True)
    config.write_text(json.dumps(json.loads(config.read_text()) | asked))
    tokenizer, text = load_tokenizer(tmp_path), "1 . 2 , 3 ?"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_log_probs_are_those_of_the_drawn_tokens(base: Path, requests: list[Request]) -> None:
    settings = LETTERS.model_copy(update={"temperature": 0.7, "min_p": 0.02})
    sampler = TransformersSampler.from_model(load_model(base), load_tokenizer(base), 64)
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
            whole = tokenizer.decode(drawn, skip_special_tokens=True)
            stopped = any(stop in whole for stop in LETTERS.stop)
            if ended := stopped or drawn[-1] == tokenizer.eos_token_id:
                break
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


def test_short_dtypes_sample_too(base: Path, requests: list[Request]) -> None:
    for dtype in ("bfloat16", "float16"):
        settings = Draws(samples=1, seeds=[0], sampling=LETTERS, dtype=dtype, batch_size=64)
        sampler = engine(settings.engine).open_sampler(
            base, None, load_tokenizer(base), settings, "cpu"
        )
        completions = sampler.sample(requests, LETTERS)
        assert len(completions) == len(requests)
        # The streams are those of float32, so most first tokens and many samples agree.
        same = sum(a == b for a, b in zip(completions, sample(base, requests, 64), strict=True))
        assert same > len(requests) / 4


class Cramped:
    """A decoder that raises `error` when it is to read or continue more than `rows` rows."""

    def __init__(self, model: PreTrainedModel, rows: int, error: Exception) -> None:
        self._decoder, self._rows, self._error = FusedDecoder(model), rows, error
        self.records = False
        self.config, self.device, self.dtype = model.config, model.device, model.dtype
        self.seen: list[int] = []

    def start(self, prompts: Prompts, room: int, rows: int) -> tuple[Decoding, torch.Tensor]:
        self.seen.append(rows)
        if rows > self._rows:
            raise self._error
        return self._decoder.start(prompts, room, rows)


def cramped_sampler(base: Path, decoder: Cramped, batch_size: int | None) -> TransformersSampler:
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


@pytest.mark.parametrize(
    ("batch_size", "fitting", "largest"), [(64, 10, 10), (None, 10, 10), (None, 10**6, None)]
)
def test_batches_start_no_larger_than_memory(
    base: Path,
    requests: list[Request],
    batch_size: int | None,
    fitting: int,
    largest: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load_model(base)
    # Two layers of one key-value head of 16 numbers, keys and values, and a half more; logits.
    tokens = max(len(request.prompt_ids) for request in requests) + LETTERS.max_tokens
    row = bytes_per_row(FusedDecoder(model), tokens)
    assert row == int(1.5 * 2 * 2 * 16 * tokens * 4) + 6 * 8 * len(load_tokenizer(base))
    memory = type("Memory", (), {"available": 2 * fitting * row})
    monkeypatch.setattr("sage.sampling.memory.psutil.virtual_memory", lambda: memory)
    cramped = Cramped(model, 10**6, MemoryError())
    cramped_sampler(base, cramped, batch_size).sample(requests, LETTERS)
    assert max(cramped.seen) == (largest or len(requests))
