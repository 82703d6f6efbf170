"""What the files of a page hold, as far as they are there: read here, shown elsewhere.

A file that is missing leaves its place empty; one that is there but cannot be read is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from sage.analysis.case_study import CaseStudy, read_case
from sage.problems.record import Problem, read_problems
from sage.reporting.accuracy import read_table
from sage.reporting.layout import PageFiles, Run
from sage.reporting.paper import COLUMNS as PAPER_COLUMNS
from sage.reporting.paper import paper_values
from sage.study import ResolvedStudy

Manifests = Mapping[Any, Mapping[str, Any]]


@dataclass(frozen=True)
class PageContent:
    """What `PageFiles` hold. Frames have the columns of their files, figures are SVG texts.

    `cases` maps exhibits to their case, or to None where no problem is solved by all rows;
    `excerpts` is the text of the sample browser's JSON, empty where there is none. `sources` are
    the page's templates, its style and its script by file name.
    """

    metrics: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    cases: Mapping[str, CaseStudy | None] = field(default_factory=dict)
    contamination: pd.DataFrame | None = None
    excerpts: str = ""
    problems: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    parents: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    policies: Mapping[Run, Mapping[str, Any]] = field(default_factory=dict)
    evaluations: Mapping[tuple[str, str, int, str], Mapping[str, Any]] = field(default_factory=dict)
    further: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=PAPER_COLUMNS))
    sources: Mapping[str, str] = field(default_factory=dict)


def read_content(study: ResolvedStudy, files: PageFiles) -> PageContent:
    """Read whatever of the files is there; the templates must be."""
    accuracy = {name for name, shown in study.study.exhibits.items() if shown.kind == "accuracy"}
    return PageContent(
        metrics={name: pd.read_parquet(path) for name, path in _there(files.metrics)},
        tables={
            name: read_table(path) if name in accuracy else read_frame(path)
            for name, path in _there(files.tables)
        },
        figures={name: path.read_text(encoding="utf-8") for name, path in _there(files.figures)},
        cases={name: read_case(path) for name, path in _there(files.cases)},
        contamination=(read_frame(files.contamination) if files.contamination.is_file() else None),
        excerpts=(files.excerpts.read_text(encoding="utf-8") if files.excerpts.is_file() else ""),
        problems={name: read_problems(path) for name, path in _there(files.problems)},
        parents=_manifests(files.parents),
        policies=_manifests(files.policies),
        evaluations=_manifests(files.evaluations),
        further=_manifests(files.further),
        paper=paper_values(files.paper, study),
        sources=read_sources(files.templates),
    )


def read_sources(folder: Path) -> dict[str, str]:
    """Templates, styles and scripts of the page by their paths inside the folder."""
    paths = [path for end in ("j2", "css", "js") for path in sorted(folder.rglob(f"*.{end}"))]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def read_frame(path: Path) -> pd.DataFrame:
    """A CSV file in which only an empty field is a missing value: a row may be titled NA."""
    words = dict.fromkeys(("algorithm", "title", "problem_id", "training", "benchmark"), str)
    return pd.read_csv(path, dtype=words, keep_default_na=False, na_values=[""])


def _there(files: Mapping[str, Path]) -> list[tuple[str, Path]]:
    return [(name, path) for name, path in files.items() if path.is_file()]


def _manifests(files: Mapping[Any, Path]) -> dict[Any, dict[str, Any]]:
    found = {}
    for name, path in files.items():
        if path.is_file():
            try:
                found[name] = json.loads(path.read_text(encoding="utf-8"))
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: not JSON ({error})") from error
    return found
