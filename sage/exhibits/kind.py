"""The interface of a kind of exhibit: how it is measured, and which tables and figures it makes.

A kind is one class in one module. Its fields are its settings in a study. The rules, the report,
the partial report, the planner and the claims call its methods. Heavy modules (torch, matplotlib)
are imported inside the methods that need them, so reading a study stays fast.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sage.rendering.forest import Line
from sage.rendering.labels import benchmark_titles, exhibit_heading, listed, method_title
from sage.rendering.table import Column, PageTable, TableDocument, table_of, titled, titled_by
from sage.results import Results, Run
from sage.runtime.dependencies import WITHOUT_EFFECT, module_files
from sage.study import BASE, Draws, Evaluation, ResolvedStudy
from sage.study.exhibit import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from sage.evaluation.snapshots import SnapshotSampler
    from sage.runtime.manifest import Manifest

Files = Mapping[str, Sequence[Path]]
"""Input files of a measurement by name. A name may have several files."""


@dataclass(frozen=True)
class Measuring:
    """One measurement: its input files, its settings, and its output folder.

    `shards` is a folder for samples drawn for this exhibit only; `manifest` is the manifest of the
    job.
    """

    files: Files
    settings: Mapping[str, Any]
    folder: Path
    device: str
    shards: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """The only file called `name`."""
        (path,) = self.files[name]
        return path

    def counts(self, algorithms: Collection[str]) -> pd.DataFrame:
        """Counts (`sage.evaluation.counts`) of some methods on the one benchmark `evaluated`."""
        from sage.runtime.tables import read_frame

        counts = read_frame(self.file("evaluated") / "counts.parquet")
        return counts[counts["algorithm"].isin(algorithms)]

    def counts_of_samples(self) -> pd.DataFrame:
        """Counts of all `samples`, on the one set of `problems`: they wait for no other method."""
        from sage.evaluation.counts import counts_table
        from sage.evaluation.curves import run_of
        from sage.problems.record import read_problems
        from sage.runtime.tables import read_frame

        samples = {run_of(path): read_frame(path) for path in self.files["samples"]}
        return counts_table(samples, read_problems(self.file("problems")))

    def snapshot_sampler(self, model: str, benchmark: str) -> SnapshotSampler:
        """Samples snapshots of the model's runs; needs the inputs `base` and `problems`, and the
        setting `evaluation`."""
        from sage.evaluation.snapshots import SnapshotSampler
        from sage.problems.record import read_problems

        return SnapshotSampler(
            base=self.file("base"),
            problems=read_problems(self.file("problems")),
            settings=Draws.model_validate(self.settings["evaluation"]),
            device=self.device,
            model=model,
            benchmark=benchmark,
            shards=self.shards,
            manifest=self.manifest,
        )

    def write(self, **frames: pd.DataFrame) -> None:
        """Write each frame as a Parquet file of that name."""
        from sage.runtime.files import atomic_file

        for name, frame in frames.items():
            with atomic_file(self.folder / f"{name}.parquet") as temporary:
                frame.to_parquet(temporary, index=False)

    def write_manifest(self, tokens: int | None = None) -> None:
        """Write the manifest of a measurement with a model, which read or drew `tokens`."""
        self.manifest.write(self.folder / "manifest.json", tokens)


@dataclass(frozen=True)
class Display:
    """An exhibit to be shown: its study, its name there, and the folders of its frames.

    `paper` is the folder of the paper's own tables.
    """

    study: ResolvedStudy
    name: str
    measured: Sequence[Path]
    paper: Path

    @cached_property
    def exhibit(self) -> Exhibit:
        """Its settings."""
        return self.study.study.exhibits[self.name]

    @cached_property
    def rows(self) -> list[str]:
        """Its methods in order, the base among them."""
        return self.exhibit.methods_of(self.study)

    @property
    def baseline(self) -> str:
        """What its methods are compared with: the first of several, else the base."""
        trained = [row for row in self.rows if row != BASE]
        return trained[0] if len(trained) > 1 or BASE not in self.rows else BASE

    @cached_property
    def benchmarks(self) -> list[str]:
        """Its benchmarks in order."""
        return self.exhibit.benchmarks_of(self.study)

    @property
    def evaluation(self) -> Evaluation:
        """How its model is evaluated."""
        return self.study.evaluation(self.exhibit.model)

    @property
    def heading(self) -> str:
        """The start of its captions: its title and its model's."""
        return exhibit_heading(self.study, self.name)

    @property
    def titles(self) -> dict[str, str]:
        """Titles of problem sets by name."""
        return benchmark_titles(self.study)

    def title(self, row: str) -> str:
        """The title of a method."""
        return method_title(self.study, row)

    def frame(self, name: str) -> pd.DataFrame:
        """A measured frame, joined from the folders that have it.

        Raises FileNotFoundError if none has.
        """
        from sage.runtime.tables import read_frames

        paths = [folder / f"{name}.parquet" for folder in self.measured]
        return read_frames([path for path in paths if path.exists()] or paths[:1])

    def by_method(self, blocks: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """The columns of frames indexed by method, after `algorithm` and `title`: a row for each of
        its methods, NaN where a frame has none."""
        import pandas as pd

        frame = pd.concat([block.reindex(self.rows) for block in blocks], axis=1)
        frame.insert(0, "title", [self.title(row) for row in self.rows])
        return frame.rename_axis("algorithm").reset_index()

    def rows_in(self, frame: pd.DataFrame) -> list[str]:
        """Its methods that `frame` has, by column `algorithm`."""
        there = set(frame["algorithm"])
        return [row for row in self.rows if row in there]

    def document(
        self, frame: pd.DataFrame, columns: Sequence[Column], caption: str, by: str = ""
    ) -> TableDocument:
        """A table with a row for each method, of its row in `frame` or of those `by` a key."""
        rows = titled_by(frame, by) if by else titled(frame)
        table = table_of("Method", columns, [("", rows)], self.study)
        return TableDocument(frame, table, caption)

    def ordered(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The exhibit's rows of a frame, in its order, with `title` after `algorithm`.

        Raises ValueError if there is none.
        """
        rows = frame[frame["algorithm"].isin(self.rows)].drop(columns="title", errors="ignore")
        if rows.empty:
            there = listed(sorted(map(str, set(frame["algorithm"]))) or ["nothing"])
            asked = ", ".join(self.rows)
            raise ValueError(f"{self.name}: rows {asked} are asked for, but there is {there}")
        place = {name: place for place, name in enumerate(self.rows)}
        rows = rows.sort_values(
            "algorithm", key=lambda names: names.map(place), kind="stable", ignore_index=True
        )
        titles = rows["algorithm"].map(self.title)
        rows.insert([*rows.columns].index("algorithm") + 1, "title", titles)
        return rows


@dataclass(frozen=True)
class Findings:
    """What an exhibit found, for the start of the page: sentences, and lines of one figure."""

    sentences: Sequence[str] = ()
    lines: Sequence[Line] = ()
    caption: str = ""


class Shows:
    """Makes tables and figures.

    Most kinds define `table(display) -> TableDocument`, `figure(display) -> Figure` or both. One
    with several tables or figures overrides `tables` or `figures` instead.
    """

    caption: ClassVar[str] = ""
    """The caption of its figures on the page, where `contents` says more than they show."""

    category: ClassVar[str] = ""
    """The heading in `snakemake --report`; by default Tables or Figures."""

    with_model: ClassVar[bool] = False
    """Whether measuring needs a model, and so the resources in that model's `job`."""

    @property
    def contents(self) -> str:
        """What its files contain, in a few sentences, which its docstring ends with: the caption of
        its figures on the page, and its label in `snakemake --report` where it has no title."""
        return " ".join((inspect.getdoc(type(self)) or "").split("\n\n")[-1].split())

    @property
    def measures(self) -> bool:
        """Whether it has a measurement of its own."""
        return False

    def evaluated(self, study: ResolvedStudy) -> Sequence[tuple[str, str]]:
        """Models and benchmarks whose metrics it shows (`sage.evaluation.metrics`), which are
        measured once for all exhibits."""
        return []

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        """What makes its tables, by the suffix of each to the exhibit's name."""
        own = getattr(self, "table", None)
        return {"": own} if own else {}

    def figures(self) -> Mapping[str, Callable[[Display], Figure]]:
        """What makes its figures, by the suffix of each to the exhibit's name."""
        own = getattr(self, "figure", None)
        return {"": own} if own else {}

    def left_out(self, study: ResolvedStudy) -> Collection[str]:
        """The suffixes of its tables and figures that would say nothing in this study."""
        return ()


class Kind(Exhibit, Shows):
    """A kind of exhibit that a study can name. Subclasses override what they need.

    Each defines `measure` or `evaluated`.
    """

    needs: ClassVar[tuple[str, ...]] = ("samples",)
    """What it is measured from: `samples` of its methods on its benchmarks, the trained `policies`
    of its methods, the `base` before RL, `problems` of its problem sets, and what was `evaluated`
    there (`Measuring.counts`)."""

    measured_by: ClassVar[tuple[str, ...]] = ()
    """Modules that decide what is measured, if it is not the kind's own. If one of them, or what
    it imports, changes, it is measured again; how it is shown does not count."""

    draws: ClassVar[bool] = False
    """Whether measuring draws samples with the engine of the evaluation."""

    of_policies: ClassVar[bool] = True
    """Whether it shows trained policies; else only what they are trained from."""

    leads: ClassVar[bool] = False
    """Whether the first exhibit of this kind opens the report."""

    evidence: ClassVar[str] = ""
    """The measured frame that claims are tested on, if any."""

    tells: ClassVar[tuple[str, ...]] = ()
    """The tables, by suffix, whose numbers `findings` puts in words at the start of the page."""

    @property
    def measures(self) -> bool:
        """Whether it has a measurement of its own."""
        return type(self).measure is not Kind.measure

    def measure(self, job: Measuring) -> None:
        """Measure, and write into the job's folder; a kind without one shows what it names in
        `evaluated`. Raises ValueError if input is missing."""
        raise NotImplementedError(type(self).__name__)

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Its input files by name; by default those of `needs`."""
        benchmarks = self.benchmarks_of(study)
        files = {
            "samples": [
                results.samples(run, benchmark)
                for benchmark in benchmarks
                for row in self.methods_of(study)
                for run in study.runs_of(self.model, row)
            ],
            "policies": [results.policy(run) for run in self.runs(study)],
            "evaluated": [results.evaluated(self.model, benchmark) for benchmark in benchmarks],
            "base": [results.rl_start(self.model)],
            "problems": [results.problems(benchmark) for benchmark in self.problem_sets(study)],
        }
        return {key: files[key] for key in self.needs}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """Settings of the study that decide what is measured, as plain data."""
        return {}

    def code(self, study: ResolvedStudy) -> set[str]:
        """Source files of this package that decide what is measured."""
        own = type(self).__module__
        modules = self.measured_by or ((own,) if own.startswith("sage.") else ())
        if self.draws:
            modules += (f"sage.sampling.{study.evaluation(self.model).engine}_engine",)
        without = (*WITHOUT_EFFECT, "sage.rendering", "sage.exhibits")
        return {file for module in modules for file in module_files(module, without)}

    def as_in_paper(self, display: Display) -> pd.DataFrame | None:
        """Its values under the paper's names, if the paper has a table of this kind.

        Columns `benchmark` (empty if there is none), `algorithm`, `quantity`, `value`, and
        `measured_std` over `measured_seeds` of `measured_runs` if known.
        """
        return None

    def findings(self, study: ResolvedStudy, *frames: pd.DataFrame) -> Findings:
        """What the page says first of the frames of the tables `tells`."""
        return Findings()

    def recomputed(
        self, study: ResolvedStudy, name: str, counts: pd.DataFrame, kept: pd.DataFrame
    ) -> Mapping[str, pd.DataFrame]:
        """Its tables by suffix, computed again from the counts of a kept run and its `kept` table,
        if its measurement is a function of these."""
        return {}

    def at_each_k(self, display: Display, metrics: pd.DataFrame) -> PageTable | None:
        """pass@k of its methods from the study's pooled metrics, a column for each k, if its
        figures are curves over k: the page shows the column that a slider chooses."""
        return None

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """Facts about its numbers besides problems, samples and runs: (term, text)."""
        return []

    def problem_sets(self, study: ResolvedStudy) -> list[str]:
        """Problem sets whose samples it shows, whether the evaluation or the exhibit draws them."""
        return self.benchmarks_of(study)

    def samples_shown(self, study: ResolvedStudy) -> int:
        """The most samples of a problem that it shows for each evaluation seed."""
        return study.evaluation(self.model).samples

    def runs(self, study: ResolvedStudy) -> list[Run]:
        """The trained policies of its methods."""
        rows = [row for row in self.methods_of(study) if row != BASE]
        return [run for row in rows for run in study.runs_of(self.model, row)]
