"""The interface of a kind of exhibit: how it is measured, and which tables and figures it makes.

A kind is one class in one module. Its fields are its settings in a study. The rules, the report,
the partial report, the planner and the claims call its methods. Heavy modules (torch, matplotlib)
are imported inside the methods that need them, so reading a study stays fast.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sage.results import Results, Run
from sage.study import ResolvedStudy
from sage.study.exhibit import Exhibit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from sage.rendering.table import TableDocument
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

    def write(self, **frames: pd.DataFrame) -> None:
        """Write each frame as a Parquet file of that name."""
        from sage.runtime.files import atomic_file

        for name, frame in frames.items():
            with atomic_file(self.folder / f"{name}.parquet") as temporary:
                frame.to_parquet(temporary, index=False)


@dataclass(frozen=True)
class Shown:
    """An exhibit to be shown: its study, its name there, and its measured frames.

    `paper` is the folder of the paper's own tables.
    """

    study: ResolvedStudy
    name: str
    measured: Path
    paper: Path

    @cached_property
    def rows(self) -> list[str]:
        """Its rows in order."""
        return self.study.rows_of(self.name)

    def frame(self, name: str) -> pd.DataFrame:
        """A measured frame. Raises FileNotFoundError if there is none of that name."""
        from sage.runtime.tables import read_frame

        return read_frame(self.measured / f"{name}.parquet")


TableMaker = Callable[[Shown], "TableDocument"]
FigureMaker = Callable[[Shown], "Figure"]


class Shows:
    """Makes tables and figures. Each has a suffix to the exhibit's name, usually empty."""

    contents: ClassVar[str]
    """What its files contain, in one or two sentences: the caption in `snakemake --report`."""

    caption: ClassVar[str] = ""
    """The caption of its figures on the page."""

    category: ClassVar[str] = ""
    """The heading in `snakemake --report`; by default Tables or Figures."""

    def tables(self) -> Mapping[str, TableMaker]:
        """Functions that make its tables, by suffix."""
        return {}

    def figures(self) -> Mapping[str, FigureMaker]:
        """Functions that make its figures, by suffix."""
        return {}


class Kind(Exhibit, Shows):
    """A kind of exhibit that a study can name. Subclasses override what they need."""

    measured_by: ClassVar[tuple[str, ...]] = ()
    """Modules that decide what is measured. If one of them changes, it is measured again."""

    with_model: ClassVar[bool] = False
    """Whether measuring needs a model, and so the resources in that model's `job`."""

    of_policies: ClassVar[bool] = True
    """Whether it shows trained policies; else only what they are trained from."""

    leads: ClassVar[bool] = False
    """Whether the first exhibit of this kind opens the report."""

    evidence: ClassVar[str] = ""
    """The measured frame that claims are tested on, if any."""

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Its input files; by default the samples of its rows on its benchmarks."""
        return {"samples": self.samples_files(study, results)}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """Settings of the study that decide what is measured, as plain data."""
        return {}

    def modules(self, study: ResolvedStudy) -> Sequence[str]:
        """`measured_by`, and modules that the study's settings import by name."""
        return self.measured_by

    @abstractmethod
    def measure(self, job: Measuring) -> None:
        """Measure, and write into the job's folder. Raises ValueError if input is missing."""

    def as_in_paper(self, shown: Shown) -> pd.DataFrame | None:
        """Its values under the paper's names, if the paper has a table of this kind.

        Columns `benchmark` (empty if there is none), `algorithm`, `quantity`, `value`, and
        `measured_std` over `measured_seeds` if known.
        """
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

    def samples_files(self, study: ResolvedStudy, results: Results) -> list[Path]:
        """Files of the samples of its rows on its benchmarks."""
        return [
            results.samples(run, benchmark)
            for benchmark in self.benchmarks_of(study)
            for row in self.rows_of(study)
            for run in study.runs_of(self.model, row)
        ]

    def runs(self, study: ResolvedStudy) -> list[Run]:
        """The trained policies of its rows."""
        from sage.study import BASE

        rows = [row for row in self.rows_of(study) if row != BASE]
        return [run for row in rows for run in study.runs_of(self.model, row)]
