"""A small study and the frames of its metrics, with numbers that can be checked by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import stdtrit

from sage.exhibits import kind_of, load_study
from sage.exhibits.ablation import AblationTable
from sage.exhibits.accuracy import AccuracyTable
from sage.exhibits.curves import CurvesFigure
from sage.exhibits.kind import Display
from sage.exhibits.patterns import PatternTable
from sage.exhibits.perplexity import PerplexityFigure
from sage.exhibits.training import GradientTable, TrainingFigure
from sage.exhibits.trajectory import TrajectoryFigure
from sage.rendering.style import STYLE
from sage.rendering.table import TableDocument
from sage.study import Algorithm, Guide, ResolvedStudy

ROOT = Path(__file__).resolve().parents[2]

ROWS = {
    "grpo": Algorithm(title="GRPO", loss="grpo", kl="reverse", estimator="k3"),
    "no_kl": Algorithm(title="GRPO w/o KL", loss="grpo", kl="none"),
    "bnpo": Algorithm(title="BNPO", loss="bnpo", kl="reverse", estimator="k3"),
    "branch": Algorithm(
        title="Branch",
        loss="grpo",
        kl="reverse",
        estimator="k3",
        guide=Guide(kind="branch", settings={"threshold": 1.2, "ratio": 0.3}),
    ),
}

EXHIBITS: dict[str, Any] = {
    "table1": AccuracyTable(kind="accuracy", title="Accuracy", model="tiny"),
    "table2": PatternTable(kind="patterns", title="Patterns", model="tiny", benchmark="easy"),
    "table5": GradientTable(kind="gradient_norms", title="Gradients", model="tiny"),
    "table6": AblationTable(
        kind="ablation",
        title="Ablation",
        model="tiny",
        algorithm="branch",
        grid={"threshold": [0.8, 1.2], "ratio": [0.3, 0.5]},
        benchmark="easy",
    ),
    "table9": AccuracyTable(
        kind="accuracy", title="Further", model="tiny", algorithms=["branch"], benchmarks=["hard"]
    ),
    "figure2": TrajectoryFigure(
        kind="trajectory", title="Ways", model="tiny", benchmark="easy", snapshots=2, samples=4
    ),
    "figure3": CurvesFigure(kind="curves", title="Curves", model="tiny"),
    "figure7": PerplexityFigure(
        kind="perplexity", title="Perplexity", model="tiny", benchmark="easy", responses=4
    ),
    "training": TrainingFigure(kind="training", title="Training", model="tiny"),
}


def a_study(
    title: str = "A study",
    algorithms: tuple[str, ...] = ("grpo", "branch"),
    seeds: tuple[int, ...] = (1,),
    primary_k: int = 4,
) -> ResolvedStudy:
    """A study with the model `tiny` and the benchmarks `easy` and `hard`."""
    smoke = load_study("smoke", ROOT / "config")
    model = next(iter(smoke.study.models.values()))
    numbers = smoke.study.problems[model.rl.problems]
    model = model.model_copy(
        update={
            "title": "Tiny",
            "algorithms": list(algorithms),
            "benchmarks": ["easy", "hard"],
            "rl": model.rl.model_copy(update={"problems": "train"}),
        }
    )
    study = smoke.study.model_copy(
        update={
            "title": title,
            "models": {"tiny": model},
            "seeds": list(seeds),
            "evaluation": smoke.study.evaluation.model_copy(update={"primary_k": primary_k}),
            "exhibits": EXHIBITS if "branch" in algorithms else {},
            "problems": {
                name: numbers.model_copy(update={"title": name.capitalize()})
                for name in ("train", "easy", "hard")
            },
        }
    )
    rows = {name: ROWS[name] for name in algorithms}
    variants = EXHIBITS["table6"].variants(rows) if "branch" in rows else {}
    update = {"study": study, "algorithms": rows | variants, "variants": list(variants)}
    return smoke.model_copy(update=update)


def changed(
    study: ResolvedStudy, methods: Mapping[str, Algorithm] | None = None, **update: Any
) -> ResolvedStudy:
    """The study with other keys of its file, and with other or further `methods`."""
    own = study.study.model_copy(update=update)
    return study.model_copy(update={"study": own, "algorithms": study.algorithms | (methods or {})})


def retitled(study: ResolvedStudy, **titles: str) -> ResolvedStudy:
    """The study with other titles of methods."""
    rows = study.algorithms
    return changed(study, {n: rows[n].model_copy(update={"title": t}) for n, t in titles.items()})


@dataclass(frozen=True)
class Given(Display):
    """An exhibit whose frames a test gives instead of files."""

    frames: Mapping[str, pd.DataFrame]

    def frame(self, name: str) -> pd.DataFrame:
        return self.frames[name]


def shown(document: TableDocument, title: str, small: bool = False, group: int = 0) -> list[str]:
    """The cells of a row of a table as they are read, or the small text below them."""
    (row,) = (row for row in document.table.groups[group].rows if row.title == title)
    return [cell.small if small else cell.text for cell in row.cells]


def heads(document: TableDocument) -> list[tuple[str, ...]]:
    """A table's heads: the title over its columns, then these."""
    return [(head.title, *head.columns) for head in document.table.heads]


def table_of(study: ResolvedStudy, exhibit: str, **frames: pd.DataFrame) -> TableDocument:
    """The table of an exhibit from measured frames."""
    return kind_of(study, exhibit).table(Given(study, exhibit, (), Path(), frames))


def figure_of(study: ResolvedStudy, exhibit: str, **frames: pd.DataFrame) -> Figure:
    """The figure of an exhibit from measured frames, in the report's style."""
    with matplotlib.rc_context(STYLE):
        return kind_of(study, exhibit).figure(Given(study, exhibit, (), Path(), frames))


def pass_at_k(
    rows: Iterable[tuple[str, str, int, float, float, float]], seeds: tuple[int, ...] = (1,)
) -> pd.DataFrame:
    """Metrics from (algorithm, benchmark, k, value, low, high): pooled and for each seed.

    The variance is that over problems alone: arms in units of Student's quantile, 39 df.
    """
    columns = ["model", "algorithm", "train_seed", "benchmark", "metric", "k"]
    table = [
        ("tiny", algorithm, seed, benchmark, "pass@k", k, value, low, high)
        for algorithm, benchmark, k, value, low, high in rows
        for seed in ((0,) if algorithm == "base" else seeds) + (-1,)
    ]
    frame = pd.DataFrame(table, columns=[*columns, "value", "low", "high"])
    below, above = (
        ((frame["value"] - frame[end]) / stdtrit(39, 0.975)) ** 2 for end in ("low", "high")
    )
    runs = [
        [0] if name == "base" else list(seeds) if seed == -1 else [seed]
        for name, seed in zip(frame["algorithm"], frame["train_seed"], strict=True)
    ]
    return frame.assign(
        n_problems=40,
        n_samples=4,
        train_seeds=runs,
        by_run=[[value] * len(of) for value, of in zip(frame["value"], runs, strict=True)],
        var_problems=(below + above) / 2,
        var_interaction=0.0,
        var_below=below,
        var_above=above,
        units=40,
    )


def comparisons(rows: Iterable[tuple[str, str, str, int, float, float]]) -> pd.DataFrame:
    """Comparisons from (algorithm, other, benchmark, k, value, p), p before any adjustment."""
    columns = ["algorithm", "other", "benchmark", "k", "value", "p"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(
        low=frame["value"] - 0.1,
        high=frame["value"] + 0.1,
        model="tiny",
        metric="pass@k",
        same_counts=False,
        partly=True,
        n_problems=40,
        n_seeds=1,
        n_bases=1,
        train_seeds=[[1]] * len(frame),
        by_run=[[value] for value in frame["value"]],
        var_problems=0.0025,
        var_interaction=0.0,
        var_below=0.0025,
        var_above=0.0025,
        units=40,
    )


METRICS = [
    ("base", "easy", 1, 0.30, 0.20, 0.40),
    ("base", "easy", 2, 0.50, 0.40, 0.60),
    ("base", "easy", 4, 0.70, 0.60, 0.80),
    ("base", "hard", 1, 0.10, 0.05, 0.15),
    ("base", "hard", 2, 0.20, 0.10, 0.30),
    ("grpo", "easy", 1, 0.60, 0.50, 0.70),
    ("grpo", "easy", 2, 0.65, 0.55, 0.75),
    ("grpo", "easy", 4, 0.40, 0.30, 0.50),
    ("grpo", "hard", 1, 0.12, 0.06, 0.18),
    ("grpo", "hard", 2, 0.22, 0.12, 0.32),
    ("branch", "easy", 1, 0.90, 0.85, 0.95),
    ("branch", "easy", 2, 0.92, 0.87, 0.97),
    ("branch", "easy", 4, 0.75, 0.65, 0.85),
    ("branch", "hard", 1, 0.20, 0.14, 0.26),
    ("branch", "hard", 2, 0.40, 0.35, 0.45),
]
COMPARISONS = comparisons(
    [
        ("grpo", "base", "easy", 1, 0.30, 0.001),
        ("branch", "base", "easy", 1, 0.60, 0.001),
        # The leader may stand in either place; times 3 it is below the level.
        ("grpo", "branch", "easy", 1, -0.30, 0.016),
        ("grpo", "base", "easy", 4, -0.30, 0.001),
        ("branch", "base", "easy", 4, 0.05, 0.400),
        ("branch", "grpo", "easy", 4, 0.35, 0.001),
        ("grpo", "base", "hard", 1, 0.02, 0.900),
        ("branch", "base", "hard", 1, 0.10, 0.025),  # times 2 it is not below the level
        ("branch", "grpo", "hard", 1, 0.08, 0.005),
        ("branch", "base", "hard", 2, 0.20, 0.001),  # no comparison with GRPO
    ]
)


def history(steps: int, slope: float = 0.01, **more: float) -> list[dict[str, float]]:
    """A training history whose reward rises by `slope` a step."""
    return [
        {"step": step, "reward": slope * step, "entropy": 1 / step, "grad_norm": 0.5} | more
        for step in range(1, steps + 1)
    ]


HISTORIES = {("grpo", 1): history(20, kl=0.1), ("branch", 1): history(20, kl=0.2, q_mean=1.1)}
