"""The transformers engine: batched decoding in which finished rows stop costing.

Requests are sorted by length, longest first, and decoded in batches of any problems. Completions
of a batch share a row of the decoder for as long as they are the same: a prompt is read once, and
a row branches where its completions draw different tokens. Where steps are recorded, which needs
rows that stay as they are, completions part at once. Rows that nobody has any more are dropped once
they are a quarter. Batches shrink to what memory holds.

What is drawn does not depend on the batch but for floating-point ties: a batch of another
size sums in another order, and a uniform number that falls into that gap picks the
neighbouring token (none of 4,000 completions of the mini study's base in float32 between batches of
1, 7, 64 and 640, 12 of 1,000 in bfloat16). Completions a hundred times as long meet a tie a hundred
times as often; their distribution stays the same.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sage.policies import load_policy
from sage.sampling.decoders import Decoder, ModuleDecoder
from sage.sampling.distribution import draw, next_token_probabilities, stream_uniforms
from sage.sampling.fused import FusedDecoder, is_fusible
from sage.sampling.interface import Completion, Request
from sage.sampling.memory import is_out_of_memory, rows_that_fit
from sage.sampling.stops import Stops, cut_behind, end_ids
from sage.study import Draws, Sampling

_IDLE = 0.25  # share of rows that may go on for no completion, before they are dropped


class TransformersSampler:
    """Samples with a decoder on its own device, at most `batch_size` rows at a time.

    Without one, as many as memory holds.

    `ends` are the ids of end-of-text tokens (`sage.sampling.stops.end_ids`). With `progress` a
    bar is shown.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: PreTrainedTokenizerBase,
        ends: Sequence[int],
        batch_size: int | None,
        progress: bool = True,
    ) -> None:
        self.decoder, self._tokenizer, self._ends = decoder, tokenizer, tuple(ends)
        self._batch_size, self._progress = batch_size or sys.maxsize, progress
        self._stops: dict[tuple[str, ...], Stops] = {}

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int | None,
        consume: bool = False,
    ) -> TransformersSampler:
        """A sampler of `model`, which is fused where it can be.

        That copies its weights; with `consume` they move, and `model` is of no further use. An
        adapter beside 16-bit weights is not fused, for merging would round most of it away.
        """
        ends = end_ids(model.generation_config, tokenizer)
        rounded = hasattr(model, "peft_config") and model.dtype != torch.float32
        fused = is_fusible(model) and not rounded
        decoder = FusedDecoder(model, consume=consume) if fused else ModuleDecoder(model.eval())
        return cls(decoder, tokenizer, ends, batch_size)

    def sample(
        self, requests: Sequence[Request], sampling: Sampling, log_probs: bool = False
    ) -> list[Completion]:
        """One completion per request, in the order of the requests; see `Sampler`.

        Batches that do not fit into memory are halved, and stay so, down to a single row;
        raises MemoryError if that does not fit either.
        """
        if not requests:
            return []
        prompts = [(len(request.prompt_ids), request.prompt_ids) for request in requests]
        order = sorted(range(len(requests)), key=prompts.__getitem__, reverse=True)
        fitting = rows_that_fit(self.decoder, prompts[order[0]][0] + sampling.max_tokens)
        if fitting < self._batch_size:
            print(f"batches of at most {fitting} rows: memory holds no more")
            self._batch_size = fitting
        completions: dict[int, Completion] = {}
        hidden = not self._progress
        with tqdm(total=len(order), desc="sampling", mininterval=5, disable=hidden) as bar:
            while len(completions) < len(order):
                chosen = order[len(completions) : len(completions) + self._batch_size]
                drawn = self._attempt([requests[i] for i in chosen], sampling, log_probs)
                completions |= zip(chosen, drawn, strict=False)
                bar.update(len(drawn))
        return [completions[i] for i in range(len(requests))]

    def _attempt(
        self, requests: Sequence[Request], sampling: Sampling, log_probs: bool
    ) -> list[Completion]:
        """The completions, or none of them if memory ran out and batches were halved."""
        try:
            return self._batch(requests, sampling, log_probs)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if len(requests) == 1:
                raise MemoryError(
                    f"a single completion of up to {sampling.max_tokens} tokens does not fit "
                    f"into memory ({self.decoder.device}); lower max_tokens or shorten dtype"
                ) from error
            self._batch_size = len(requests) // 2
        # Outside of the clause: the error's traceback holds the batch's tensors.
        gc.collect()
        torch.cuda.empty_cache()
        print(f"out of memory with {len(requests)} rows: batches of {self._batch_size} from here")
        return []

    def _batch(
        self, requests: Sequence[Request], sampling: Sampling, log_probs: bool
    ) -> list[Completion]:
        texts = tuple(sampling.stop)
        if texts not in self._stops:
            vocabulary = self.decoder.config.get_text_config().vocab_size
            self._stops[texts] = Stops(
                self._ends, vocabulary, self._tokenizer, texts, self.decoder.device
            )
        stops = self._stops[texts]
        tokens, lengths, ended, scores = self._decode(requests, sampling, stops, log_probs)
        drawn = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        written = self._tokenizer.batch_decode(drawn, skip_special_tokens=True)
        rows = zip(written, drawn, ended.tolist(), scores.tolist(), strict=True)
        return [
            Completion(
                cut_behind(text, texts) if end else text,
                tuple(ids),
                "stop" if end else "length",
                tuple(row[: len(ids)]),
            )
            for text, ids, end, row in rows
        ]

    @torch.inference_mode()
    def _decode(
        self, requests: Sequence[Request], sampling: Sampling, stops: Stops, log_probs: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sampled tokens `[B, T]`, their number `[B]`, whether they came to an end `[B]`, and the
        tokens' log-probs `[B, T]` where these are asked for."""
        device, count = self.decoder.device, sampling.max_tokens
        streams = np.stack([stream_uniforms(r.stream, count) for r in requests], axis=1)
        uniforms = torch.from_numpy(streams).to(device)  # [T, B]
        sampled = torch.zeros(len(requests), count, dtype=torch.long, device=device)
        scores = torch.zeros(len(requests), count if log_probs else 0, device=device)
        lengths = torch.full((len(requests),), count, device=device)
        ended = torch.zeros(len(requests), dtype=torch.bool, device=device)
        prompts = {
            ids: row for row, ids in enumerate(dict.fromkeys(r.prompt_ids for r in requests))
        }
        decoding, logits = self.decoder.start(list(prompts), count, len(requests))
        left = torch.arange(len(requests), device=device)  # completions that go on
        rows = torch.tensor([prompts[r.prompt_ids] for r in requests], device=device)
        shared = True  # whether some completions may have a row in common
        for position in range(count):
            probabilities = next_token_probabilities(logits, sampling)
            tokens = draw(probabilities, uniforms[position, left], rows)
            sampled[left, position] = tokens
            if log_probs:
                scores[left, position] = probabilities[rows, tokens].log().to(scores.dtype)
            new = stops.new_ends(tokens, sampled, left, position)
            if new is not None:
                lengths[left[new]] = position + 1
                ended[left[new]] = True
                left, rows, tokens = left[~new], rows[~new], tokens[~new]
            if not len(left) or position + 1 == count:
                break
            if shared and self.decoder.records:
                decoding.keep(rows)
                rows, following, shared = torch.arange(len(rows), device=device), tokens, False
            elif shared or len(left) < (1.0 - _IDLE) * len(logits):
                sources, following, rows, shared = branched(rows, tokens, *logits.shape)
                decoding.keep(sources)
            else:
                following = torch.zeros_like(following).scatter_(0, rows, tokens)
            logits = decoding.step(following)
        return sampled.cpu(), lengths.cpu(), ended.cpu(), scores.cpu()


def branched(
    rows: torch.Tensor, tokens: torch.Tensor, count: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """The rows of completions that shared `count` rows and have drawn `tokens`.

    Completion i `[B]` had the row `rows[i]`; those of one row go on sharing where they drew the
    same token. Returns of which old row each new one `[K]` is a copy, its token `[K]`, each
    completion's new row `[B]`, and whether some still share one. Most rows keep their place, with
    some that nobody has any more.
    """
    drawn, branch = (rows * vocabulary + tokens).unique(return_inverse=True)
    parents, following = drawn // vocabulary, drawn % vocabulary
    wanted = len(parents)
    size = count if (1.0 - _IDLE) * count <= wanted <= count else wanted
    stays = parents < size
    stays[1:] &= parents[1:] != parents[:-1]  # the first of a row's branches
    free = torch.ones(size, dtype=torch.bool, device=rows.device)
    free[parents[stays]] = False
    places = torch.where(stays, parents, 0)
    places[~stays] = free.nonzero()[: wanted - int(stays.sum()), 0]
    sources = torch.arange(size, device=rows.device)
    sources[places] = parents
    appended = torch.zeros_like(sources)
    appended[places] = following
    return sources, appended, places[branch], wanted < len(rows)


def versions() -> dict[str, str]:
    """Versions of the packages that decide which tokens are drawn."""
    return {name: metadata.version(name) for name in ("torch", "transformers")}


def open_sampler(
    base: Path,
    policy: Path | None,
    tokenizer: PreTrainedTokenizerBase,
    settings: Draws,
    device: str,
    longest_prompt: int | None = None,
) -> TransformersSampler:
    """See `sage.sampling.interface.engine`."""
    dtype = getattr(torch, settings.dtype)
    model = load_policy(base, policy, dtype, device)
    return TransformersSampler.from_model(model, tokenizer, settings.batch_size, consume=True)
