"""Where a study's results lie: the paths that the report reads, named as the rules name them.

Nothing is read here, and none of the files need exist: a partial report has whatever is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sage.study import BASE, ResolvedStudy
from sage.study.exhibits import (
    CaseStudyText,
    PerplexityFigure,
    StepTimesTable,
    TrajectoryFigure,
)

Run = tuple[str, str, int]
"""model, algorithm, training seed (0 for `base`)."""

TABLE_KINDS = ("accuracy", "patterns", "gradient_norms", "ablation", "perplexity", "step_times")
FIGURE_KINDS = ("curves", "training", "trajectory", "perplexity")
SETTINGS_TABLES = ("table7", "table8")
THEORY_FIGURES = ("figure1", "figure5")
THEORY_TABLES = ("appendix_c",)
METRICS = ("pass_at_k", "rates", "support", "claims")


@dataclass(frozen=True)
class PageFiles:
    """Files of the page, named as Snakemake names them: relative to its working directory.

    `tables` are CSV files, `figures` SVG files and `cases` JSON files by exhibit; `metrics` are
    Parquet files by name; `problems` JSON Lines files by problem set. `policies`, `parents` and
    `evaluations` are manifests: of trained runs, of what is done to a model before RL by
    (model, stage), of samples by run and benchmark; `further` those of exhibits that sample or
    read anew. `paper` is the folder of the paper's tables, `templates` that of the page's own.
    """

    metrics: Mapping[str, Path]
    tables: Mapping[str, Path]
    figures: Mapping[str, Path]
    cases: Mapping[str, Path]
    contamination: Path
    excerpts: Path
    problems: Mapping[str, Path]
    parents: Mapping[tuple[str, str], Path]
    policies: Mapping[Run, Path]
    evaluations: Mapping[tuple[str, str, int, str], Path]
    further: Mapping[str, Path]
    paper: Path
    templates: Path


def trained_runs(study: ResolvedStudy, model: str) -> list[Run]:
    """Every run of RL that the study asks for."""
    seeds = study.study.seeds
    return [(model, row, seed) for row in study.trained(model) for seed in seeds]


def evaluated_runs(study: ResolvedStudy, model: str) -> list[tuple[str, str, int, str]]:
    """Every run and benchmark that the study samples: (model, algorithm, seed, benchmark)."""
    return [
        (model, row, seed, benchmark)
        for row, benchmark in study.evaluated(model)
        for seed in ((0,) if row == BASE else study.study.seeds)
    ]


def policy_folder(folder: Path, run: Run) -> Path:
    """The folder of a trained policy."""
    model, algorithm, seed = run
    return folder / "models" / model / algorithm / f"seed{seed}"


def sample_file(folder: Path, run: tuple[str, str, int, str]) -> Path:
    """The graded samples of a run on a benchmark; their manifest is beside them, as JSON."""
    model, algorithm, seed, benchmark = run
    return folder / "samples" / model / algorithm / f"seed{seed}" / f"{benchmark}.parquet"


def used_problem_sets(study: ResolvedStudy) -> list[str]:
    """Problem sets that a model trains on or is evaluated on, in the study's order."""
    models = study.study.models
    used = {model.rl.problems for model in models.values()}
    used |= {benchmark for model in models for _, benchmark in study.evaluated(model)}
    return [name for name in study.study.problems if name in used]


def page_files(
    study: ResolvedStudy, folder: Path, reports: Path, made: Path | None = None
) -> PageFiles:
    """The files of the page of a study whose results are in `folder`.

    `reports` is the folder of the templates and of the paper's tables; `made` that of metrics,
    tables and figures where these are not in `folder`.
    """
    made = made or folder
    exhibits, models = study.study.exhibits, study.study.models
    tables = [name for name, shown in exhibits.items() if shown.kind in TABLE_KINDS]
    tables += [f"{name}_reading" for name, shown in exhibits.items() if shown.kind == "accuracy"]
    figures = [name for name, shown in exhibits.items() if shown.kind in FIGURE_KINDS]
    runs = [run for model in models for run in evaluated_runs(study, model)]
    return PageFiles(
        metrics={name: made / f"metrics/{name}.parquet" for name in METRICS},
        tables={
            name: made / f"report/tables/{name}.csv"
            for name in (*tables, *SETTINGS_TABLES, *THEORY_TABLES)
        },
        figures={name: made / f"report/figures/{name}.svg" for name in (*figures, *THEORY_FIGURES)},
        cases={
            name: made / f"metrics/{name}.json"
            for name, shown in exhibits.items()
            if isinstance(shown, CaseStudyText)
        },
        contamination=made / "metrics/contamination.csv",
        excerpts=made / "report/samples.json",
        problems={name: folder / f"problems/{name}.jsonl" for name in used_problem_sets(study)},
        parents={
            (model, stage): folder / "models" / model / stage / "manifest.json"
            for model in models
            for stage in ("pretrained", BASE)
            if stage == BASE or study.model(model).base.source != "model"
        },
        policies={
            run: policy_folder(folder, run) / "manifest.json"
            for model in models
            for run in trained_runs(study, model)
        },
        evaluations={run: sample_file(folder, run).with_suffix(".json") for run in runs},
        further={
            name: folder / f"metrics/{name}.json"
            for name, shown in exhibits.items()
            if isinstance(shown, TrajectoryFigure | PerplexityFigure | StepTimesTable)
        },
        paper=reports / "paper",
        templates=reports,
    )
