"""The order in which a run takes its prompts, the same whether or not it was interrupted.

TRL's sampler shuffles each pass over the problems with a generator that starts anew when a run is
resumed, so that a run killed in its third pass would go on with the order of the first.
"""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import RepeatSampler


class PassSampler(RepeatSampler):
    """TRL's sampler with TRL's order, which the trainer can tell in which pass it is."""

    @classmethod
    def like(cls, sampler: Any) -> PassSampler:
        """One with the settings of `sampler`, which is TRL's."""
        return cls(
            data_source=sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )

    def set_epoch(self, epoch: int) -> None:
        """Bring the generator to where `epoch` whole passes leave it."""
        if self.shuffle and self.seed is not None:
            self.generator.manual_seed(self.seed)
            for _ in range(epoch):
                torch.randperm(self.num_samples, generator=self.generator)
