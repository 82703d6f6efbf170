"""Rewards as TRL calls them: columns of the batch in, one number a completion out.

For rewards without a verifier the policy's probability of the gold answer is read first, in batched
passes without gradient: after a completion's reasoning, up to and with its last answer tag, and
after no reasoning.
"""

from __future__ import annotations

import hashlib
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from torch.nn.functional import pad

from sage.method.rewards import Completion, RewardFunction
from sage.prompting import SOLUTION_OPEN, completion
from sage.tasks import Grader, Verdict, task_of

if TYPE_CHECKING:
    from transformers import TrainerState

Reward = Callable[..., list[float | None]]
"""None stands for a completion that is not scored."""
Ids = list[int]

SOURCE = "source"
"""Column of the data set with the sources of the problems, for rules that compare strategies."""

READS_ANSWER = "reads_answer"
"""Attribute of a reward that needs the policy's probabilities of the gold answer."""


def graded_reward(grader: Grader, answer: str = "answer", kind: str = "kind") -> Reward:
    """A reward function for TRL: 1 for a completion that `grader` finds correct, else 0.

    The data set's column `answer` holds the gold answers, and `kind` their kinds
    (`sage.tasks`); without that column all are `math`. Where the gold answer is
    None, NaN or blank, completions are not scored. The reward raises ValueError without the column
    of answers.
    """

    def graded(completions: list[Any], **columns: Any) -> list[float | None]:
        if answer not in columns:
            raise ValueError(
                f"the data set has no column {answer!r} with the gold answers, only "
                f"{sorted(columns)}; name it in graded_reward(grader, answer=...)"
            )
        kinds = columns.get(kind) or ["math"] * len(completions)
        verdicts = _verdicts(
            grader, [text_of(each) for each in completions], columns[answer], kinds
        )
        return [None if verdict is None else verdict.reward for verdict in verdicts]

    return graded


def _verdicts(
    grader: Grader, texts: Sequence[str], golds: Sequence[Any], kinds: Sequence[Any]
) -> list[Verdict | None]:
    """The verdicts on `texts`; None where there is no gold answer."""
    rows = zip(texts, golds, kinds, strict=True)
    asked = [(text, str(gold), kind) for text, gold, kind in rows if has_answer(gold)]
    verdicts = iter(grader.grade_many(asked))
    return [next(verdicts) if has_answer(gold) else None for gold in golds]


def has_answer(gold: Any) -> bool:
    """Whether a data set's cell holds a gold answer: not None, NaN or blank."""
    return (
        gold is not None
        and not (isinstance(gold, float) and math.isnan(gold))
        and bool(str(gold).strip())
    )


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """What the assistant wrote last, of what TRL hands over as a completion: a text, or messages.

    What tools wrote, and what the assistant wrote before, is not its answer.
    """
    if isinstance(completion, str):
        return completion
    own = [each for each in completion if each.get("role", "assistant") == "assistant"]
    return content_of(own[-1]) if own else ""


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message; of content in parts the texts of all parts, joined."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part.get("text") or "" for part in content)


def strategies_of(inputs: Sequence[Mapping[str, Any]], completions: Sequence[Any]) -> list[int]:
    """A number for the strategy of each completion, equal where the strategy is.

    `inputs` are the examples, with the column SOURCE. Raises ValueError without it, and for a
    source whose strategies are not known.
    """
    numbers = []
    for example, written in zip(inputs, completions, strict=True):
        kind, source = example.get("kind", "math"), example.get(SOURCE, "")
        if (strategy := task_of(kind, source).strategy) is None:
            raise ValueError(
                "the credit rule compares strategies, which are known of some tasks only, not of "
                f"{SOURCE} {source!r}"
            )
        asked = example["prompt"]
        problem = asked if isinstance(asked, str) else content_of(asked[-1])
        name = strategy(problem, text_of(written))
        numbers.append(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big"))
    return numbers


def graded(
    grader: Grader, rewards: Sequence[tuple[str, RewardFunction]], longest: int, seed: int = 0
) -> list[Reward]:
    """TRL's reward functions: correctness, then the `rewards`, each under its name.

    Correctness is always there, for it is logged and filters look at it. A completion is graded
    once, by the first function, and none of them scores it where there is no gold answer; `longest`
    is the length limit in tokens. What a completion draws at random follows from the run's `seed`,
    the step, the calls of the step before this one, and its place among those of all processes.
    """
    seen: list[Completion | None] = []
    calls: Counter[int] = Counter()

    def correct(
        completions: list[Any],
        completion_ids: list[list[int]],
        answer: list[Any],
        kind: list[Any],
        log_metric: Callable[[str, float], None] = lambda name, value: None,
        answer_probability: Sequence[float | None] = (),
        prior_probability: Sequence[float | None] = (),
        trainer_state: TrainerState | None = None,
        **_: Any,
    ) -> list[float | None]:
        step = trainer_state.global_step if trainer_state else 0
        # The 0 once was the process; it stays, for with it runs of one process draw as before.
        lucky = random.Random(f"luck/{seed}/{step}/0/{calls[step]}")
        for _place in range(PartialState().process_index * len(completions)):
            lucky.random()
        calls[step] += 1
        unknown = [None] * len(completions)
        texts = [text_of(completion) for completion in completions]
        verdicts = _verdicts(grader, texts, answer, kind)
        after, before = answer_probability or unknown, prior_probability or unknown
        rows = zip(texts, answer, verdicts, completion_ids, after, before, strict=True)
        seen.clear()
        for text, gold, verdict, ids, p, prior in rows:
            luck = lucky.random()
            right = verdict is not None and verdict.reward > 0
            one = Completion(text, gold, right, len(ids), longest, p, prior, luck)
            seen.append(None if verdict is None else one)
        graded = [verdict for verdict in verdicts if verdict is not None]
        late = sum(verdict.status == "timeout" for verdict in graded)
        log_metric("grader_timeouts", late / max(len(graded), 1))
        return [None if verdict is None else verdict.reward for verdict in verdicts]

    def scored(name: str, reward: RewardFunction) -> Reward:
        def score(**_: Any) -> list[float | None]:
            return [None if one is None else float(reward.score(one)) for one in seen]

        score.__name__ = name
        vars(score)[READS_ANSWER] = getattr(reward, READS_ANSWER, False)
        return score

    return [correct, *(scored(name, reward) for name, reward in rewards)]


def with_answer_probabilities(
    inputs: Sequence[Mapping[str, Any]],
    prompts: Sequence[Any],
    written: Sequence[Ids],
    tokenizer: Any,
    read: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor],
    alone: bool,
) -> list[dict[str, Any]]:
    """`inputs` with the answer's mean probability after each completion's reasoning and after none:
    `answer_probability` and `prior_probability`.

    `inputs` are the examples of the data set, `prompts` their texts or conversations, `written` the
    completions' tokens. `read(ids, mask, width)` gives the log-probs of the last `width` tokens,
    `[B, width]`. Only a process that trains `alone` may read less where texts are equal or lack an
    answer: several must run the same number of passes, whatever was written.
    """
    plain = plain_ids(tokenizer, completion("", "").partition(SOLUTION_OPEN)[0] + SOLUTION_OPEN)
    texts: list[tuple[Ids, Ids, Ids]] = []
    priors: dict[Any, int] = {}
    places: list[tuple[int | None, int]] = []
    asked: Ids = []
    asked_for: Any = None
    for row, (one, prompt, ids) in enumerate(zip(inputs, prompts, written, strict=True)):
        if prompt != asked_for:  # completions of one prompt follow each other
            asked, asked_for = _prompt_ids(tokenizer, prompt), prompt
        known = has_answer(one["answer"])
        gold = task_of(one.get("kind", "math")).readable(str(one["answer"])) if known else ""
        answer = plain_ids(tokenizer, gold)
        reasoning = ids_before_answer(tokenizer, list(ids))
        key = (tuple(asked), gold, None if alone else row)
        if key not in priors:
            priors[key] = len(texts)
            texts.append((asked, plain, answer))
        if reasoning is not None or not alone:
            texts.append((asked, reasoning or plain, answer))
        places.append((None if reasoning is None else len(texts) - 1, priors[key]))
    means = _mean_probabilities(texts, tokenizer.pad_token_id, read)
    probabilities = [(0.0 if after is None else means[after], means[p]) for after, p in places]
    return [
        {**one, "answer_probability": after, "prior_probability": before}
        for one, (after, before) in zip(inputs, probabilities, strict=True)
    ]


def _prompt_ids(tokenizer: Any, prompt: Any) -> Ids:
    if isinstance(prompt, str):
        return plain_ids(tokenizer, prompt)
    encoded = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoded["input_ids"])


def _mean_probabilities(
    texts: Sequence[tuple[Ids, Ids, Ids]], fill: int, read: Callable[..., torch.Tensor]
) -> list[float]:
    """For each (prompt, context, answer) the mean probability of the answer's tokens."""
    longest = max(len(asked) for asked, _, _ in texts)
    width = max(len(context) + len(answer) for _, context, answer in texts)
    ids, mask = [], []
    inside = torch.zeros(len(texts), width, dtype=torch.bool)
    for row, (asked, context, answer) in enumerate(texts):
        own = torch.tensor([*asked, *context, *answer])
        end = len(context) + len(answer)
        sides = (longest - len(asked), width - end)
        ids.append(pad(own, sides, value=fill))
        mask.append(pad(torch.ones_like(own), sides))
        inside[row, len(context) : end] = True
    log_probs = read(torch.stack(ids), torch.stack(mask), width)
    inside = inside.to(log_probs.device)
    means = (log_probs.float().exp() * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
    return list(means.tolist())


def plain_ids(tokenizer: Any, text: str) -> Ids:
    """Token ids of `text` alone, without special tokens around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def ids_before_answer(tokenizer: Any, written: Ids) -> Ids | None:
    """The tokens of a completion up to and with its last answer tag; None if it has none.

    Of a token that goes on behind the tag, the part up to the tag is tokenised again.
    """

    def length(count: int) -> int:
        return len(tokenizer.decode(written[:count], clean_up_tokenization_spaces=False))

    whole: str = tokenizer.decode(written, clean_up_tokenization_spaces=False)
    start = whole.rfind(SOLUTION_OPEN)
    if start < 0:
        return None
    end = start + len(SOLUTION_OPEN)
    # The most tokens whose text ends at the tag's end or before.
    kept = bisect_right(range(1, len(written) + 1), end, key=length)
    return written[:kept] + plain_ids(tokenizer, whole[length(kept) : end])
