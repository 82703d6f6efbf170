"""What switching a reading does, where that can be measured without training.

Each function takes files or settings of a study and returns rows (reading, answer, quantity,
value). The question what a reading does to a trained model is left to studies that switch it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.token_signals import token_signals
from sage.policies import load_model, load_tokenizer
from sage.problems.record import Problem, read_problems
from sage.prompting import UNSLOTH_CHAT_TEMPLATE, prompt_ids
from sage.runtime.tables import read_frame
from sage.study import RL, SFT
from sage.study.readings import READINGS
from sage.training.examples import CUT, OVER_HALF, OVER_MAXIMUM, Solution, chosen, read_solutions

COLUMNS = ["reading", "answer", "quantity", "value"]

COMPLETIONS = 64
"""On so many completions, each of another problem, two references are compared."""

Effect = tuple[str, str, str, float]


def read_effects(
    files: Mapping[str, Sequence[Path]], rl: RL, sft: SFT | None, device: str
) -> pd.DataFrame:
    """COLUMNS, from the study's own files.

    `files` has the `samples` of the policy before RL, the `problems` that they answer, the
    `training` problems and, for a model with SFT, the `pretrained` checkpoint, the `parent` and
    the `examples`.
    """
    training = read_problems(files["training"][0])
    samples = pd.concat([read_frame(path) for path in files["samples"]], ignore_index=True)
    asked = read_problems(files["problems"][0])
    effects = [
        *of_batching(rl, samples),
        *of_schedule(rl),
        *of_room(rl, samples),
        *of_pass_at_1(samples, asked),
    ]
    if sft is not None:
        pretrained, parent = files["pretrained"][0], files["parent"][0]
        solutions = read_solutions(files["examples"][0])
        effects = [
            *of_sft(sft, solutions, load_tokenizer(pretrained)),
            *of_template(training, load_tokenizer(pretrained)),
            *effects,
            *of_reference(pretrained, parent, asked, samples, device),
        ]
    return pd.DataFrame(effects, columns=COLUMNS)


def of_sft(sft: SFT, solutions: Sequence[Solution], tokenizer: Any) -> Iterator[Effect]:
    """Which examples each answer on their length selects, and which tokens carry loss."""
    if sft.template == "unsloth":
        tokenizer.chat_template = UNSLOTH_CHAT_TEMPLATE
    for answer, choice in READINGS["sft_length"].choices.items():
        examples = chosen(solutions, tokenizer, sft.model_copy(update=dict(choice.sets)))
        counts = examples.counts
        left_out = counts[OVER_HALF] + counts[OVER_MAXIMUM]
        yield "sft_length", answer, "examples trained on", counts["trained_on"]
        yield "sft_length", answer, "examples left out", left_out
        yield "sft_length", answer, "examples cut off", counts[CUT]
    rows = chosen(solutions, tokenizer, sft).rows
    tokens = sum(len(row["input_ids"]) for row in rows)
    of_completions = sum(sum(row["completion_mask"]) for row in rows)
    yield "sft_loss", "text", "tokens with loss", tokens
    yield "sft_loss", "completion", "tokens with loss", of_completions


def of_template(problems: Sequence[Problem], tokenizer: Any) -> Iterator[Effect]:
    """How long the prompts of RL are in each template, in tokens."""
    own = tokenizer.chat_template
    for answer, template in {"unsloth": UNSLOTH_CHAT_TEMPLATE, "own": own}.items():
        tokenizer.chat_template = template
        lengths = [len(prompt_ids(tokenizer, problem.problem)) for problem in problems]
        yield "chat_template", answer, "tokens of a prompt, mean", float(np.mean(lengths))
    tokenizer.chat_template = own


def of_batching(rl: RL, samples: pd.DataFrame) -> Iterator[Effect]:
    """Optimizer steps for the run's rollouts, and how far completions weigh differently in BNPO.

    A mean over the tokens of each completion alone, in place of one over all that a prompt
    gets, gives a token of the shortest the weight of a token of the longest times the ratio of
    their lengths.
    """
    rollouts = rl.steps * rl.prompts_per_step * rl.rollouts
    reading = READINGS["batching"]
    if all(getattr(rl, key) == value for key, value in reading.only.items()):
        for answer, choice in reading.choices.items():
            step = choice.sets["prompts_per_step"] * rl.rollouts
            uses = choice.sets["steps_per_generation"]
            yield "batching", answer, "optimizer steps for the run's rollouts", rollouts / step
            yield "batching", answer, "share of steps off-policy", (uses - 1) / uses
    lengths = samples[samples["n_tokens"] > 0].groupby("problem_id", sort=False)["n_tokens"]
    ratios = [
        group.iloc[: rl.rollouts].max() / group.iloc[: rl.rollouts].min() for _, group in lengths
    ]
    quantity = "BNPO: weight of a token of the shortest completion over one of the longest, median"
    yield "batching", "one mean over a prompt's completions", quantity, 1.0
    yield "batching", "a mean for each completion", quantity, float(np.median(ratios))


def of_schedule(rl: RL) -> Iterator[Effect]:
    """The mean learning rate of a run over its peak; only `constant` has no warm-up."""
    warm_up = round(rl.warmup_ratio * rl.steps)
    rising = sum(step / warm_up for step in range(warm_up))
    rest = rl.steps - warm_up
    falling = sum((rest - step) / rest for step in range(rest))
    quantity = "mean learning rate over its peak"
    yield "schedule", "linear", quantity, (rising + falling) / rl.steps
    yield "schedule", "constant", quantity, 1.0
    yield "schedule", "constant_with_warmup", quantity, (rising + rest) / rl.steps


def of_room(rl: RL, samples: pd.DataFrame) -> Iterator[Effect]:
    """What half of the room for completions would cut off, before RL."""
    room = rl.sampling.max_tokens
    for answer, limit in {"whole": room, "half": room // 2}.items():
        over = samples["n_tokens"] > limit
        correct = samples["status"] == "correct"
        lost = float(over[correct].mean()) if correct.any() else float("nan")
        yield "completion_length", answer, f"share of completions over {limit} tokens", over.mean()
        yield "completion_length", answer, f"the same of correct ones, {limit} tokens", lost


def of_pass_at_1(samples: pd.DataFrame, problems: Sequence[Problem]) -> Iterator[Effect]:
    """pass@1 before RL, as it is estimated here, in the paper, and by the release's code.

    The release divides the number of correct completions of its last problem by the number of
    problems.
    """
    ordered = samples.sort_values(["eval_seed", "sample_index"], kind="stable")
    one = ordered[ordered["eval_seed"] == ordered["eval_seed"].iloc[0]]
    correct = one.assign(correct=one["status"] == "correct").groupby("problem_id")["correct"]
    name, quantity = "pass_at_1", "pass@1 before RL"
    yield name, "mean over all samples", quantity, float(correct.mean().mean())
    yield name, "first sample of each problem (paper)", quantity, float(correct.first().mean())
    last = correct.sum().get(problems[-1].problem_id, 0)
    yield name, "last problem over number of problems (release)", quantity, last / len(problems)


def of_reference(
    pretrained: Path, parent: Path, problems: Sequence[Problem], samples: pd.DataFrame, device: str
) -> Iterator[Effect]:
    """The KL term at the first step of RL: the policy against each reference, by k3.

    In nats a token, on the policy's own completions, with the mean over all tokens.
    """
    tokenizer = load_tokenizer(parent)
    prompts = {one.problem_id: prompt_ids(tokenizer, one.problem) for one in problems}
    drawn = samples[samples["n_tokens"] > 0].drop_duplicates("problem_id").head(COMPLETIONS)
    asked = [prompts[name] for name in drawn["problem_id"]]
    completions = [list(ids) for ids in drawn["token_ids"]]
    read = []
    for checkpoint in (parent, pretrained):
        model: Any = load_model(checkpoint)
        signals = token_signals(model.to(device), asked, completions)
        read.append(np.concatenate([log_probs for log_probs, _ in signals]))
        del model
    log_ratio = read[1].astype(np.float64) - read[0]
    k3 = np.exp(log_ratio) - log_ratio - 1
    quantity = "KL term at the first step, nats per token"
    yield "kl_reference", "paper", quantity, 0.0
    yield "kl_reference", "released", quantity, float(k3.mean())
