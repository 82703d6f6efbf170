"""Forward passes as the loss wants them: without padding, small ones at once, with states.

All wrap TRL's function that reads log-probs and entropies of completions, and keep its form. TRL
pads all completions of a generation to the longest; `trimmed` reads rows of similar length
together, and what they have in common once (`shared_prompts`). Without Triton TRL scores prompts as
well, a part of the vocabulary at a time; `one_pass` scores the completions of a small pass in one
go. The numbers are TRL's but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

from sage.training.shared_prompts import SharedPrompts, is_exact

Read = Callable[..., Any]
"""TRL's `_get_per_token_logps_and_entropies`: log-probs, entropies and an auxiliary loss."""

_WORTH, _WORTH_ON_GPU = 256, 2048
"""Tokens that a further pass must save; reading so few more costs what starting a pass does."""

_SMALL = 2**22
"""The most logits, tokens times vocabulary, that a pass on a CPU holds at once: 16 MiB of each kind
that the gradient needs."""

_PLAIN = ("llama", "qwen2", "qwen3")
"""Models whose logits are their head's, without a scale or a bound."""


def trimmed(read: Read, accelerator: Any, states: list[torch.Tensor] | None = None) -> Read:
    """`read`, but rows of similar length are read together, without their padding, and in a single
    process a prompt of several rows once.

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
        worth = least if accelerator.num_processes == 1 else torch.inf
        border = input_ids.shape[1] - logits_to_keep
        first = border - int(prompts.max())
        shared = None
        if accelerator.num_processes == 1 and is_exact(model, input_ids.shape[1] - first):
            texts = input_ids[:, first:], attention_mask[:, first:]
            shared = SharedPrompts(model, *texts, border - first, accelerator.autocast)
            if shared.saved < least:
                shared = None
            else:
                shared.read()
        outputs = []
        for rows in order.split(group_sizes(lengths[order].tolist(), worth)):
            longest = max(1, int(lengths[rows].max()))
            start = border - int(prompts[rows].max()) if shared is None else first
            columns = slice(start, border + longest)
            reader = model if shared is None else shared.reader(rows)
            output = read(
                reader, input_ids[rows, columns], attention_mask[rows, columns], longest, **kwargs
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


def one_pass(read: Read, accelerator: Any, temperature: float, whole: bool = False) -> Read:
    """`read`, but a small pass on a CPU holds the logits of all its completion tokens.

    That is for models whose logits are what their head gives, trained in one process and in the
    precision of their weights; all else is left to `read`. Behind the last token nothing is scored:
    it is read only where it is wanted for its state (`whole`).
    """
    if accelerator.num_processes > 1 or accelerator.mixed_precision != "no":
        return read

    def scored(
        model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        bare = model.get_base_model() if hasattr(model, "get_base_model") else model
        held = input_ids.numel() * bare.config.vocab_size
        fits = held <= _SMALL and len(input_ids) <= (kwargs.get("batch_size") or torch.inf)
        adapters = getattr(model, "peft_config", {}).values()
        plain = bare.config.model_type in _PLAIN and all(
            one.peft_type == "LORA" for one in adapters
        )
        if not (fits and plain and input_ids.device.type == "cpu"):
            return read(model, input_ids, attention_mask, logits_to_keep, **kwargs)
        read_to, kept = (None, logits_to_keep + 1) if whole else (-1, logits_to_keep)
        texts = input_ids[:, :read_to], attention_mask[:, :read_to]
        output = model(*texts, use_cache=False, logits_to_keep=kept)
        logits = output.logits[:, :logits_to_keep].float() / temperature
        log_probs = torch.log_softmax(logits, -1)
        padding = attention_mask[:, -logits_to_keep:] == 0
        tokens = log_probs.gather(-1, input_ids[:, -logits_to_keep:, None])[..., 0]
        entropies = None
        if kwargs.get("compute_entropy"):
            entropies = -(log_probs.exp() * log_probs).sum(-1).masked_fill(padding, 0.0)
        return tokens.masked_fill(padding, 0.0), entropies, None

    return scored


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


def group_sizes(lengths: list[int], worth: float) -> list[int]:
    """How many rows to read together; `lengths`, longest first, are those of the completions.

    A group is split where that saves most, if that is more than `worth` tokens.
    """
    saved = [(len(lengths) - i) * (lengths[0] - n) for i, n in enumerate(lengths)]
    best = max(range(len(lengths)), key=saved.__getitem__)
    if saved[best] <= worth:
        return [len(lengths)]
    return [*group_sizes(lengths[:best], worth), *group_sizes(lengths[best:], worth)]
