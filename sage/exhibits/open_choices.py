"""Choices that the paper leaves open, and which answer to each is in force."""

from __future__ import annotations

import pandas as pd

from sage.exhibits.kind import Display, Shows
from sage.rendering.labels import method_title
from sage.rendering.numbers import NONE, listing
from sage.rendering.table import Column, TableDocument, table_of
from sage.study import ResolvedStudy

COLUMNS = ["reading", "question", "answer", "source", "meaning", "default", "in_force"]

OWN = "settings of its own"
"""In force where a model or method has settings that are those of no answer."""


class OpenChoicesTable(Shows):
    """Choices where the paper and its official release differ or are silent: each `answer` to a
    `question` with its `source`, whether it is the `default` of the paper's study, and the models
    or rows of this study for which it is `in_force`."""

    def table(self, display: Display) -> TableDocument:
        frame = open_choices_frame(display.study)
        caption = (
            "Choices where the paper and its official release differ or are silent. Default: the "
            "answer of the paper’s study; `open_choices` in a study switches one. In force for: "
            "the models or rows of this study whose settings are those of the answer."
        )
        columns: list[Column] = [
            ("", "Source", lambda row: row["source"]),
            ("", "Meaning", lambda row: row["meaning"]),
            ("", "In force for", lambda row: listing(row["in_force"].split("; "), most=4) or NONE),
        ]
        groups = []
        for (name, question), answers in frame.groupby(["reading", "question"], sort=False):
            rows = [
                (row["answer"] + " (default)" * row["default"], row)
                for row in answers.to_dict("records")
            ]
            groups.append((f"{name}: {question}", rows))
        table = table_of("Answer", columns, groups, words=True)
        return TableDocument(frame, table, caption)


def open_choices_frame(study: ResolvedStudy) -> pd.DataFrame:
    """COLUMNS, a row per choice and answer; OWN follows where it is in force somewhere."""
    from sage.study.open_choices import answers_in

    rows = []
    for one in answers_in(study):
        choice, by_answer = one.choice, dict[str | None, list[str]]()
        for place, given in one.answers.items():
            by_answer.setdefault(given, []).append(_title(study, place))
        for name, known in choice.answers.items():
            where = "; ".join(by_answer.get(name, ()))
            own = (name, known.source, known.meaning, name == choice.default, where)
            rows.append((choice.name, choice.question, *own))
        if None in by_answer:
            own = (OWN, NONE, "", False, "; ".join(by_answer[None]))
            rows.append((choice.name, choice.question, *own))
    return pd.DataFrame(rows, columns=COLUMNS)


def _title(study: ResolvedStudy, name: str) -> str:
    """What a model or method is called where people read it; other names stand for themselves."""
    if name in study.study.models:
        return study.model(name).title
    return method_title(study, name) if name in study.algorithms else name
