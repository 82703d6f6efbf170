"""What is published of a study, read from its results: scores, claims, manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from sage.rendering.numbers import duration
from sage.results import Results, Run
from sage.runtime.records import manifests
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.study.bases import HubBase

ARXIV = "2605.18864"
SOURCE = f"https://arxiv.org/abs/{ARXIV}"
PAPER = "SAGE: Shaping Anchors for Guided Exploration in RLVR of LLMs"


@dataclass(frozen=True)
class Material:
    """A study and what was measured in it.

    `scores` is the table of pass@k, `claims` the ledger (`sage.claims.ledger`), `manifests` are
    those of training and sampling by their path in the results.
    """

    study: ResolvedStudy
    scores: pd.DataFrame
    claims: pd.DataFrame
    manifests: Mapping[str, Mapping[str, Any]]

    def runs(self) -> list[Run]:
        """Every trained policy, model by model."""
        return [run for model in self.study.study.models for run in self.study.trained_runs(model)]

    def scores_of(self, run: Run) -> pd.DataFrame:
        """Rows of pass@k of one policy, in the order of benchmark and k."""
        here = self.scores[
            (self.scores["model"] == run.model)
            & (self.scores["algorithm"] == run.algorithm)
            & (self.scores["train_seed"] == int(run.seed))
            & (self.scores["metric"] == "pass@k")
        ]
        return here.sort_values(["benchmark", "k"])

    def manifest_of(self, run: Run) -> Mapping[str, Any]:
        """The manifest of a policy's training; empty if it is not there."""
        return self.manifests.get(f"models/{run.model}/{run.algorithm}/seed{run.seed}", {})

    def model_name(self, run: Run) -> str:
        """The name under which a policy is published."""
        seed = f"-seed{run.seed}" if int(run.seed) else ""
        return f"sage-{self.study.name}-{run.model}-{run.algorithm}{seed}".replace("_", "-")

    def is_toy(self) -> bool:
        """Whether no model of the study is one that others have trained and published."""
        bases = [model.base for model in self.study.study.models.values()]
        return not any(isinstance(base, HubBase) for base in bases)

    def toy_tag(self) -> list[str]:
        return ["toy"] if self.is_toy() else []

    def commits(self) -> list[str]:
        return sorted(
            {str(m["git_commit"]) for m in self.manifests.values() if m.get("git_commit")}
        )

    def ended(self) -> datetime:
        """When the last job with a manifest ended; the epoch if none says."""
        times = [str(m["ended"]) for m in self.manifests.values() if m.get("ended")]
        return datetime.fromisoformat(max(times, default="1970-01-01T00:00:00+00:00"))

    def at_a_glance(self) -> dict[str, str]:
        """Scope, hardware, time and cost, in words."""
        models = [model.title for model in self.study.study.models.values()]
        scope = f"study `{self.study.name}`: {', '.join(models)}; {len(self.runs())} training runs"
        seconds = sum(float(m.get("wall_seconds") or 0) for m in self.manifests.values())
        machines = dict.fromkeys(
            f"{here.get('gpu') or here.get('cpu', 'unknown') + ', no GPU'}, "
            f"{here.get('cores', '?')} cores, {here.get('memory_gib', '?')} GiB"
            for here in (manifest.get("hardware") or {} for manifest in self.manifests.values())
        )
        return {
            "Scope": scope + (". Toy: none of the paper's models" if self.is_toy() else ""),
            "Hardware": "; ".join(machines) or "not recorded",
            "Compute time": f"{duration(seconds)}, all jobs added up",
            "Cost": "not recorded: the jobs ran on machines of one's own",
        }


def read_material(study: ResolvedStudy, results: Results) -> Material:
    """Read a finished study. Raises Fault if a table is missing or damaged."""
    found = {}
    for path in manifests(results.folder):
        name = path.parent if path.name == "manifest.json" else path.with_suffix("")
        found[name.relative_to(results.folder).as_posix()] = json.loads(path.read_bytes())
    return Material(
        study,
        read_frame(results.metrics("pass_at_k")),
        read_frame(results.metrics("claims")),
        dict(sorted(found.items())),
    )
