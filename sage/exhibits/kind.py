"""What a kind of exhibit offers: how it is measured, and the tables and figures made from that.

A kind is one class in one module. Its fields are its settings in a study; the methods here are what
the rules, the report, the partial report, the planner and the claims ask of it. Modules of kinds
import what is heavy (torch, matplotlib) inside the methods that need it, so that reading a study
stays light.
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
"""Input files of a measurement by name; a name may have several."""


@dataclass(frozen=True)
class Measuring:
    """One measurement: its input files, the settings that decide it, and where it goes.

    `shards` is a folder for samples that it draws anew; `manifest` is that of the job.
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
        """Write frames as Parquet under their names."""
        from sage.runtime.files import atomic_file

        for name, frame in frames.items():
            with atomic_file(self.folder / f"{name}.parquet") as temporary:
                frame.to_parquet(temporary, index=False)


@dataclass(frozen=True)
class Shown:
    """An exhibit about to be shown: its study, its name there, and what was measured for it.

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
        """A frame that was measured. Raises FileNotFoundError if there is none of that name."""
        import pandas as pd

        return pd.read_parquet(self.measured / f"{name}.parquet")


TableMaker = Callable[[Shown], "TableDocument"]
FigureMaker = Callable[[Shown], "Figure"]


class Shows:
    """Tables and figures by what is added to the exhibit's name in theirs, mostly nothing."""

    contents: ClassVar[str]
    """What its files hold, in a sentence or two: the caption in `snakemake --report`."""

    caption: ClassVar[str] = ""
    """What its figures show, under them on the page."""

    category: ClassVar[str] = ""
    """The heading in `snakemake --report`; by default Tables or Figures."""

    def tables(self) -> Mapping[str, TableMaker]:
        """Functions that make its tables."""
        return {}

    def figures(self) -> Mapping[str, FigureMaker]:
        """Functions that make its figures."""
        return {}


class Kind(Exhibit, Shows):
    """A kind of exhibit that a study can name. Subclasses override what they need."""

    measured_by: ClassVar[tuple[str, ...]] = ()
    """Modules that decide what is measured: a change in one of them measures again."""

    with_model: ClassVar[bool] = False
    """Whether measuring takes a model, and so what a model's `job` asks for."""

    of_policies: ClassVar[bool] = True
    """Whether it shows trained policies; else only what they are trained from."""

    evidence: ClassVar[str] = ""
    """The measured frame that claims are tested on, if any."""

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """The files that it is measured from; by default samples of its rows and benchmarks."""
        return {"samples": self.samples_files(study, results)}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """Settings of the study that decide what is measured, as plain data."""
        return {}

    def modules(self, study: ResolvedStudy) -> Sequence[str]:
        """`measured_by`, and modules that settings of the study bring in by name."""
        return self.measured_by

    @abstractmethod
    def measure(self, job: Measuring) -> None:
        """Write what is measured into the job's folder. Raises ValueError for lacking input."""

    def as_in_paper(self, shown: Shown) -> pd.DataFrame | None:
        """Its values as the paper names them, if the paper has a table of the kind.

        Columns `benchmark` (empty where there is none), `algorithm`, `quantity`, `value`, and
        `measured_std` over `measured_seeds` where known.
        """
        return None

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """What its numbers rest on besides problems, samples and runs: (term, text)."""
        return []

    def problem_sets(self, study: ResolvedStudy) -> list[str]:
        """Problem sets whose samples it shows, drawn by the evaluation or for it alone."""
        return self.benchmarks_of(study)

    def samples_shown(self, study: ResolvedStudy) -> int:
        """How many samples of a problem it shows with each evaluation seed, at most."""
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
