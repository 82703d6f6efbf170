"""Whether training starts right: padding is not read, and the policy is the reference.

What can be seen in the settings alone is in `settings`.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from sage.runtime.faults import Fault
from sage.training.anchoring import LossCall

_ROUNDING, _ROUNDING_OF_16_BITS = 1e-3, 0.05
"""Mean distances of log-probs (nats per token) that come from rounding alone."""


class PaddingIsRead(Fault, ValueError):
    """A model reads a text otherwise where padding stands in front of it."""


@torch.no_grad()
def count_positions(model: Any) -> None:
    """Have `model` read a padded row as it reads the row alone; nothing where it does already.

    TRL hands over no positions, and a model with learned ones (GPT-2) counts them from the padding
    on. Then they are counted from the mask. Models that turn states by distance are as they are.
    Raises PaddingIsRead where a row is still read otherwise.
    """
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    turned = any(name.endswith("rotary_emb") for name, _ in bare.named_modules())
    held = all(weights.numel() and not weights.is_meta for weights in bare.parameters())
    if (turned and not getattr(bare, "_is_stateful", False)) or not held:
        return
    rounding = _ROUNDING if bare.dtype == torch.float32 else _ROUNDING_OF_16_BITS
    if (changed := _read_otherwise(bare)) > rounding:
        bare.base_model.register_forward_pre_hook(_with_positions, with_kwargs=True)
        changed = _read_otherwise(bare)
    if changed > rounding:
        raise PaddingIsRead(
            f"{type(bare).__name__} reads a text {changed:.2g} nats per token otherwise where "
            "padding stands in front of it, as prompts of several lengths have it; take a model "
            "that attends to no padding"
        )


def _with_positions(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    mask, cache = kwargs.get("attention_mask"), kwargs.get("past_key_values")
    if mask is not None and mask.ndim == 2 and kwargs.get("position_ids") is None and not cache:
        kwargs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
    return args, kwargs


def _read_otherwise(model: Any) -> float:
    """How far the log-probs of a short text are from those behind padding (nats, the mean)."""
    device = model.get_input_embeddings().weight.device
    ids = torch.arange(4, device=device)[None] % model.config.get_text_config().vocab_size
    training, read = model.training, []
    model.eval()
    try:
        for padding in (0, 6):
            padded = torch.nn.functional.pad(ids, (padding, 0))
            mask = torch.nn.functional.pad(torch.ones_like(ids), (padding, 0))
            logits = model(input_ids=padded, attention_mask=mask, use_cache=False).logits
            read.append(logits[:, padding:].float().log_softmax(-1))
    finally:
        model.train(training)
    return float((read[0] - read[1]).abs().mean())


class NotTheReference(Fault, ValueError):
    """Before the first update the policy is not the reference of its KL term."""


class StartsAtReference:
    """Looks once whether the policy is the reference of its KL term before the first update.

    A `reference` of one's own (`chosen`) may be any model.
    """

    def __init__(self, chosen: bool) -> None:
        self.chosen = self._done = chosen

    def compare(self, trainer: Any, call: LossCall) -> None:
        """Compare the two on the first micro-batch that has both; `call` holds their log-probs.

        Warns of dropout; raises NotTheReference where the policy's weights are others.
        """
        if self._done or call.reference is None:
            return
        inside = call.mask.bool()
        self._done = bool(inside.any())
        if call.moment[1] > 0 or not self._done:  # a run that is resumed has moved
            return
        distance = (call.log_probs.detach().float() - call.reference.float())[inside].abs().mean()
        weights = next(trainer.model.parameters()).dtype
        short = trainer.accelerator.mixed_precision != "no" or weights != torch.float32
        if not distance > (_ROUNDING_OF_16_BITS if short else _ROUNDING):
            return
        said = (
            f"before the first update the policy's log-probs are {float(distance):.2g} nats per "
            f"token from those of the KL term's reference, which is not what training starts from: "
        )
        rates = [m.p for m in trainer.model.modules() if isinstance(m, torch.nn.Dropout)]
        rates += [rate for name, rate in vars(trainer.model.config).items() if "drop" in name]
        if any(isinstance(rate, float) and rate > 0 for rate in rates):
            why = "dropout is on in the policy; set disable_dropout=True, or its rates to 0"
            warnings.warn(said + why, stacklevel=2)
        elif trainer.ref_model is None:
            raise NotTheReference(
                said + "the reference is the policy with its adapter off, but the adapter adds "
                "something from the start; give `reference`, the model before the adapter"
            )
        else:
            raise NotTheReference(
                said + "the reference was loaded from the policy's name, but the policy's weights "
                "are others, changed in memory; give `reference`"
            )
