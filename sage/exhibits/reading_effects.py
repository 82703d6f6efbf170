"""What switching a reading does, where the study's own files show it without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name, about
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Group, Head, Row, Table, TableDocument
from sage.results import Results
from sage.study import BASE, ResolvedStudy

if TYPE_CHECKING:
    from sage.study.readings import InForce

COLUMNS = ["reading", "question", "answer", "in_force", "quantity", "value"]

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


class ReadingEffects(Kind):
    """What switching a reading does, measured without training on the study's own files."""

    kind: Literal["reading_effects"]
    benchmark: Annotated[
        Name, about("the problem set whose samples, of the policy before RL, are looked at")
    ]

    with_model: ClassVar[bool] = True
    of_policies: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("samples", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.switching",)
    contents: ClassVar[str] = (
        "What each answer to a reading does, as far as that can be measured without training: "
        "examples that SFT selects, tokens with loss, lengths of prompts, optimizer steps, the "
        "mean learning rate, completions that less room would cut off, and the KL term at the "
        "first step. `in_force` is the answer of this model."
    )

    needs_rl: ClassVar[bool] = True

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`: the policy before RL."""
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
        """Write `effects`."""
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
        """The effects, a block of rows for each reading."""
        frame = effects_frame(display.frame("effects"), display)
        caption = (
            f"{display.heading}: what each answer to a reading does, as far as the study’s own "
            "files show it without training. Completions are those of the policy before RL on "
            f"{display.titles[self.benchmark]}. In force: the answer of this model’s settings."
        )
        return TableDocument(frame, _view(frame), caption)


def effects_frame(effects: pd.DataFrame, display: Display) -> pd.DataFrame:
    """COLUMNS: `effects` with questions, and a row for each reading that has no effect here.

    Such a row has no `value`, and what is missing as its `quantity`.
    """
    from sage.study.readings import readings_of

    found_in_force = readings_of(display.study)
    in_force = {one.reading.name: _answer_of(one, display) for one in found_in_force}
    questions = {one.reading.name: one.reading.question for one in found_in_force} | QUESTIONS
    rows: list[tuple[object, ...]] = []
    for name, question in questions.items():
        answers = effects[effects["reading"] == name].to_dict("records")
        for row in answers:
            is_in_force = row["answer"] == in_force.get(name)
            rows.append((name, question, row["answer"], is_in_force, row["quantity"], row["value"]))
        if not answers:
            why = OPEN.get(name, NO_SFT)
            rows.append((name, question, "", False, f"not measured here: {why}", float("nan")))
    return pd.DataFrame(rows, columns=COLUMNS)


def _answer_of(one: InForce, display: Display) -> str | None:
    """The answer in force for a model, or for all of its methods; None if there is no such one."""
    model = display.exhibit.model
    if one.reading.section != "algorithms":
        return one.answers.get(model, one.answers.get("the study"))
    given = {one.answers[row] for row in display.study.trained(model) if row in one.answers}
    return given.pop() if len(given) == 1 else None


def _view(table: pd.DataFrame) -> Table:
    groups = []
    for (name, question), answers in table.groupby(["reading", "question"], sort=False):
        rows = tuple(
            Row(
                (row["answer"] or NONE) + (" (in force)" if row["in_force"] else ""),
                (Cell(row["quantity"]), Cell(_number(row["value"]))),
            )
            for row in answers.to_dict("records")
        )
        groups.append(Group(f"{name}: {question}", rows))
    return Table("Answer", (Head("", ("What", "Value")),), tuple(groups), words=True)


def _number(value: float) -> str:
    if pd.isna(value):
        return NONE
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"
