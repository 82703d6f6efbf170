"""The tables and figures of a study: what each shows, and so what must be trained and sampled.

An exhibit names a model, and may name algorithms and benchmarks; left out, they are the
model's own lists. Its key in the study (`table1`, `figure3`) is also a target of the workflow.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from sage.study.strict import BASE, Name, Positive, Strict, about

Rows = Annotated[list[Name], Field(min_length=1)]


class Exhibit(Strict):
    """What every exhibit has."""

    title: Annotated[str, about("heading of its section, and the start of its caption")]
    model: Annotated[Name, about("the model that it shows")]
    algorithms: Annotated[
        Rows | None,
        about(
            "its rows, in order; `null` takes those of the model. `base` comes first where samples "
            "are shown"
        ),
    ] = None


class AccuracyTable(Exhibit):
    """pass@1 and pass@k of every row on every benchmark, with their average (Tables 1, 3, 4, 9)."""

    kind: Literal["accuracy"]
    benchmarks: Annotated[Rows | None, about("its columns; `null` takes those of the model")] = None


class CurvesFigure(Exhibit):
    """pass@k against k, one panel per benchmark (Figures 3, 4, 6)."""

    kind: Literal["curves"]
    benchmarks: Annotated[Rows | None, about("its panels; `null` takes those of the model")] = None


class PatternTable(Exhibit):
    """How often correct solutions show the patterns of `patterns.yaml` (Table 2)."""

    kind: Literal["patterns"]
    benchmark: Annotated[Name, about("the benchmark whose solutions are searched")]
    samples: Annotated[
        Positive | None,
        about(
            "the first samples of each problem and evaluation seed; `null` takes all",
            unit="completions",
        ),
    ] = None


class GradientTable(Exhibit):
    """Mean gradient norm in each third of training (Table 5)."""

    kind: Literal["gradient_norms"]


class AblationTable(Strict):
    """pass@1 and pass@k over a grid of one algorithm's guide settings (Table 6)."""

    kind: Literal["ablation"]
    title: Annotated[str, about("heading of its section, and the start of its caption")]
    model: Annotated[Name, about("the model that it shows")]
    algorithm: Annotated[
        Name,
        about(
            "the algorithm whose guide is varied; a cell with the guide's own settings is the "
            "algorithm itself"
        ),
    ]
    grid: Annotated[
        dict[str, Annotated[list[float], Field(min_length=1)]],
        Field(min_length=1, max_length=2),
        about("one or two settings of the guide, each with its values", unit="values by setting"),
    ]
    benchmark: Annotated[Name, about("the benchmark on which the cells are compared")]

    def cells(self) -> list[dict[str, float]]:
        """The settings of each cell, the last key running fastest."""
        return [
            dict(zip(self.grid, values, strict=True))
            for values in itertools.product(*self.grid.values())
        ]

    def row(self, cell: Mapping[str, float]) -> str:
        """The name of a cell's row, such as ``grpo_branch-threshold0.8-ratio0.1``."""
        return "-".join([self.algorithm, *(f"{key}{value:g}" for key, value in cell.items())])


class TrajectoryFigure(Exhibit):
    """Training reward against test accuracy over training (Figure 2)."""

    kind: Literal["trajectory"]
    benchmark: Annotated[Name, about("the benchmark of the test accuracy")]
    snapshots: Annotated[
        Positive,
        about("at how many evenly spaced steps the policy is kept and tested", unit="policies"),
    ]
    samples: Annotated[
        Positive,
        about("samples of each problem and evaluation seed at each of them", unit="completions"),
    ]


class PerplexityFigure(Exhibit):
    """Perplexity of completions under the base policy (Figure 7)."""

    kind: Literal["perplexity"]
    benchmark: Annotated[Name, about("the benchmark of the problems")]
    problems: Annotated[Rows | None, about("ids of the problems; `null` takes the first two")] = (
        None
    )
    responses: Annotated[
        Positive, about("completions for each row and problem", unit="completions")
    ] = 64


class CaseStudyText(Exhibit):
    """One problem that all rows solve, their solutions side by side (App. H)."""

    kind: Literal["case_study"]
    benchmark: Annotated[Name, about("the benchmark of the problem")]


class TrainingFigure(Exhibit):
    """Reward, KL, entropy, gradient norm and lengths over training."""

    kind: Literal["training"]


class StepTimesTable(Exhibit):
    """What a guide costs: the time for loss and gradient of the same completions (section 4.3)."""

    kind: Literal["step_times"]
    algorithms: Annotated[
        list[Name],
        Field(min_length=2),
        about("rows that differ only in their guide; all are compared with the first"),
    ]
    rounds: Annotated[
        int, Field(ge=6), about("measurements of each row, in turn", unit="measurements")
    ] = 40


RESERVED = frozenset(
    {
        "ablation_table",
        "accuracy_table",
        "adopt",
        "all",
        "appendix_c",
        "check",
        "claims",
        "contamination",
        "curves_figure",
        "decontaminate",
        "examples",
        "excerpts",
        "exhibit_curves",
        "exhibit_metrics",
        "fetch",
        "figure1",
        "figure5",
        "gradient_norms",
        "gradient_table",
        "metrics",
        "page",
        "patterns",
        "patterns_table",
        "perplexity",
        "perplexity_figure",
        "perplexity_table",
        "plan",
        "pretrain",
        "problems",
        "report",
        "report_partial",
        "rl",
        "sample",
        "select_case",
        "settings_tables",
        "sft",
        "step_times",
        "step_times_table",
        "table7",
        "table8",
        "theory",
        "theory_figure",
        "toy_table",
        "training_figure",
        "trajectory",
        "trajectory_figure",
    }
)
"""Names of rules, and of exhibits that every report has: no exhibit of a study may take them."""

OF_TRAINING = (GradientTable, TrajectoryFigure, TrainingFigure, StepTimesTable)
"""Exhibits of training itself: the policy before RL is no row of theirs."""

AnyExhibit = Annotated[
    AccuracyTable
    | CurvesFigure
    | PatternTable
    | GradientTable
    | AblationTable
    | TrajectoryFigure
    | PerplexityFigure
    | CaseStudyText
    | TrainingFigure
    | StepTimesTable,
    Field(discriminator="kind"),
]


def rows_of(exhibit: Exhibit, own: Sequence[str]) -> list[str]:
    """Rows of an exhibit, by default the model's `own`; `base` first where samples are shown."""
    rows = list(exhibit.algorithms or own)
    return rows if BASE in rows or isinstance(exhibit, OF_TRAINING) else [BASE, *rows]


def benchmarks_of(exhibit: AnyExhibit, own: Sequence[str]) -> list[str]:
    """Benchmarks whose samples an exhibit needs; `own` are the model's."""
    if isinstance(exhibit, AccuracyTable | CurvesFigure):
        return list(exhibit.benchmarks or own)
    if isinstance(exhibit, OF_TRAINING):
        return []
    return [exhibit.benchmark]
