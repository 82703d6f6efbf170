"""The page of a kept run by today's code, from what is kept of it; nothing is trained or sampled.

What is kept is put back into a folder of results: metrics from counts, and what exhibits measured
from counts, histories and tables. The report's own code draws it. Tables and figures that need more
are shown as they were kept, and the page says in one line what is not kept.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from sage.claims.ledger import typed
from sage.claims.registration import Registration
from sage.evaluation.metrics import RATED
from sage.exhibits import (
    CONTAMINATION,
    OF_PAPER,
    figures_of,
    in_every_report,
    kept_study,
    kind_of,
    load_study,
    tables_of,
)
from sage.exhibits.equal_accuracy import EqualAccuracyTable
from sage.exhibits.training import TrainingFigure
from sage.rendering.documents import write_document
from sage.rendering.labels import listed
from sage.rendering.table import TableDocument, table_of
from sage.report.loader import PageFiles, read_content
from sage.report.make import show
from sage.report.page import render_page
from sage.results import Results
from sage.runtime.files import ROOT, write_json_atomic, write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE, ResolvedStudy, StudyError
from sage.study.written import moved

CONFIG, REPORTS = ROOT / "config", ROOT / "reports"

THEORY = {*OF_PAPER} - {"readings"}
"""Left out of a kept page: they are the same in all studies."""

_EXCERPTS = re.compile(r'<script type="application/json" id="excerpts">(.*?)</script>', re.DOTALL)


def page(
    folder: Path, tables: Mapping[str, pd.DataFrame], asked: Registration, made: Results
) -> str:
    """The page of a kept run as HTML text.

    `tables` are those computed from its counts, `asked` is its registration. Tables and figures
    are drawn in `made`, an empty folder.
    """
    study = _titled(kept_study(folder))
    every = [name for name in in_every_report(study) if name not in THEORY]
    names, here = [*study.study.exhibits, *every], PageFiles(made, made, REPORTS)
    show_kept(folder, study, tables, made, names)
    _put_back_jobs(folder, study, here)
    _write(made.metrics("claims"), typed(pd.read_csv(folder / "claims.csv")))
    write_json_atomic(made.registered, list(asked.entries))
    lacking, shown = [], {*THEORY, "pass_at_k", "claims"}
    for name in names:
        tables_here = tables_of(study, name, here.paper)
        shown |= {*tables_here}
        files = [*map(made.table, tables_here), *map(made.figure, figures_of(study, name))]
        for file in (file for file in files if (folder / file.name).is_file()):
            if not file.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / file.name, file)
                if file.suffix == ".csv":
                    write_document(_document(folder / file.name), file)
        gone = [file.name for file in files if not file.is_file()]
        if name in study.study.exhibits:
            title = study.study.exhibits[name].title
            lacking += gone if len(gone) < len(files) else [f"“{title}”"]
    before = folder / "index.html"
    if before.is_file() and (found := _EXCERPTS.search(before.read_text(encoding="utf-8"))):
        write_text_atomic(made.excerpts, found[1])
    else:
        lacking.append("samples")
    others = [file for file in sorted(folder.glob("*.csv")) if file.stem not in shown]
    content = replace(
        read_content(study, here),
        further={file.stem: _document(file) for file in others},
        kept=f"Drawn from what is kept of the run. Not kept: {listed(lacking) or 'nothing'}.",
    )
    named = Results(Path("results", study.name))
    return render_page(study, content, PageFiles(named, named, REPORTS), named.page)


def _titled(study: ResolvedStudy) -> ResolvedStudy:
    """A kept study with what only its page shows, which `study.json` leaves out, from its
    configuration of today, if there is one."""
    shown: dict[str, Any] = {}
    titles = {name: name for name in study.study.exhibits}
    with suppress(StudyError, FileNotFoundError):
        today = load_study(moved(study.name, CONFIG / "studies") or study.name, CONFIG).study
        shown = {key: getattr(today, key) for key in ("title", "notice", "paper")}
        titles |= {name: exhibit.title for name, exhibit in today.exhibits.items()}
    shown["exhibits"] = {
        name: exhibit.model_copy(update={"title": titles[name]})
        for name, exhibit in study.study.exhibits.items()
    }
    return study.model_copy(update={"study": study.study.model_copy(update=shown)})


def show_kept(
    folder: Path,
    study: ResolvedStudy,
    tables: Mapping[str, pd.DataFrame],
    made: Results,
    names: Sequence[str],
) -> None:
    """Put back what is kept of a run's measurements into `made`, and draw there the tables and
    figures of the exhibits `names` that it is enough for."""
    tables = {name: table for name, table in tables.items() if name != "claims"}
    if (grading := folder / "grading.csv").is_file():
        rates = pd.read_csv(grading).assign(train_seed=0)
        keys = ["model", "algorithm", "train_seed", "benchmark", "n_samples"]
        statuses = [status for status in RATED if status in rates]
        tables["rates"] = rates.melt(keys, statuses, var_name="status", value_name="share")
    for name, table in tables.items():
        _write(made.metrics(name), table)
        for (model, benchmark), own in table.groupby(["model", "benchmark"], sort=False):
            _write(made.evaluated(str(model), str(benchmark)) / f"{name}.parquet", own)
    if (file := folder / f"{CONTAMINATION}.csv").is_file():
        _write(made.measured(CONTAMINATION) / f"{CONTAMINATION}.parquet", pd.read_csv(file))
    for name in study.study.exhibits:
        for frame, table in _measured(folder, study, name, tables["counts"]).items():
            _write(made.measured(name) / f"{frame}.parquet", table)
    for name in names:
        show(study, name, PageFiles(made, made, REPORTS), _if_kept)


def _measured(
    folder: Path, study: ResolvedStudy, name: str, counts: pd.DataFrame
) -> Mapping[str, pd.DataFrame]:
    """The frames that an exhibit measured, if they are kept or follow from counts."""
    kind, histories = kind_of(study, name), folder / "histories.csv.gz"
    if isinstance(kind, TrainingFigure) and histories.is_file():
        return {"histories": pd.read_csv(histories)}
    file = folder / f"{name}_counts.parquet"
    if not isinstance(kind, EqualAccuracyTable) or (kind.with_model and not file.is_file()):
        return {}
    own = counts[(counts["model"] == kind.model) & (counts["benchmark"] == kind.benchmark)]
    drawn = read_frame(file) if file.is_file() else None
    return kind.of_counts(kind.settings(study, name), own, drawn)


def _if_kept(name: str, make: Callable[[], None]) -> None:
    """Make a table or a figure, if the frames that it shows are kept."""
    with suppress(FileNotFoundError):
        make()


def _put_back_jobs(folder: Path, study: ResolvedStudy, files: PageFiles) -> None:
    """The manifests of jobs, to where the page reads them. A run's own folder names it; stages
    before RL are in the order of models, and left out where that does not name them."""
    with gzip.open(folder / "manifests.jsonl.gz", "rt", encoding="utf-8") as lines:
        jobs = [json.loads(line) for line in lines]
    before = {}
    for stage, key in (("pretrained", "pretrained"), ("sft", BASE)):
        paths = [path for one, path in sorted(files.parents(study).items()) if one[1] == key]
        right = len(paths) == sum(job["stage"] == stage for job in jobs)
        before[stage] = iter(paths if right else ())
    for job in jobs:
        own, stage = job.pop("settings"), job["stage"]  # older versions name settings otherwise
        path = files.made.measured(stage) / "manifest.json"
        if stage in before:
            path = next(before[stage], path)
        elif stage == "rl":
            path = files.made.folder / f"models{own['scratch'].partition('/scratch')[2]}"
            path /= "manifest.json"
        elif stage == "sample":
            path = files.made.folder / f"samples{own['shards'].partition('/shards')[2]}.json"
        write_json_atomic(path, job)


def _document(file: Path) -> TableDocument:
    """A kept table as it is, with a column for each of the file."""
    frame = pd.read_csv(file)
    first, *heads = frame.columns
    columns = [("", head, lambda row, head=head: _text(row[head])) for head in heads]
    rows = [(str(row[first]), row) for row in frame.to_dict("records")]
    table = table_of(str(first), columns, [("", rows)], words=True)
    return TableDocument(
        frame, table, f"The kept table {file.name}.", f"{file.name}, as it is kept"
    )


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) and not pd.isna(value) else f"{value}"


def _write(path: Path, table: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False)
