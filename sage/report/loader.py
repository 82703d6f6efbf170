"""Reads the files that a page shows, if they exist.

A missing file leaves its place empty. A file that exists but cannot be read is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml

from sage.claims.registration import Entry, read_entries
from sage.exhibits import EVERY_REPORT, figures_of, kind_of, tables_of
from sage.exhibits.case_study import CASE, CaseStudy, read_case
from sage.exhibits.theory import ESTIMATORS
from sage.problems.record import Problem, read_problems
from sage.rendering.documents import read_document
from sage.rendering.table import PageTable, TableDocument
from sage.results import Results, Run
from sage.runtime.faults import Damaged
from sage.runtime.tables import read_frame
from sage.study import BASE, ResolvedStudy

METRICS = ("pass_at_k", "counts", "comparisons", "rates", "chance", "claims")
"""Metrics of the whole study that the page reads."""

Manifest = Mapping[str, Any]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class PageFiles:
    """The folders of a page's files.

    `results` has the runs and what needs a model to measure. `made` has metrics, tables and
    figures; a partial report makes them in its own folder. `reports` is the folder of templates
    and of the paper's tables.
    """

    results: Results
    made: Results
    reports: Path

    @property
    def paper(self) -> Path:
        """The folder of the paper's tables."""
        return self.reports / "paper"

    def measured(self, study: ResolvedStudy, exhibit: str) -> Path:
        """The folder of what was measured for an exhibit."""
        place = self.results if kind_of(study, exhibit).with_model else self.made
        return place.measured(exhibit)

    def parents(self, study: ResolvedStudy) -> dict[tuple[str, str], Path]:
        """Manifests of the stages before RL, by (model, stage)."""
        folders = {}
        for name, model in study.study.models.items():
            if model.base.source != "model":
                folders[name, "pretrained"] = self.results.pretrained(name)
            folders[name, BASE] = self.results.rl_start(name)
        return _manifests(folders)

    def policies(self, study: ResolvedStudy) -> dict[Run, Path]:
        """Manifests of trained policies."""
        runs = [run for model in study.study.models for run in study.trained_runs(model)]
        return _manifests({run: self.results.policy(run) for run in runs})

    def evaluations(self, study: ResolvedStudy) -> dict[tuple[Run, str], Path]:
        """Manifests of samples, by policy and benchmark."""
        pairs = [pair for model in study.study.models for pair in study.evaluated_runs(model)]
        return {pair: self.results.sample_manifest(*pair) for pair in pairs}

    def measurements(self, study: ResolvedStudy) -> dict[str, Path]:
        """Manifests of exhibits measured with a model, by exhibit."""
        names = [name for name in study.study.exhibits if kind_of(study, name).with_model]
        return _manifests({name: self.results.measured(name) for name in names})


@dataclass(frozen=True)
class PageContent:
    """The content of a page's files. Frames have the columns of their files; figures are SVG text.

    `guide_effects` has the numbers of the exhibit `estimators`, `told` those of tables that the
    start of the page speaks of (`Kind.tells`). `cases` maps exhibits to their
    case, or to None if no problem is solved by all methods. `excerpts` is the text of the sample
    browser's JSON, empty if there is none. `registered` are the entries of the registration
    (`sage.claims.registration`), `repository` the address in CITATION.cff, if there is one.
    `sources` are the page's templates, style and script by file name. Of a kept run, `kept` says
    what its page cannot show, and `further` has the kept tables that belong to no exhibit.
    """

    metrics: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    tables: Mapping[str, PageTable] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    cases: Mapping[str, CaseStudy | None] = field(default_factory=dict)
    excerpts: str = ""
    problems: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    parents: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    policies: Mapping[Run, Manifest] = field(default_factory=dict)
    evaluations: Mapping[tuple[Run, str], Manifest] = field(default_factory=dict)
    measurements: Mapping[str, Manifest] = field(default_factory=dict)
    guide_effects: pd.DataFrame | None = None
    told: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    registered: Sequence[Entry] = ()
    repository: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    kept: str = ""
    further: Mapping[str, TableDocument] = field(default_factory=dict)

    @property
    def manifests(self) -> list[Manifest]:
        """Those of all jobs."""
        kinds = (self.parents, self.policies, self.evaluations, self.measurements)
        return [manifest for of_kind in kinds for manifest in of_kind.values()]


def read_content(study: ResolvedStudy, files: PageFiles) -> PageContent:
    """Read all files that exist; the templates must exist."""
    made, own = files.made, [*study.study.exhibits]
    tables = [
        table for name in [*own, *EVERY_REPORT] for table in tables_of(study, name, files.paper)
    ]
    figures = [figure for name in [*own, *EVERY_REPORT] for figure in figures_of(study, name)]
    told = [f"{name}{suffix}" for name in own for suffix in kind_of(study, name).tells]
    return PageContent(
        metrics=_read({name: made.metrics(name) for name in METRICS}, read_frame),
        tables=_read({name: made.table(name, "json") for name in tables}, read_document),
        figures=_read({name: made.figure(name) for name in figures}, _read_text),
        cases=_read({name: files.measured(study, name) / CASE for name in own}, read_case),
        excerpts=_read({0: made.excerpts}, _read_text).get(0, ""),
        problems=_read(
            {name: files.results.problems(name) for name in study.problem_sets()}, read_problems
        ),
        parents=_read(files.parents(study), _read_manifest),
        policies=_read(files.policies(study), _read_manifest),
        evaluations=_read(files.evaluations(study), _read_manifest),
        measurements=_read(files.measurements(study), _read_manifest),
        registered=_read({0: files.results.registered}, read_entries).get(0, ()),
        guide_effects=_read({ESTIMATORS: made.table(ESTIMATORS)}, pd.read_csv).get(ESTIMATORS),
        told=_read({name: made.table(name) for name in told}, pd.read_csv),
        repository=_repository(files.reports.parent / "CITATION.cff"),
        sources=read_sources(files.reports),
    )


def _manifests(folders: Mapping[Key, Path]) -> dict[Key, Path]:
    return {key: folder / "manifest.json" for key, folder in folders.items()}


def read_sources(folder: Path) -> dict[str, str]:
    """Templates, styles and scripts of the page by their paths inside the folder."""
    paths = [path for end in ("j2", "css", "js") for path in sorted(folder.rglob(f"*.{end}"))]
    return {path.relative_to(folder).as_posix(): _read_text(path) for path in paths}


def _read(paths: Mapping[Key, Path], read: Callable[[Path], Value]) -> dict[Key, Value]:
    """What the files contain that exist."""
    return {name: read(path) for name, path in paths.items() if path.is_file()}


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _repository(citation: Path) -> str:
    """The address of the project's code in a citation file, empty if it has none."""
    content = yaml.safe_load(_read_text(citation)) if citation.is_file() else {}
    return str(content.get("repository-code") or "")


def _read_manifest(path: Path) -> Manifest:
    try:
        manifest: Manifest = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise Damaged(path, f"not JSON ({error})") from error
    return manifest
