"""Where a study's results lie: every path inside ``results/{study}``, named here and nowhere else.

Nothing is read or made. The parts of a path may be names, or wildcards of Snakemake such as
``{model}``, so that rules, the planner and the report name the same files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A policy: its model, its algorithm and the training seed (0 for the policy before RL)."""

    model: str
    algorithm: str
    seed: int | str


@dataclass(frozen=True)
class Results:
    """Paths inside `folder`, the results of one study."""

    folder: Path

    def problems(self, name: str) -> Path:
        """A problem set, as JSON Lines."""
        return self.folder / "problems" / f"{name}.jsonl"

    def decontaminated(self, name: str) -> Path:
        """A training set without the problems that benchmarks hold as well."""
        return self.folder / "problems" / "decontaminated" / f"{name}.jsonl"

    def pretrained(self, model: str) -> Path:
        """The folder of a model before SFT."""
        return self.folder / "models" / model / "pretrained"

    def examples(self, model: str) -> Path:
        """What SFT learns from, as JSON Lines."""
        return self.folder / "models" / model / "examples.jsonl"

    def parent(self, model: str) -> Path:
        """The folder of the checkpoint that every RL run of a model starts from."""
        return self.folder / "models" / model / "base"

    def policy(self, run: Run) -> Path:
        """The folder of a trained policy."""
        return self.folder / "models" / run.model / run.algorithm / f"seed{run.seed}"

    def history(self, run: Run) -> Path:
        """What training recorded, a JSON line per optimizer step."""
        return self.policy(run) / "history.jsonl"

    def samples(self, run: Run, benchmark: str) -> Path:
        """The graded samples of a policy on a benchmark, as Parquet."""
        return self._of_run("samples", run) / f"{benchmark}.parquet"

    def sample_manifest(self, run: Run, benchmark: str) -> Path:
        """The manifest beside the samples."""
        return self.samples(run, benchmark).with_suffix(".json")

    def metrics(self, name: str, suffix: str = "parquet") -> Path:
        """A table of metrics of the whole study."""
        return self.folder / "metrics" / f"{name}.{suffix}"

    def measured(self, exhibit: str) -> Path:
        """The folder of what was measured for an exhibit: frames, a manifest if a model ran."""
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
        """The report of what is there."""
        return self.folder / "report" / "partial.html"

    @property
    def partial(self) -> Results:
        """What the partial report makes for itself, in a folder of its own."""
        return Results(self.folder / "partial")

    def log(self, name: str) -> Path:
        """The log of a job, named after its result."""
        return self.folder / "logs" / f"{name}.log"

    def sample_shards(self, run: Run, benchmark: str) -> Path:
        """Drawn completions, shard by shard; may be deleted at any time."""
        return self._of_run("shards", run) / benchmark

    def exhibit_shards(self, exhibit: str) -> Path:
        """The same of an exhibit that samples anew."""
        return self.folder / "shards" / exhibit

    def sft_scratch(self, model: str) -> Path:
        """Checkpoints of SFT, for resuming."""
        return self.folder / "scratch" / model / "sft"

    def rl_scratch(self, run: Run) -> Path:
        """Checkpoints of RL, for resuming."""
        return self._of_run("scratch", run)

    def _of_run(self, kind: str, run: Run) -> Path:
        return self.folder / kind / run.model / run.algorithm / f"seed{run.seed}"
