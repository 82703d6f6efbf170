"""What the first micro-batch shows: a guide's factors, and whether it starts at the reference.

What can be seen in the settings alone is in `settings`.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from sage.method.guides import GuideFunction, Moment, Signals
from sage.runtime.faults import Fault

if TYPE_CHECKING:
    from sage.training.anchoring import LossCall

_ROUNDING, _ROUNDING_OF_16_BITS = 1e-3, 0.05
"""Mean distances of log-probs (nats per token) that come from rounding alone."""


class WrongGuide(Fault, ValueError):
    """A guide failed, or gave no positive factor for each token."""


@dataclass(frozen=True)
class FirstCall:
    """A guide whose factors are looked at before they are used; as its first batch is, so are all.

    A wrong shape would be spread over the tokens, and the clamp hides a wrong sign.
    """

    guide: GuideFunction

    def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
        """Those of the guide, `[B, T]`. Raises WrongGuide for what is no number above 0 for each
        token of a completion, and where the guide raises an error itself."""
        name = f"guide {type(self.guide).__name__}"
        try:
            q = self.guide.factors(signals, moment)
        except Exception as error:
            if isinstance(error, Fault | torch.OutOfMemoryError):
                raise
            raise WrongGuide(f"{name}: {self._said(error)}") from error
        wanted = tuple(signals.mask.shape)
        shape = tuple(q.shape) if isinstance(q, torch.Tensor) else type(q).__name__
        if not isinstance(q, torch.Tensor) or shape != wanted:
            raise WrongGuide(
                f"{name}: factors() gave {shape}, but must give a tensor {wanted}: a factor for "
                "each token of each completion, in the shape of signals.mask"
            )
        inside = q[signals.mask.bool()]
        for bad, what in ((~inside.isfinite(), "is not finite"), (inside <= 0, "is not above 0")):
            if bad.any():
                raise WrongGuide(
                    f"{name}: factors() gave {float(inside[bad][0]):g} for {int(bad.sum())} of "
                    f"{len(bad)} tokens, which {what}; a factor above 1 raises the anchor at a "
                    "token, one below 1 lowers it, 1 leaves it"
                )
        return q

    def _said(self, error: Exception) -> str:
        """The error with its line in the guide's file, and what a guide can look at."""
        try:
            file = inspect.getsourcefile(type(self.guide))
        except TypeError:  # of a class that stands in no file
            file = None
        lines = [
            each for each in traceback.extract_tb(error.__traceback__) if each.filename == file
        ]
        place = f" ({file}, line {lines[-1].lineno})" if lines else ""
        seen = (
            f"{kind.__name__.lower()}.{each.name}"
            for kind in (Signals, Moment)
            for each in fields(kind)
        )
        return (
            f"{type(error).__name__}: {error}{place}; correct it. A guide can look at "
            f"{', '.join(seen)}"
        )


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
