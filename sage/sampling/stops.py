"""Where a completion ends: at an end-of-text token, or once it has written a stop text.

A stop text may be written with any tokens and end inside one; the completion is cut right
behind it, as vLLM does with `include_stop_str_in_output`. Looking for it costs next to
nothing: only the few tokens in which a stop text can end make a row's last tokens be read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from sage.policies import stop_token_ids

_CLOSES, _ENDS = 1, 2
"""What a token does: a stop text may end in it; it ends the text."""


class Stops:
    """The ends of completions under one list of stop texts.

    `ends` are the ids of end-of-text tokens, `vocabulary` is the number of the model's tokens;
    both are looked up on `device`.
    """

    def __init__(
        self,
        ends: Sequence[int],
        vocabulary: int,
        tokenizer: PreTrainedTokenizerBase,
        texts: Sequence[str],
        device: torch.device,
    ) -> None:
        self._tokenizer = tokenizer
        self._texts = tuple(texts)
        self._reach = max((len(text.encode()) for text in texts), default=0)
        width = max(vocabulary, len(tokenizer))
        pieces = _pieces(tokenizer)
        closing = [any(_can_end_in(piece, text) for text in texts) for piece in pieces]
        marks = torch.zeros(width, dtype=torch.int8)
        marks[: len(closing)] = torch.tensor(closing, dtype=torch.int8) * _CLOSES
        marks[list(ends)] = _ENDS
        self._marks = marks.to(device)

    def new_ends(
        self, tokens: torch.Tensor, sampled: torch.Tensor, rows: torch.Tensor, position: int
    ) -> torch.Tensor | None:
        """Which completions end with `tokens` `[B]`, `[B]`; None if none does.

        The i-th has its tokens up to `position` in row `rows[i]` of `sampled` `[N, T]`.
        """
        marks = self._marks[tokens].tolist()
        if not any(marks):
            return None
        new = [mark == _ENDS for mark in marks]
        closing = [place for place, mark in enumerate(marks) if mark == _CLOSES]
        if closing:
            written = sampled[rows[closing], : position + 1].tolist()
            for place, ids in zip(closing, written, strict=True):
                new[place] = self.written(ids)
        return torch.tensor(new, device=tokens.device) if any(new) else None

    def written(self, tokens: list[int]) -> bool:
        """Whether the end of a completion's `tokens` holds a stop text."""
        # One token more: some tokenizers leave out the blank that the first of a text begins with.
        tail = self._tokenizer.decode(tokens[-self._reach - 1 :], skip_special_tokens=True)
        return any(text in tail for text in self._texts)


def cut_behind(text: str, stops: Sequence[str]) -> str:
    """`text` up to the end of the first of `stops` in it."""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends, default=len(text))]


def end_ids(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """End-of-text tokens of tokenizer and model; a closing tag among them is left to `stop`."""
    of_model = generation.eos_token_id if generation else None
    listed = of_model if isinstance(of_model, list) else [of_model]
    tags = set(stop_token_ids(tokenizer)) - {tokenizer.eos_token_id}
    ends = {int(i) for i in (*listed, tokenizer.eos_token_id) if i is not None}
    return sorted(ends - tags)


def _pieces(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """What each token writes behind others: some write no blank where they begin a text."""
    before = tokenizer.encode("a", add_special_tokens=False)
    written = str(tokenizer.decode(before))
    pieces = tokenizer.batch_decode([[*before, i] for i in range(len(tokenizer))])
    return [piece.removeprefix(written) for piece in pieces]


def _can_end_in(piece: str, text: str) -> bool:
    """Whether `text` can end within `piece`: it lies inside, or its own end begins the piece.

    A character of several bytes can end in any piece that is not whole characters, for which
    tokenizers write U+FFFD.
    """
    if not text.isascii() and "\ufffd" in piece:
        return True
    return text in piece or any(piece.startswith(text[-n:]) for n in range(1, len(text)))
