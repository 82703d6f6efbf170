"""The policy's probability of the gold answer, for rewards without a verifier.

The gold answer takes the place of the completion's own: after its reasoning, up to and with its
last answer tag; and once more after no reasoning. All completions are read in batched forward
passes without gradient, before they are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from sage.problems.record import readable_gold
from sage.prompting import SOLUTION_OPEN, completion

Ids = list[int]


def with_answer_probabilities(
    inputs: Sequence[Mapping[str, Any]],
    prompts: Sequence[Any],
    written: Sequence[Ids],
    tokenizer: Any,
    read: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor],
    alone: bool,
) -> list[dict[str, Any]]:
    """`inputs` with the answer's mean probability after each completion's reasoning and after none:
    `answer_probability` and `prior_probability`.

    `inputs` are the examples of the data set, `prompts` their texts or conversations, `written` the
    completions' tokens. `read(ids, mask, width)` gives the log-probs of the last `width` tokens,
    `[B, width]`. Only a process that trains `alone` may read less where texts are equal or lack an
    answer: several must run the same number of passes, whatever was written.
    """
    plain = plain_ids(tokenizer, completion("", "").partition(SOLUTION_OPEN)[0] + SOLUTION_OPEN)
    texts: list[tuple[Ids, Ids, Ids]] = []
    priors: dict[Any, int] = {}
    places: list[tuple[int | None, int]] = []
    asked: Ids = []
    asked_for: Any = None
    for row, (one, prompt, ids) in enumerate(zip(inputs, prompts, written, strict=True)):
        if prompt != asked_for:  # completions of one prompt follow each other
            asked, asked_for = _prompt_ids(tokenizer, prompt), prompt
        gold = readable_gold(str(one["answer"]), one.get("kind", "math"))
        answer = plain_ids(tokenizer, gold)
        reasoning = ids_before_answer(tokenizer, list(ids))
        key = (tuple(asked), gold, None if alone else row)
        if key not in priors:
            priors[key] = len(texts)
            texts.append((asked, plain, answer))
        if reasoning is not None or not alone:
            texts.append((asked, reasoning or plain, answer))
        places.append((None if reasoning is None else len(texts) - 1, priors[key]))
    means = _mean_probabilities(texts, tokenizer.pad_token_id, read)
    return [
        {
            **one,
            "answer_probability": 0.0 if after is None else means[after],
            "prior_probability": means[before],
        }
        for one, (after, before) in zip(inputs, places, strict=True)
    ]


def _prompt_ids(tokenizer: Any, prompt: Any) -> Ids:
    if isinstance(prompt, str):
        return plain_ids(tokenizer, prompt)
    encoded = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoded["input_ids"])


def _mean_probabilities(
    texts: Sequence[tuple[Ids, Ids, Ids]], fill: int, read: Callable[..., torch.Tensor]
) -> list[float]:
    """For each (prompt, context, answer) the mean probability of the answer's tokens."""
    longest = max(len(asked) for asked, _, _ in texts)
    width = max(len(context) + len(answer) for _, context, answer in texts)
    place = torch.arange(width)
    ids, mask, answers = [], [], []
    for asked, context, answer in texts:
        own = torch.tensor([*asked, *context, *answer])
        end = len(context) + len(answer)
        sides = (longest - len(asked), width - end)
        ids.append(pad(own, sides, value=fill))
        mask.append(pad(torch.ones_like(own), sides))
        answers.append((place >= len(context)) & (place < end))
    log_probs = read(torch.stack(ids), torch.stack(mask), width)
    inside = torch.stack(answers).to(log_probs.device)
    means = (log_probs.float().exp() * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
    return list(means.tolist())


def plain_ids(tokenizer: Any, text: str) -> Ids:
    """Token ids of `text` alone, without special tokens around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def ids_before_answer(tokenizer: Any, written: Ids) -> Ids | None:
    """The tokens of a completion up to and with its last answer tag; None if it has none.

    They are its own tokens, but where one goes on behind the tag: of that, the part up to the tag
    is tokenised again.
    """

    def text_of(count: int) -> str:
        text: str = tokenizer.decode(written[:count], clean_up_tokenization_spaces=False)
        return text

    whole = text_of(len(written))
    start = whole.rfind(SOLUTION_OPEN)
    if start < 0:
        return None
    end, low, high = start + len(SOLUTION_OPEN), 0, len(written)
    while low < high:  # the most tokens whose text ends at the tag's end or before
        middle = (low + high + 1) // 2
        if len(text_of(middle)) <= end:
            low = middle
        else:
            high = middle - 1
    return written[:low] + plain_ids(tokenizer, whole[len(text_of(low)) : end])
