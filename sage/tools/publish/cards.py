"""Cards for the Hugging Face hub: one for each adapter, and one for the samples as a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from huggingface_hub import CardData, DatasetCardData, EvalResult, ModelCardData

from sage.rendering.labels import row_title
from sage.rendering.numbers import duration, interval, percent
from sage.results import Run
from sage.study.bases import HubBase
from sage.tools.publish.evaluations import model_name
from sage.tools.publish.material import PAPER, SOURCE, Material

TOY = (
    "**Toy.** The base is a small model that the study made or fitted for any machine. "
    "Its numbers say nothing about the paper's models."
)


def model_card(material: Material, run: Run) -> str:
    """The card of a trained policy: method, data, scores with intervals, cost."""
    study, scores = material.study, material.scores_of(run)
    model, rl = study.model(run.model), study.rl(run.model)
    algorithm, manifest = study.algorithms[run.algorithm], material.manifest_of(run)
    title = f"{model.title}, {row_title(study, run.algorithm)}, seed {run.seed}"
    toy = ["toy"] if material.is_toy() else []
    head = ModelCardData(
        library_name="peft",
        pipeline_tag="text-generation",
        base_model=model.base.repository if isinstance(model.base, HubBase) else None,
        tags=["sage", "rlvr", "grpo", "trl", *toy],
        model_name=model_name(material, run),
        eval_results=results_of(scores),
    )
    guide, estimator = algorithm.guide, algorithm.estimator
    beta = rl.kl_coefficient if algorithm.kl_coefficient is None else algorithm.kl_coefficient
    method = {
        "Loss": algorithm.loss,
        "KL term": "none" if algorithm.kl == "none" else f"{algorithm.kl}, coefficient {beta:g}",
        "Estimator of the KL term": estimator.kind if estimator else "none",
        "Guide": f"{guide.kind} {_settings(guide.settings)}" if guide else "none",
        "Advantage": algorithm.advantage.kind,
        "Training data": f"`{rl.problems}`, {rl.steps} steps of "
        f"{rl.prompts_per_step} prompts and {rl.rollouts} rollouts",
        "Training seed": str(run.seed),
        "Training time": duration(manifest.get("wall_seconds")),
        "Commit": str(manifest.get("git_commit") or "unknown"),
    }
    parts = [
        front(head),
        f"# {title}",
        f"Trained in a reproduction of [{PAPER}]({SOURCE}), study `{study.name}`.",
        *([TOY] if material.is_toy() else []),
        "## Method",
        table(("", ""), list(method.items())),
        "## Scores",
        "pass@k in percent with 95 % intervals over problems, for this training run alone.",
        score_table(scores),
        "## Limits",
        "One training run: another seed gives other numbers. The interval does not cover that.",
    ]
    return "\n\n".join(parts) + "\n"


def dataset_card(material: Material) -> str:
    """The card of the graded samples."""
    study = material.study
    configs = [
        {"config_name": benchmark, "data_files": f"samples/*/*/*/{benchmark}.parquet"}
        for benchmark in study.benchmark_sets()
    ]
    head = DatasetCardData(
        tags=["sage", "rlvr", "pass-at-k", *(["toy"] if material.is_toy() else [])],
        task_categories=["text-generation"],
        configs=configs,
    )
    samples = {k: m for k, m in material.manifests.items() if k.startswith("samples/")}
    tokens = sum(int(manifest.get("tokens") or 0) for manifest in samples.values())
    parts = [
        front(head),
        f"# Graded samples of the study `{study.name}`",
        f"Completions of every policy in a reproduction of [{PAPER}]({SOURCE}).",
        *([TOY] if material.is_toy() else []),
        table(
            ("", ""),
            [
                ("Policies", str(len({name.rsplit("/", 1)[0] for name in samples}))),
                ("Files, one for each policy and benchmark", str(len(samples))),
                ("Sampled tokens", f"{tokens:,}".replace(",", " ")),
            ],
        ),
        "Completions are what models wrote; they may be wrong, and nobody has read them all. "
        "`answer` is what the grader took from a completion, `status` its verdict, `n_tokens` the "
        "length, `finish_reason` why it ended.",
    ]
    return "\n\n".join(parts) + "\n"


def results_of(scores: pd.DataFrame) -> list[EvalResult]:
    """Scores as a card has them: a result for each benchmark and k."""
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=row["benchmark"],
            dataset_name=row["benchmark"],
            metric_type="pass@k",
            metric_name=f"pass@{row['k']}",
            metric_value=float(row["value"]),
        )
        for row in scores.to_dict("records")
    ]


def score_table(scores: pd.DataFrame) -> str:
    """A row for each benchmark, a column for each k."""
    ks = sorted({int(k) for k in scores["k"]})
    rows = []
    for name, group in scores.groupby("benchmark"):
        cells = {
            int(row["k"]): f"{percent(row['value'])} ({interval(row['low'], row['high'])})"
            for row in group.to_dict("records")
        }
        rows.append((str(name), *(cells.get(k, "") for k in ks)))
    return table(("Benchmark", *(f"pass@{k}" for k in ks)), rows)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text that cannot end a cell of a table in Markdown."""
    return " ".join(text.replace("|", "\\|").split())


def front(head: CardData) -> str:
    return f"---\n{head.to_yaml()}\n---"


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())
