"""Reinforcement learning from verifiable rewards with a shaped KL anchor.

For a script of your own: `sage.training` (SageTrainer in place of TRL's GRPOTrainer), `sage.method`
(guides, anchors, advantages, credit, rewards and planners: what a method can choose),
`sage.grading` (the grader), `sage.sampling` (completions of prompts) and `sage.evaluation` (pass@k
with intervals). The other packages are the workflow's: they read the repository's `config` and
`reports`.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older one can read up to here
    here = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(f"Python 3.11 or newer is needed; this is {here} ({sys.executable})")
