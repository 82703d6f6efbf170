"""What a model says of given completions: log-probabilities and entropies of their tokens.

It uses the sampled tokens themselves, because encoding the text again may give other tokens. Each
completion is read once after its prompt (teacher forcing), in batches of similar length. The full
logits of a batch would use the most memory, so positions go through the model in chunks that share
a key-value cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from sage.method.guides import Signals
from sage.problems.record import Problem
from sage.prompting import prompt_ids

Ids = Sequence[int]
Signal = tuple[np.ndarray, ...]
"""Log-probabilities and entropies of a completion's tokens, in nats, float32 `[T]` each; and, if
asked for, the log-probabilities of other tokens."""


def signals_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    samples: pd.DataFrame,
    **more: Any,
) -> list[Signal]:
    """`token_signals` of samples (columns problem_id and token_ids) as answers to `problems`.

    `more` are further arguments of it. An answer that was drawn several times is read once, except
    where other tokens are drawn beside it.
    """
    prompts = {problem.problem_id: prompt_ids(tokenizer, problem.problem) for problem in problems}
    answers = list(zip(samples["problem_id"], map(tuple, samples["token_ids"]), strict=True))
    once = answers if more.get("others") is not None else list(dict.fromkeys(answers))
    asked, written = [prompts[name] for name, _ in once], [ids for _, ids in once]
    read = token_signals(model, asked, written, **more)
    if len(once) == len(answers):
        return read
    known = dict(zip(once, read, strict=True))
    return [known[answer] for answer in answers]


def token_signals(
    model: PreTrainedModel,
    prompts: Sequence[Ids],
    completions: Sequence[Ids],
    batch_tokens: int = 16_384,
    chunk_logits: int = 2**27,
    temperature: float = 1.0,
    others: int | None = None,
) -> list[Signal]:
    """The signals of each completion's tokens.

    The entropy is that of the distribution that the token was drawn from, at `temperature`, before
    any filter, as in training. With a seed `others` there is a third part: log-probs of a second
    token, drawn from each of these distributions. The prompt and the completion of a pair are token
    ids. A batch holds at most `batch_tokens` positions (or one pair), and at most `chunk_logits`
    logits at a time (or those of one position of one row), which change the numbers only by
    rounding. Raises ValueError for a pair with an empty prompt or completion.
    """
    pairs = list(zip(prompts, completions, strict=True))
    for place, (prompt, completion) in enumerate(pairs):
        if not len(prompt) or not len(completion):
            raise ValueError(
                f"pair {place}: prompt of {len(prompt)} and completion of {len(completion)} "
                "tokens; both must have at least one"
            )
    model.eval()
    most_rows = max(1, chunk_logits // model.config.vocab_size)
    draws = None if others is None else torch.Generator().manual_seed(others)
    signals: list[Signal] = [()] * len(pairs)
    batches = length_sorted([len(p) + len(c) for p, c in pairs], batch_tokens, most_rows)
    for batch in tqdm(batches, desc="reading", unit="batch", mininterval=5):
        rows = _read(model, [pairs[place] for place in batch], chunk_logits, temperature, draws)
        for place, row in zip(batch, rows, strict=True):
            signals[place] = row
    return signals


def length_sorted(lengths: Sequence[int], batch_tokens: int, most_rows: int) -> list[list[int]]:
    """Indices in batches of increasing length; rows times the longest stay within `batch_tokens`.

    A batch has at most `most_rows` rows, and at least one of any length.
    """
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        rows = len(batches[-1]) + 1 if batches else 0
        if rows and rows <= most_rows and rows * lengths[place] <= batch_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


@torch.inference_mode()
def _read(
    model: PreTrainedModel,
    pairs: Sequence[tuple[Ids, Ids]],
    chunk_logits: int,
    temperature: float,
    draws: torch.Generator | None,
) -> list[Signal]:
    """The signals of the completions of one batch.

    Padding is on the right, where real tokens do not attend to it, so no mask is needed.
    """
    device = model.device
    sequences = [torch.tensor([*prompt, *completion]) for prompt, completion in pairs]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True).to(device)
    first = min(len(prompt) for prompt, _ in pairs) - 1  # the first position with a logit to use
    last = ids.shape[1] - 1
    width = max(1, chunk_logits // (len(pairs) * model.config.vocab_size))
    cache = DynamicCache(config=model.config)
    signals = torch.zeros(2 if draws is None else 3, len(pairs), last)
    ends = [*([first] if first else []), *range(first + width, last, width), last]
    start = 0
    for end in ends:
        logits = model(
            input_ids=ids[:, start:end],
            position_ids=torch.arange(start, end, device=device)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=0 if end > first else 1,
        ).logits
        if end > first:
            logits = logits.float() / temperature
            targets, total = ids[:, start + 1 : end + 1, None], logits.logsumexp(dim=-1)
            signals[0, :, start:end] = logits.gather(-1, targets)[..., 0] - total
            shares = logits.softmax(dim=-1)
            signals[1, :, start:end] = total - (shares * logits).sum(dim=-1)
            if draws is not None:
                reached = shares.cumsum(dim=-1)
                place = torch.rand(total.shape, generator=draws).to(device)[..., None]
                other = torch.searchsorted(reached, place * reached[..., -1:])
                other = other.clamp(max=logits.shape[-1] - 1)
                signals[2, :, start:end] = logits.gather(-1, other)[..., 0] - total
        start = end
    spans = [slice(len(p) - 1, len(p) + len(c) - 1) for p, c in pairs]
    return [tuple(signals[:, row, span].numpy().copy()) for row, span in enumerate(spans)]


def guide_signals(read: Sequence[Signal]) -> Signals:
    """What a guide looks at, of completions that were read, `[B, T]` each.

    The reference's entropies are the policy's own, as where training starts.
    """
    log_probs, entropies = (padded([row[part] for row in read]) for part in (0, 1))
    lengths = torch.tensor([len(row[0]) for row in read])
    mask = (torch.arange(log_probs.shape[1])[None] < lengths[:, None]).float()
    return Signals(log_probs, entropies, mask, reference_entropies=entropies)


def padded(rows: Sequence[np.ndarray]) -> torch.Tensor:
    """Rows `[T]` of several lengths as one tensor `[B, T]`, 0 behind their ends."""
    tensors = [torch.tensor(np.asarray(row), dtype=torch.float32) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
