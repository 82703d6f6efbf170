"""The branch guide turned round: it damps tokens drawn from a high-entropy state."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from sage.method.guides import Moment, Signals


@dataclass(frozen=True)
class MirrorGuide:
    """q = 1 / (1 + ratio * max(0, H - threshold)), so that log q is the branch guide's with the
    other sign wherever neither is clamped."""

    causal: ClassVar[bool] = True
    of_state: ClassVar[bool] = True

    ratio: float = 3.0
    threshold: float = 1.2

    def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
        """Factors between 0 and 1, `[B, T]`; entropies and the threshold are in nats."""
        return 1.0 / (1.0 + self.ratio * (signals.entropies - self.threshold).clamp(min=0.0))
