"""What Eq. 4's optimum would do, how far training has come, and what a guide moves there."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name, Positive
from sage.rendering.numbers import NONE, percent
from sage.rendering.table import Column, TableDocument, table_of, titled
from sage.study import BASE, ResolvedStudy, StudyError
from sage.study.algorithms import Algorithm
from sage.study.choices import REGISTRIES
from sage.study.exhibit import ExhibitOfRows, Surroundings


class OptimumTable(ExhibitOfRows, Kind):
    """The optimum of each method's KL-regularised objective (Eq. 2, Eq. 4), from base samples.

    Shown are methods with a reverse KL term to the base that reward right answers alone. The
    optimum of Eq. 4 (Eq. 2 without a guide) by importance weights of the base's samples: on which
    problems it can be told, how accurate it is there, its KL divergence from the base beside the
    one that training reached, and which share of the mass of right completions a guide moves.
    """

    kind: Literal["optimum"]
    benchmark: Name
    """the problem set"""
    responses: Positive = 8
    """of each problem, in which the KL divergence that training reached is measured [responses]"""

    with_model: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("base", "samples", "policies", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.optimum",)

    def faults(self, around: Surroundings) -> Any:
        yield from around.too_many("responses", self.responses, around.eval_seeds)

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """The methods whose objective is Eq. 4's, as data, and their KL coefficients.

        They have a reverse KL term to the base, and right answers alone are rewarded. Not those
        whose guide learns: what it has learned is in no file of a study's settings.
        """
        rows = [row for row in self.rows_of(study) if row != BASE]
        methods = {row: study.algorithms[row] for row in rows}
        kept = {row: m for row, m in methods.items() if _has_the_objective(m) and not _learns(m)}
        if not kept:
            raise StudyError(
                f"exhibits: {name}: no method of the model {self.model} has a reverse KL term to "
                "the base and is rewarded for right answers alone; name others in `algorithms` or "
                "leave the exhibit out"
            )
        beta = study.rl(self.model).kl_coefficient
        return {
            "algorithms": {row: {**m.model_dump(), "title": ""} for row, m in kept.items()},
            "betas": {row: method.kl_coefficient or beta for row, method in kept.items()},
        }

    def measure(self, job: Measuring) -> None:
        from sage.analysis.optimum import optimum_table

        methods = job.settings["algorithms"]
        table, tokens = optimum_table(
            base=job.file("base"),
            policies=job.files["policies"],
            samples=job.files["samples"],
            problems=job.file("problems"),
            algorithms={name: Algorithm.model_validate(each) for name, each in methods.items()},
            betas=job.settings["betas"],
            responses=self.responses,
            device=job.device,
        )
        job.write(optimum=table)
        job.write_manifest(tokens)

    def table(self, display: Display) -> TableDocument:
        frame = display.ordered(display.frame("optimum"))
        first = frame.iloc[0]
        columns: list[Column] = [
            ("", "Accuracy", lambda row: percent(row["accuracy"])),
            ("", "KL, optimum", lambda row: _number(row["kl_optimum"], 2)),
            ("", "KL, reached", lambda row: _number(row["kl_reached"], 2)),
            ("", "Moved", lambda row: percent(row["moved"])),
            ("", "log q gap", lambda row: _number(row["log_q_gap"], 3)),
            ("", "Samples", lambda row: _number(row["effective"], 1)),
        ]
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: what the objective with the "
            "KL term would lead to, from the base's samples with weights q exp(r/β). The base was "
            f"right at least once on {percent(first['solved'])} % of the problems; on the others "
            "the weights know nothing. Means are over the "
            f"{percent(first['estimable'])} % with enough effective samples. Accuracy: that of "
            "the optimum, in percent. KL: its divergence from the base in nats, beside the one "
            "that the completions of its first training run show. Moved: percentage of the mass of "
            "right completions that a guide moves to other right completions. log q gap: right "
            "minus wrong completions of a problem. Samples: effective sample size. A guide is "
            "taken with the base's entropies, which training changes, and at the end of its "
            "schedule, where the random guide is 1."
        )
        table = table_of("Method", columns, [("", titled(frame))], display.study)
        return TableDocument(frame, table, caption)


def _has_the_objective(method: Algorithm) -> bool:
    """Whether right answers alone are rewarded, and the KL term is a reverse one to the base."""
    rewards = [reward.kind for reward in method.rewards]
    return method.kl == "reverse" and method.fidelity == "paper" and rewards == ["correct"]


def _learns(method: Algorithm) -> bool:
    """Whether the method's guide is learned in training."""
    return method.guide is not None and hasattr(
        REGISTRIES["guide"].find(method.guide.kind), "observe"
    )


def _number(value: float, digits: int) -> str:
    return NONE if math.isnan(value) else f"{value:.{digits}f}"
