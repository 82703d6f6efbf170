"""A guide's first factors, looked at before they are used."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import dataclass, fields

import torch

from sage.method.guides import GuideFunction, Moment, Signals
from sage.runtime.faults import Fault


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
