"""From a policy to numbers: sample and grade, count, pass@k with intervals.

`pass_at_k_with_intervals` works on verdicts from anywhere; it is imported when it is used.
"""

from typing import TYPE_CHECKING

from sage.exports import lazily

if TYPE_CHECKING:
    from sage.evaluation.verdicts import pass_at_k_with_intervals

__all__ = ["pass_at_k_with_intervals"]

__getattr__ = lazily(__name__, {"pass_at_k_with_intervals": "sage.evaluation.verdicts"})
