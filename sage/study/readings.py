"""Where the paper and its official release differ or are silent: every choice by name.

A reading has a question, the answers that were given to it, who gives them, and what each answer
sets. `readings: {sft_length: prompt}` in a study switches one; it changes a model or an algorithm
only where its settings are those of one of the answers, so that a model with lengths of its own
keeps them. `readings_of` says which answers are in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from sage.fields import nearest
from sage.study.algorithms import Algorithm
from sage.study.faults import mapping
from sage.study.models import RL, Evaluation
from sage.study.tuning import SFT
from sage.study.types import ResolvedStudy

Section = Literal["sft", "rl", "evaluation", "algorithms"]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """An answer: who gives it (`paper`, `release`, `neither`, ...) and the settings it means.

    A key with a dot leads into a section, such as `sampling.temperature`.
    """

    source: str
    meaning: str
    sets: Values


@dataclass(frozen=True)
class Reading:
    """A question, its answers by name and the one that the paper's study follows.

    `only` are settings that a model or algorithm must have for the question to arise.
    """

    name: str
    question: str
    section: Section
    choices: Mapping[str, Choice]
    default: str
    only: Values


@dataclass(frozen=True)
class InForce:
    """A reading in one study: for each model or algorithm the answer that its settings give.

    None stands for settings that are those of no answer.
    """

    reading: Reading
    answers: Mapping[str, str | None]


def _reading(
    name: str,
    question: str,
    section: Section,
    default: str,
    choices: Mapping[str, Choice],
    only: Values | None = None,
) -> Reading:
    return Reading(name, question, section, choices, default, only or {})


READINGS: dict[str, Reading] = {
    reading.name: reading
    for reading in (
        _reading(
            "sft_length",
            "What may take at most half of the maximum length of an SFT example?",
            "sft",
            "conversation",
            {
                "conversation": Choice(
                    "release",
                    "the whole conversation: few and short examples remain",
                    {"length": "conversation", "too_long": "leave_out"},
                ),
                "prompt": Choice(
                    "paper",
                    "the prompt: thousands of long solutions, cut off at the maximum",
                    {"length": "prompt", "too_long": "cut"},
                ),
            },
        ),
        _reading(
            "sft_loss",
            "Which tokens of an SFT example carry loss?",
            "sft",
            "text",
            {
                "text": Choice("release", "all, the problem's included", {"loss": "text"}),
                "completion": Choice("neither", "the completion's alone", {"loss": "completion"}),
            },
        ),
        _reading(
            "chat_template",
            "Which chat template does a fine-tuned model get?",
            "sft",
            "unsloth",
            {
                "unsloth": Choice(
                    "paper and release",
                    "Unsloth's: system prompt, end of text, the bare problem",
                    {"template": "unsloth"},
                ),
                "own": Choice("neither", "the model's own", {"template": "own"}),
            },
        ),
        _reading(
            "batching",
            "What does a batch size of 8 count, at 8 rollouts for a prompt?",
            "rl",
            "completions",
            {
                "completions": Choice(
                    "release",
                    "completions: one prompt a step; a generation of two prompts serves two steps",
                    {"prompts_per_step": 1, "steps_per_generation": 2, "micro_batches": 1},
                ),
                "prompts": Choice(
                    "paper, taken at its word",
                    "prompts: 64 completions a step, each generation used once",
                    {"prompts_per_step": 8, "steps_per_generation": 1, "micro_batches": 1},
                ),
            },
            {"rollouts": 8},
        ),
        _reading(
            "schedule",
            "What does the learning rate of RL do?",
            "rl",
            "linear",
            {
                "linear": Choice(
                    "paper", "it falls linearly to 0 after its warm-up", {"schedule": "linear"}
                ),
                "constant": Choice(
                    "release",
                    "it stays at its peak; this schedule ignores the warm-up",
                    {"schedule": "constant"},
                ),
                "constant_with_warmup": Choice(
                    "neither",
                    "it stays at its peak after its warm-up",
                    {"schedule": "constant_with_warmup"},
                ),
            },
        ),
        _reading(
            "completion_length",
            "How long may a rollout be, where the maximum length is 2,048 tokens?",
            "rl",
            "whole",
            {
                "whole": Choice(
                    "paper", "2,048 tokens of completion", {"sampling.max_tokens": 2048}
                ),
                "half": Choice(
                    "release", "1,024 tokens, as many as a prompt", {"sampling.max_tokens": 1024}
                ),
            },
        ),
        _reading(
            "evaluation_temperature",
            "At which temperature are models evaluated?",
            "evaluation",
            "released",
            {
                "released": Choice("release", "0.3", {"sampling.temperature": 0.3}),
                "training": Choice("neither", "1, as in training", {"sampling.temperature": 1.0}),
            },
        ),
        _reading(
            "kl_reference",
            "What does the KL term refer to, and when does a guide's schedule advance?",
            "algorithms",
            "paper",
            {
                "paper": Choice(
                    "paper",
                    "the model after SFT; once an optimizer step",
                    {"fidelity": "paper"},
                ),
                "released": Choice(
                    "release",
                    "the model before SFT; with every call of the loss",
                    {"fidelity": "released"},
                ),
            },
            {"kl": "reverse"},
        ),
        _reading(
            "kl_estimator",
            "Which estimator of the reverse KL does the loss take?",
            "algorithms",
            "k3",
            {
                "k3": Choice(
                    "paper and release",
                    "k3, which on policy descends a forward KL",
                    {"estimator": "k3"},
                ),
                "k3_corrected": Choice(
                    "neither",
                    "k3 times the importance weight, which descends the reverse KL",
                    {"estimator": "k3_corrected"},
                ),
            },
            {"kl": "reverse"},
        ),
        _reading(
            "forward_kl",
            "Which estimator does the forward KL take?",
            "algorithms",
            "sampled",
            {
                "sampled": Choice(
                    "neither: both are silent", "one token at a time", {"estimator": "sampled"}
                ),
                "exact": Choice(
                    "neither: both are silent",
                    "a sum over the vocabulary",
                    {"estimator": "exact"},
                ),
            },
            {"kl": "forward"},
        ),
        _reading(
            "dapo_clip",
            "How far may the probability ratio of DAPO rise before it is clipped?",
            "algorithms",
            "higher",
            {
                "higher": Choice("paper", "to 1.28", {"clip_high": 0.28}),
                "same": Choice(
                    "release",
                    "to 1.2, as in the other rows: its setting never reaches the loss",
                    {"clip_high": 0.2},
                ),
            },
            {"loss": "dapo"},
        ),
    )
}

_TYPES: dict[Section, type[BaseModel]] = {
    "sft": SFT,
    "rl": RL,
    "evaluation": Evaluation,
    "algorithms": Algorithm,
}


def with_readings(
    content: Mapping[Any, Any], rows: Mapping[Any, Any]
) -> tuple[dict[Any, Any], dict[Any, Any], list[str]]:
    """A study and the algorithms with the answers that its `readings` name, and faults.

    Readings and answers that there are not are faults, and a reading that could change nothing in
    the study; answers of wrong type are passed over, for the study's type has them.
    """
    changed, changed_rows = deepcopy(dict(content)), deepcopy(dict(rows))
    faults = []
    for name, answer in mapping(content.get("readings")).items():
        if (reading := READINGS.get(name)) is None:
            faults.append(
                f"readings.{name}: there is no such reading{nearest(str(name), READINGS)}"
            )
            continue
        if not isinstance(answer, str):
            continue
        if (choice := reading.choices.get(answer)) is None:
            what = f"{answer!r} is no answer to it{nearest(answer, reading.choices)}"
            faults.append(f"readings.{name}: {what}")
            continue
        places = [
            section
            for section in _sections(reading.section, changed, changed_rows).values()
            if _answer(reading, section) is not None
        ]
        if not places:
            faults.append(f"readings.{name}: nothing in this study has settings that it switches")
        for section in places:
            for key, value in choice.sets.items():
                *path, last = key.split(".")
                for part in path:
                    section = section.setdefault(part, {})
                section[last] = value
    return changed, changed_rows, faults


def readings_of(study: ResolvedStudy) -> list[InForce]:
    """Every reading, with the answers that are in force for the models or rows it concerns."""
    content = study.study.model_dump(mode="json")
    rows = {name: row.model_dump(mode="json") for name, row in study.algorithms.items()}
    found = []
    for reading in READINGS.values():
        named = _sections(reading.section, content, rows)
        answers = {
            name: _answer(reading, section)
            for name, section in named.items()
            if _holds(section, reading.only, reading.section)
        }
        found.append(InForce(reading, answers))
    return found


def _sections(
    section: Section, content: Mapping[Any, Any], rows: Mapping[Any, Any]
) -> dict[str, Any]:
    """The sections of a kind, by the model or algorithm that they belong to."""
    if section == "algorithms":
        return {name: row for name, row in rows.items() if isinstance(row, dict)}
    models = mapping(content.get("models"))
    own = {name: model.get(section) for name, model in models.items() if isinstance(model, dict)}
    if section == "evaluation":
        own = {"the study": content.get("evaluation"), **own}
    return {name: value for name, value in own.items() if isinstance(value, dict)}


def _answer(reading: Reading, section: Mapping[str, Any]) -> str | None:
    """The answer that a section's settings give; None where the question does not arise."""
    if not _holds(section, reading.only, reading.section):
        return None
    for name, choice in reading.choices.items():
        if _holds(section, choice.sets, reading.section):
            return name
    return None


def _holds(section: Mapping[str, Any], values: Values, kind: Section) -> bool:
    """Whether a section has these settings, written or by default."""
    return all(_value(section, key, _TYPES[kind]) == value for key, value in values.items())


def _value(section: Mapping[str, Any], key: str, kind: type[BaseModel]) -> Any:
    first, _, rest = key.partition(".")
    if rest:
        return mapping(section.get(first)).get(rest)
    field = kind.model_fields[first]
    value = section.get(first, None if field.is_required() else field.get_default())
    # A choice in full, without settings, is its name.
    in_full = isinstance(value, dict) and "kind" in value and not value.get("settings")
    return value["kind"] if in_full else value
