"""Forward passes as the loss wants them: without padding, and with the last layer's states.

Both wrap TRL's function that reads log-probs and entropies of completions, and keep its form. TRL
pads all completions of a generation to the longest; `trimmed` sorts the rows by length, splits them
into groups where that saves enough, and cuts each group's padding off. The numbers are those of one
pass but for floating-point rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

Read = Callable[..., Any]
"""TRL's `_get_per_token_logps_and_entropies`: log-probs, entropies and an auxiliary loss."""

_WORTH, _WORTH_ON_GPU = 256, 2048
"""Tokens that a further pass must save; reading so few more costs what starting a pass does."""


def trimmed(read: Read, processes: int, states: list[torch.Tensor] | None = None) -> Read:
    """`read`, but rows of similar length are read together, without their padding.

    `states` are those that `with_states` appends in each pass; they become one `[B, T, D]`.
    """

    def passes(
        model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        prompts = attention_mask[:, :-logits_to_keep].sum(dim=1)
        lengths = attention_mask[:, -logits_to_keep:].sum(dim=1)
        order = lengths.argsort(descending=True)
        # Processes that train together must run the same number of passes.
        least = _WORTH if input_ids.device.type == "cpu" else _WORTH_ON_GPU
        worth = least if processes == 1 else torch.inf
        border = input_ids.shape[1] - logits_to_keep
        sizes = group_sizes(lengths[order].tolist(), int(prompts.max()), worth)
        outputs = []
        for rows in order.split(sizes):
            longest = max(1, int(lengths[rows].max()))
            columns = slice(border - int(prompts[rows].max()), border + longest)
            output = read(
                model, input_ids[rows, columns], attention_mask[rows, columns], longest, **kwargs
            )
            missing = (0, logits_to_keep - longest)  # zeros, as TRL leaves padding
            outputs.append([None if part is None else pad(part, missing) for part in output])
        back = order.argsort()
        if states:
            wide = [pad(part, (0, 0, 0, logits_to_keep - part.shape[1])) for part in states]
            states[:] = [torch.cat(wide)[back]]
        return tuple(
            None if p[0] is None else torch.cat(p)[back] for p in zip(*outputs, strict=True)
        )

    return passes


def with_states(read: Read, policy: Any, states: list[torch.Tensor]) -> Read:
    """`read`, but each pass appends the states of completion tokens to `states`.

    They are those of the last layer of `policy`, after the last norm, `[rows, tokens, D]`, without
    gradient.
    """
    policy = policy.get_base_model() if hasattr(policy, "get_base_model") else policy

    def noted(
        model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        def keep(module: Any, given: Any, output: Any) -> None:
            states.append(output.last_hidden_state[:, -logits_to_keep:].detach())

        hook = policy.base_model.register_forward_hook(keep)
        try:
            return read(model, input_ids, attention_mask, logits_to_keep, **kwargs)
        finally:
            hook.remove()

    return noted


def group_sizes(lengths: list[int], prompt: int, worth: float) -> list[int]:
    """How many rows to read together; `lengths`, longest first, are those of the completions.

    A group is split where that saves most, as long as it saves more than `worth` tokens. `prompt`
    is the number of tokens in front of every completion.
    """
    longest = lengths[0] + prompt
    saved = [(len(lengths) - i) * (longest - n - prompt) for i, n in enumerate(lengths)]
    best = max(range(len(lengths)), key=saved.__getitem__)
    if saved[best] <= worth:
        return [len(lengths)]
    return [
        *group_sizes(lengths[:best], prompt, worth),
        *group_sizes(lengths[best:], prompt, worth),
    ]
