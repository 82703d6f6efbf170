"""Choices that the paper leaves open: which answer to each is in force, and what switching does.

The latter is measured where the study's own files show it without training.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Files, Kind, Measuring, Shows
from sage.fields import Name
from sage.rendering.labels import row_title
from sage.rendering.numbers import NONE, listing
from sage.rendering.table import Column, Record, Table, TableDocument, table_of
from sage.results import Results
from sage.study import BASE, ResolvedStudy

if TYPE_CHECKING:
    from sage.study.readings import InForce

COLUMNS = ["reading", "question", "answer", "source", "meaning", "default", "in_force"]
EFFECTS = ["reading", "question", "answer", "in_force", "quantity", "value"]

OWN = "settings of its own"
"""In force where a model or method has settings that are those of no answer."""

QUESTIONS = {"pass_at_1": "How is pass@1 computed? (The report has the first two, side by side.)"}
"""Of rows that are no reading, because nothing is switched."""

OPEN = {
    "evaluation_temperature": "needs samples at the other temperature",
    "kl_estimator": "the table `estimators` has it, computed exactly",
    "forward_kl": "needs training",
    "dapo_clip": "needs training",
}
"""Readings whose effect the study's files do not show, and what would."""

NO_SFT = "this model has no SFT"


class ReadingsTable(Shows):
    """Choices where the paper and its official release differ or are silent: each `answer` to a
    `question` with its `source`, whether it is the `default` of the paper's study, and the models
    or rows of this study for which it is `in_force`."""

    def table(self, display: Display) -> TableDocument:
        frame = readings_frame(display.study)
        caption = (
            "Choices where the paper and its official release differ or are silent. Default: the "
            "answer of the paper’s study; `readings` in a study switches one. In force for: the "
            "models or rows of this study whose settings are those of the answer."
        )
        exhibits = display.study.study.exhibits.items()
        if effects := [name for name, exhibit in exhibits if exhibit.kind == "reading_effects"]:
            caption += f" What the answers do, where it can be shown here: {listing(effects)}."
        columns: list[Column] = [
            ("", "Source", lambda row: row["source"]),
            ("", "Meaning", lambda row: row["meaning"]),
            ("", "In force for", lambda row: listing(row["in_force"].split("; "), most=4) or NONE),
        ]
        return TableDocument(frame, _by_reading(frame, columns, "default"), caption)


class ReadingEffects(Kind):
    """What switching a reading does, measured without training on the study's own files.

    What each answer to a reading does, as far as that can be measured without training: examples
    that SFT selects, tokens with loss, lengths of prompts, optimizer steps, the mean learning rate,
    completions that less room would cut off, and the KL term at the first step. `in_force` is the
    answer of this model.
    """

    kind: Literal["reading_effects"]
    benchmark: Name
    """the problem set whose samples, of the policy before RL, are looked at"""

    with_model: ClassVar[bool] = True
    of_policies: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("samples", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.switching",)

    needs_rl: ClassVar[bool] = True

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        return [BASE]

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Samples and problems, and what SFT starts from."""
        model = study.model(self.model)
        files = {
            **super().inputs(study, results, name),
            "training": [results.problems(study.rl(self.model).problems)],
        }
        if model.sft is None:
            return files
        return files | {
            "pretrained": [results.pretrained(self.model)],
            "parent": [results.parent(self.model)],
            "examples": [results.examples(self.model)],
        }

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        from sage.study.readings import READINGS

        model = study.model(self.model)
        return {
            "readings": {
                name: {answer: dict(choice.sets) for answer, choice in reading.choices.items()}
                for name, reading in READINGS.items()
                if name not in OPEN
            },
            "rl": study.rl(self.model).model_dump(mode="json", exclude={"watch"}),
            "sft": model.sft.model_dump(mode="json") if model.sft else None,
        }

    def measure(self, job: Measuring) -> None:
        from sage.analysis.switching import read_effects
        from sage.study import RL, SFT

        sft = job.settings["sft"]
        effects = read_effects(
            job.files,
            RL.model_validate(job.settings["rl"]),
            SFT.model_validate(sft) if sft else None,
            job.device,
        )
        job.write(effects=effects)
        job.write_manifest()

    def table(self, display: Display) -> TableDocument:
        frame = effects_frame(display.frame("effects"), display)
        caption = (
            f"{display.heading}: what each answer to a reading does, as far as the study’s own "
            "files show it without training. Completions are those of the policy before RL on "
            f"{display.titles[self.benchmark]}. In force: the answer of this model’s settings."
        )
        columns: list[Column] = [("", "What", lambda row: row["quantity"]), ("", "Value", _number)]
        return TableDocument(frame, _by_reading(frame, columns, "in_force"), caption)


def _by_reading(frame: pd.DataFrame, columns: list[Column], marked: str) -> Table:
    """A block of rows for each reading, and a row for each answer; those with `marked` say so."""
    groups = []
    for (name, question), answers in frame.groupby(["reading", "question"], sort=False):
        rows = [
            ((row["answer"] or NONE) + f" ({marked.replace('_', ' ')})" * row[marked], row)
            for row in answers.to_dict("records")
        ]
        groups.append((f"{name}: {question}", rows))
    return table_of("Answer", columns, groups, words=True)


def readings_frame(study: ResolvedStudy) -> pd.DataFrame:
    """COLUMNS, a row per reading and answer; OWN follows where it is in force somewhere."""
    from sage.study.readings import readings_of

    rows = []
    for one in readings_of(study):
        reading, by_answer = one.reading, dict[str | None, list[str]]()
        for name, answer in one.answers.items():
            by_answer.setdefault(answer, []).append(_title(study, name))
        for answer, choice in reading.choices.items():
            where = "; ".join(by_answer.get(answer, ()))
            own = (answer, choice.source, choice.meaning, answer == reading.default, where)
            rows.append((reading.name, reading.question, *own))
        if None in by_answer:
            own = (OWN, NONE, "", False, "; ".join(by_answer[None]))
            rows.append((reading.name, reading.question, *own))
    return pd.DataFrame(rows, columns=COLUMNS)


def _title(study: ResolvedStudy, name: str) -> str:
    """What a model or method is called where people read it; other names stand for themselves."""
    if name in study.study.models:
        return study.model(name).title
    return row_title(study, name) if name in study.algorithms else name


def effects_frame(effects: pd.DataFrame, display: Display) -> pd.DataFrame:
    """EFFECTS: `effects` with questions, and a row for each reading that has no effect here.

    Such a row has no `value`, and what is missing as its `quantity`.
    """
    from sage.study.readings import readings_of

    readings = readings_of(display.study)
    in_force = {one.reading.name: _answer_of(one, display) for one in readings}
    questions = {one.reading.name: one.reading.question for one in readings} | QUESTIONS
    rows: list[tuple[object, ...]] = []
    for name, question in questions.items():
        answers = effects[effects["reading"] == name].to_dict("records")
        for row in answers:
            answer, numbers = row["answer"], (row["quantity"], row["value"])
            rows.append((name, question, answer, answer == in_force.get(name), *numbers))
        if not answers:
            why = OPEN.get(name, NO_SFT)
            rows.append((name, question, "", False, f"not measured here: {why}", float("nan")))
    return pd.DataFrame(rows, columns=EFFECTS)


def _answer_of(one: InForce, display: Display) -> str | None:
    """The answer in force for a model, or for all of its methods; None if there is no such one."""
    model = display.exhibit.model
    if one.reading.section != "algorithms":
        return one.answers.get(model, one.answers.get("the study"))
    given = {one.answers[row] for row in display.study.trained(model) if row in one.answers}
    return given.pop() if len(given) == 1 else None


def _number(row: Record) -> str:
    value = float(row["value"])
    if math.isnan(value):
        return NONE
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.3g}"
