"""Rewards as TRL calls them: columns of the batch in, one number a completion out."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accelerate import PartialState

from sage.grading import Grader
from sage.method.rewards import Completion, RewardFunction
from sage.problems.working import STRATEGIES

if TYPE_CHECKING:
    from transformers import TrainerState

Reward = Callable[..., list[float]]

SOURCE = "source"
"""Column of the data set with the sources of the problems, for rules that compare strategies."""

READS_ANSWER = "reads_answer"
"""Attribute of a reward that needs the policy's probabilities of the gold answer."""


def graded_reward(grader: Grader, answer: str = "answer", kind: str = "kind") -> Reward:
    """A reward function for TRL: 1 for a completion that `grader` finds correct, else 0.

    The data set's column `answer` holds the gold answers, and `kind` their kinds
    (`sage.problems.record.Kind`); without that column all are `math`. The reward raises ValueError
    without the column of answers.
    """

    def graded(completions: list[Any], **columns: Any) -> list[float]:
        if answer not in columns:
            raise ValueError(
                f"the data set has no column {answer!r} with the gold answers, only "
                f"{sorted(columns)}; name it in graded_reward(grader, answer=...)"
            )
        kinds = columns.get(kind) or ["math"] * len(completions)
        asked = zip(map(text_of, completions), map(str, columns[answer]), kinds, strict=True)
        return [verdict.reward for verdict in grader.grade_many(list(asked))]

    return graded


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """What TRL hands over as a completion: a text, or messages, whose texts are joined."""
    if isinstance(completion, str):
        return completion
    return "\n".join(str(message.get("content") or "") for message in completion)


def strategies_of(inputs: Sequence[Mapping[str, Any]], completions: Sequence[Any]) -> list[int]:
    """A number for the strategy of each completion, equal where the strategy is.

    `inputs` are the examples, with the column SOURCE. Raises ValueError without it, and for a
    source whose strategies are not known.
    """
    numbers = []
    for example, completion in zip(inputs, completions, strict=True):
        if (source := example.get(SOURCE)) not in STRATEGIES:
            raise ValueError(
                f"the credit rule compares strategies, which are known of problems from "
                f"{', '.join(STRATEGIES)}, not of {SOURCE} {source!r}"
            )
        name = STRATEGIES[source](text_of(example["prompt"][-1:]), text_of(completion))
        numbers.append(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big"))
    return numbers


def graded(
    grader: Grader, rewards: Sequence[tuple[str, RewardFunction]], longest: int, seed: int = 0
) -> list[Reward]:
    """TRL's reward functions: correctness, then the `rewards`, each under its name.

    Correctness is always there, for it is logged and filters look at it. A completion is graded
    once, by the first function; `longest` is the length limit in tokens. What a completion draws
    at random follows from the run's `seed`, the step, the process, how many calls the step had
    before, and its place in this call; so a run that continues draws the same.
    """
    seen: list[Completion] = []
    calls: Counter[int] = Counter()

    def correct(
        completions: list[list[dict[str, str]]],
        completion_ids: list[list[int]],
        answer: list[str],
        kind: list[Any],
        log_metric: Callable[[str, float], None] | None = None,
        answer_probability: Sequence[float] | None = None,
        prior_probability: Sequence[float] | None = None,
        trainer_state: TrainerState | None = None,
        **_: Any,
    ) -> list[float]:
        step = trainer_state.global_step if trainer_state else 0
        process = PartialState().process_index
        lucky = random.Random(f"luck/{seed}/{step}/{process}/{calls[step]}")
        calls[step] += 1
        unknown = [None] * len(completions)
        texts = [completion[0]["content"] for completion in completions]
        verdicts = grader.grade_many(list(zip(texts, answer, kind, strict=True)))
        seen[:] = [
            Completion(
                text, gold, verdict.reward > 0, len(ids), longest, after, before, lucky.random()
            )
            for text, gold, verdict, ids, after, before in zip(
                texts,
                answer,
                verdicts,
                completion_ids,
                answer_probability or unknown,
                prior_probability or unknown,
                strict=True,
            )
        ]
        if log_metric is not None:
            late = sum(verdict.status == "timeout" for verdict in verdicts)
            log_metric("grader_timeouts", late / max(len(verdicts), 1))
        return [verdict.reward for verdict in verdicts]

    def scored(name: str, reward: RewardFunction) -> Reward:
        def score(**_: Any) -> list[float]:
            return [float(reward.score(completion)) for completion in seen]

        score.__name__ = name
        vars(score)[READS_ANSWER] = getattr(reward, READS_ANSWER, False)
        return score

    return [correct, *(scored(name, reward) for name, reward in rewards)]
