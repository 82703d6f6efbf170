"""Making policies: pretraining a tiny base, SFT to the answer format, RL with TRL.

`SageTrainer` takes the place of TRL's GRPOTrainer in a script of your own; `Shaping` says what it
adds. `graded_reward` makes the project's grader a reward function of TRL. `transformers_rollouts`
and `vllm_rollouts` draw rollouts with the project's samplers instead of TRL's generation. Names are
imported when they are used.
"""

from typing import TYPE_CHECKING

from sage.exports import lazily

if TYPE_CHECKING:
    from sage.training.correction import Correction
    from sage.training.drawers import transformers_rollouts, vllm_rollouts
    from sage.training.rewards import graded_reward
    from sage.training.shaping import Shaping
    from sage.training.trainer import SageTrainer

__all__ = [
    "Correction",
    "SageTrainer",
    "Shaping",
    "graded_reward",
    "transformers_rollouts",
    "vllm_rollouts",
]

__getattr__ = lazily(
    __name__,
    {
        "Correction": "sage.training.correction",
        "SageTrainer": "sage.training.trainer",
        "Shaping": "sage.training.shaping",
        "graded_reward": "sage.training.rewards",
        "transformers_rollouts": "sage.training.drawers",
        "vllm_rollouts": "sage.training.drawers",
    },
)
