"""Guided retry (after Agent-RLVR, arXiv 2506.11425): a second try with guidance.

    prompts on which all G completions fail are drawn G times more, under the problem's hint
    of these the right ones join the group, under the prompt without the hint
    weight of their tokens = pi(y | x) / pi_old(y | x, hint)

The weight is the loss's probability ratio: their old log-probs are those under the hint. It is
within the clip of the method where the advantage is positive. The KL term of these tokens is taken
under the prompt without the hint; `k3_corrected` and `k1_reward` weight it in the same way, others
do not.

Its authors have agents that try again after a unit test. Here it is single-turn problems with a
hint: the idea, not the set-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from sage.method.planners import Chosen, Draw, Drawn


@dataclass(frozen=True)
class GuidedRetry:
    """Prompts on which all completions fail are drawn again with the problem's hint."""

    needs_guidance: ClassVar[bool] = True

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.clip_high is None:
            yield "weights completions by their probability ratio, which clip_high must bound"

    def further(self, drawn: Drawn) -> Draw | None:
        """Once: as many completions again, under guidance, of prompts that failed.

        Completions that are not scored neither fail nor succeed.
        """
        if drawn.draws > 1:
            return None
        failed = ~(drawn.correct > 0).any(dim=1) & (drawn.correct <= 0).any(dim=1)
        return Draw(more=failed.long() * drawn.rollouts, guided=True)

    def chosen(self, drawn: Drawn) -> Chosen:
        """All but wrong completions under guidance."""
        return Chosen(None, drawn.present & (~drawn.guided | (drawn.correct > 0)))
