"""A guide of your own: what shapes the anchor that the KL term measures against.

It is called with each batch. Edit `factors`; the study beside this file trains it.
"""

from dataclasses import dataclass

import torch

from sage.method.guides import Moment, Signals


@dataclass(frozen=True)
class MyGuide:
    """Raises the anchor where the policy is unsure: q = 1 + strength where H > threshold, else 1.

    The fields are the settings of the guide in the study.
    """

    strength: float = 0.3
    threshold: float = 1.2

    def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
        """A factor above 0 for each token, `[B, T]`: above 1 raises the anchor there.

        `signals` has log_probs, entropies (nats) and mask, all `[B, T]`; `moment` has step,
        total_steps and noise.
        """
        return 1.0 + self.strength * (signals.entropies > self.threshold).float()
