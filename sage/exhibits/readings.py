"""Where paper and release differ or are silent: every reading, and which answer is in force."""

from __future__ import annotations

from typing import ClassVar

import pandas as pd

from sage.exhibits.kind import Display, Shows
from sage.rendering.labels import row_title
from sage.rendering.numbers import NONE, listing
from sage.rendering.table import Cell, Columns, Record, Row, TableDocument, columns_table
from sage.study import ResolvedStudy

COLUMNS = ["reading", "question", "answer", "source", "meaning", "default", "in_force"]

OWN = "settings of its own"
"""In force where a model or method has settings that are those of no answer."""


class ReadingsTable(Shows):
    """Choices that the paper leaves open, or makes otherwise than its release."""

    contents: ClassVar[str] = (
        "Choices where the paper and its official release differ or are silent: each `answer` to "
        "a `question` with its `source`, whether it is the `default` of the paper's study, and the "
        "models or rows of this study for which it is `in_force`."
    )

    def table(self, display: Display) -> TableDocument:
        """A block of rows for each reading."""
        frame = readings_frame(display.study)
        caption = (
            "Choices where the paper and its official release differ or are silent. Default: the "
            "answer of the paper’s study; `readings` in a study switches one. In force for: the "
            "models or rows of this study whose settings are those of the answer."
        )
        exhibits = display.study.study.exhibits.items()
        if effects := [name for name, exhibit in exhibits if exhibit.kind == "reading_effects"]:
            caption += f" What the answers do, where it can be shown here: {listing(effects)}."
        columns: Columns = {
            "Source": lambda row: row["source"],
            "Meaning": lambda row: row["meaning"],
            "In force for": lambda row: listing(row["in_force"].split("; "), most=4) or NONE,
        }
        groups = (
            (f"{name}: {question}", rows)
            for (name, question), rows in frame.groupby(["reading", "question"], sort=False)
        )
        table = columns_table("Answer", columns, groups, _row, words=True)
        return TableDocument(frame, table, caption)


def _row(record: Record, cells: list[Cell]) -> Row:
    return Row(record["answer"] + (" (default)" if record["default"] else ""), tuple(cells))


def readings_frame(study: ResolvedStudy) -> pd.DataFrame:
    """COLUMNS, a row per reading and answer; OWN follows where it is in force somewhere."""
    from sage.study.readings import readings_of

    rows = []
    for one in readings_of(study):
        reading = one.reading
        by_answer: dict[str | None, list[str]] = {}
        for name, answer in one.answers.items():
            by_answer.setdefault(answer, []).append(_title(study, name))
        for answer, choice in reading.choices.items():
            where = "; ".join(by_answer.get(answer, []))
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
