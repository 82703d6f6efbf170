"""Every path inside ``results/{study}``, defined only here.

Nothing is read or made. The parts of a path may be names, or wildcards of Snakemake such as
``{model}``, so rules, the planner and the report use the same paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A policy: its model, its method and the training seed (0 for the policy before RL)."""

    model: str
    algorithm: str
    seed: int | str


def run_at(folder: Path) -> tuple[str, str, int]:
    """Model, algorithm and training seed of a folder …/{model}/{algorithm}/seed{seed}.

    Raises ValueError for another kind of path.
    """
    model, algorithm, seed = folder.parts[-3:]
    if not seed.startswith("seed"):
        raise ValueError(f"{folder}: not …/model/algorithm/seed1")
    return model, algorithm, int(seed.removeprefix("seed"))


@dataclass(frozen=True)
class Results:
    """Paths inside `folder`, the results of one study."""

    folder: Path

    def problems(self, name: str) -> Path:
        """A problem set, as JSON Lines."""
        return self.folder / "problems" / f"{name}.jsonl"

    def decontaminated(self, name: str) -> Path:
        """A training set without the problems that also occur in benchmarks."""
        return self.folder / "problems" / "decontaminated" / f"{name}.jsonl"

    def pretrained(self, model: str) -> Path:
        """The folder of a model before SFT."""
        return self.folder / "models" / model / "pretrained"

    def examples(self, model: str) -> Path:
        """The training examples of SFT, as JSON Lines."""
        return self.folder / "models" / model / "examples.jsonl"

    def rl_start(self, model: str) -> Path:
        """The folder of the checkpoint that every RL run of a model starts from."""
        return self.folder / "models" / model / "base"

    def policy(self, run: Run) -> Path:
        """The folder of a trained policy."""
        return self.folder / "models" / run.model / run.algorithm / f"seed{run.seed}"

    def history(self, run: Run) -> Path:
        """The history of training, a JSON line for each optimizer step."""
        return self.policy(run) / "history.jsonl"

    def drawn(self, run: Run) -> Path:
        """The folder of a policy's graded samples."""
        return self._of_run("samples", run)

    def samples(self, run: Run, benchmark: str) -> Path:
        """The graded samples of a policy on a benchmark, as Parquet."""
        return self.drawn(run) / f"{benchmark}.parquet"

    def sample_manifest(self, run: Run, benchmark: str) -> Path:
        """The manifest beside the samples."""
        return self.samples(run, benchmark).with_suffix(".json")

    def evaluated(self, model: str, benchmark: str) -> Path:
        """The folder of pass@k and all other metrics of a model's methods on a benchmark."""
        return self.folder / "evaluation" / model / benchmark

    def metrics(self, name: str, suffix: str = "parquet") -> Path:
        """A table of metrics of the whole study."""
        return self.folder / "metrics" / f"{name}.{suffix}"

    def measured(self, exhibit: str) -> Path:
        """The folder of an exhibit's measured frames, with a manifest if a model ran."""
        return self.folder / "metrics" / exhibit

    def audit(self, name: str) -> Path:
        """A table of the audit of the grader."""
        return self.folder / "audit" / f"{name}.csv"

    def table(self, name: str, suffix: str = "csv") -> Path:
        """A table: `csv`, `tex`, and `json` for the page."""
        return self.folder / "report" / "tables" / f"{name}.{suffix}"

    def figure(self, name: str, suffix: str = "svg") -> Path:
        """A figure: `svg` and `pdf`."""
        return self.folder / "report" / "figures" / f"{name}.{suffix}"

    @property
    def excerpts(self) -> Path:
        """The completions that the page shows, as JSON."""
        return self.folder / "report" / "samples.json"

    @property
    def page(self) -> Path:
        """The report."""
        return self.folder / "report" / "index.html"

    @property
    def partial_page(self) -> Path:
        """The report of the results so far."""
        return self.folder / "report" / "partial.html"

    @property
    def first_page(self) -> Path:
        """Says that the first report of the results so far has been made."""
        return self.folder / "partial" / "first_page"

    @property
    def partial(self) -> Results:
        """The folder of what the partial report makes."""
        return Results(self.folder / "partial")

    @property
    def archive(self) -> Path:
        """The study as an RO-Crate."""
        return self.folder / "archive" / f"{self.folder.name}.crate.zip"

    @property
    def registered(self) -> Path:
        """What the study asks, as it was written down before training, as JSON."""
        return self.folder / "registered.json"

    def log(self, name: str) -> Path:
        """The log of a job, named after its result."""
        return self.folder / "logs" / f"{name}.log"

    def sample_shards(self, run: Run) -> Path:
        """Sampled completions, in shards, a folder for each benchmark; may be deleted at any
        time."""
        return self._of_run("shards", run)

    def exhibit_shards(self, exhibit: str) -> Path:
        """The same for an exhibit that draws its own samples."""
        return self.folder / "shards" / exhibit

    def sft_scratch(self, model: str) -> Path:
        """Checkpoints of SFT, for resuming."""
        return self.folder / "scratch" / model / "sft"

    def rl_scratch(self, run: Run) -> Path:
        """Checkpoints of RL, for resuming."""
        return self._of_run("scratch", run)

    def _of_run(self, kind: str, run: Run) -> Path:
        return self.folder / kind / run.model / run.algorithm / f"seed{run.seed}"
