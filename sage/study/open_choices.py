"""Where the paper and its official release differ or are silent: every open choice by name.

`open_choices.yaml` has them. A choice has a question, the answers that were given to it, who gives
them, and what each answer sets. `open_choices: {sft_length: prompt}` in a study switches one; it
changes a model or a method only where its settings are those of one of the answers, so that a
model with lengths of its own keeps them. `answers_in` says which answers are in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, TypeAdapter

from sage.faults import mapping
from sage.fields import nearest
from sage.study.algorithms import Algorithm
from sage.study.models import RL, SFT, Evaluation
from sage.study.types import ResolvedStudy

Section = Literal["sft", "rl", "evaluation", "algorithms"]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """An answer: who gives it (`paper`, `release`, `neither`, ...) and the settings it means.

    A key with a dot leads into a section, such as `sampling.temperature`.
    """

    source: str
    meaning: str
    sets: Values


@dataclass(frozen=True)
class OpenChoice:
    """A question, its answers by name and the one that the paper's study follows.

    `only` are settings that a model or method must have for the question to arise.
    """

    name: str
    question: str
    section: Section
    answers: Mapping[str, Answer]
    default: str
    only: Values


@dataclass(frozen=True)
class InForce:
    """An open choice in one study: for each model or method the answer that its settings give.

    None stands for settings that are those of no answer.
    """

    choice: OpenChoice
    answers: Mapping[str, str | None]


OPEN_CHOICES = {
    name: TypeAdapter(OpenChoice).validate_python({"name": name, "only": {}, **entry})
    for name, entry in yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    ).items()
}
"""By name; they stand in `open_choices.yaml` beside this file."""

_TYPES: dict[Section, type[BaseModel]] = {
    "sft": SFT,
    "rl": RL,
    "evaluation": Evaluation,
    "algorithms": Algorithm,
}


def with_answers(
    content: Mapping[Any, Any], rows: Mapping[Any, Any]
) -> tuple[dict[Any, Any], dict[Any, Any], list[str]]:
    """A study and the methods with the answers that its `open_choices` name, and faults.

    A choice that could change nothing in the study is one too. Answers of wrong type are passed
    over, for the study's type has them.
    """
    changed, changed_rows = deepcopy(dict(content)), deepcopy(dict(rows))
    faults = []
    for name, answer in mapping(content.get("open_choices")).items():
        key, choice = f"open_choices.{name}", OPEN_CHOICES.get(name)
        if choice is None:
            faults.append(f"{key}: there is no such choice{nearest(str(name), OPEN_CHOICES)}")
        elif isinstance(answer, str) and answer not in choice.answers:
            what = f"{answer!r} is no answer to it{nearest(answer, choice.answers)}"
            faults.append(f"{key}: {what}")
        elif isinstance(answer, str):
            sections = _sections(choice.section, changed, changed_rows).values()
            concerned = [each for each in sections if _answer(choice, each) is not None]
            if not concerned:
                faults.append(f"{key}: nothing in this study has settings that it switches")
            for section in concerned:
                for path, value in choice.answers[answer].sets.items():
                    *parents, last = path.split(".")
                    inner = section
                    for parent in parents:  # its own: by an anchor another section can have it too
                        inner[parent] = {**inner.get(parent, {})}
                        inner = inner[parent]
                    inner[last] = value
    return changed, changed_rows, faults


def answers_in(study: ResolvedStudy) -> list[InForce]:
    """Every open choice, with the answers in force for the models or methods it concerns."""
    content = study.study.model_dump(mode="json")
    rows = {name: row.model_dump(mode="json") for name, row in study.algorithms.items()}
    return [
        InForce(
            choice,
            {
                name: _answer(choice, section)
                for name, section in _sections(choice.section, content, rows).items()
                if _holds(section, choice.only, choice.section)
            },
        )
        for choice in OPEN_CHOICES.values()
    ]


def _sections(
    section: Section, content: Mapping[Any, Any], rows: Mapping[Any, Any]
) -> dict[str, Any]:
    """The sections of a kind, by the model or method that they belong to."""
    if section == "algorithms":
        return {name: row for name, row in rows.items() if isinstance(row, dict)}
    models = mapping(content.get("models"))
    own = {name: model.get(section) for name, model in models.items() if isinstance(model, dict)}
    if section == "evaluation":
        own = {"the study": content.get("evaluation"), **own}
    return {name: value for name, value in own.items() if isinstance(value, dict)}


def _answer(choice: OpenChoice, section: Mapping[str, Any]) -> str | None:
    """The answer that a section's settings give; None where the question does not arise."""
    answers = choice.answers.items() if _holds(section, choice.only, choice.section) else ()
    return next((n for n, each in answers if _holds(section, each.sets, choice.section)), None)


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
