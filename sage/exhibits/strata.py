"""What RL gains where it trains and loses elsewhere: pass@1 and pass@k by stratum over training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits.kind import Display, Findings, Kind, Measuring
from sage.fields import Name, Positive
from sage.rendering.labels import method_title
from sage.rendering.lines import styles_in_order
from sage.rendering.numbers import interval_of_points, percent, points
from sage.rendering.table import (
    Column,
    Record,
    TableDocument,
    cell_of,
    points_cell,
    share_cell,
    table_of,
    titled_by,
)
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {"trained": "strata that RL trains on", "others": "the other strata", "all": "all strata"}
"""Parts of the problems, in words."""

CHANGE = ("change", "change_low", "change_high")


class StrataFigure(Kind):
    """pass@1 and pass@k over training: on the strata that RL trains on, and on the others.

    Shares of problems solved by one sample and by at least one of k, at moments of the training of
    one method, step 0 the policy before RL; means over training runs. Bands are 95 % intervals over
    problems and runs. A line that falls while the other rises: RL forgets what its problems do not
    need.
    """

    kind: Literal["strata"]
    algorithm: Name = "grpo"
    """the method"""
    benchmark: Name
    """the problem set, with problems of other strata than RL's"""
    snapshots: Annotated[int, Field(ge=2)] = 10
    """moments of training, the end among them [moments]"""
    samples: Positive | None = None
    """completions per problem before the end, at least the study's primary k; left out, as many as
    at the end [samples]"""

    leads: ClassVar[bool] = True
    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("samples", "policies", "base", "problems")
    tells: ClassVar[tuple[str, ...]] = ("",)
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.snapshots",)

    def named(self) -> list[str]:
        return [self.algorithm]

    def methods_of(self, study: ResolvedStudy) -> list[str]:
        return [BASE, self.algorithm]

    def snapshots_kept(self) -> int:
        return self.snapshots

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        samples, k = self.samples or around.drawn, around.primary_k
        if k == 1:
            yield "kind", "shows pass@1 and pass@k, but evaluation.primary_k is 1; raise it"
        elif samples * around.eval_seeds < k:
            yield "samples", f"{samples} must be at least evaluation.primary_k, {k}"

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """`trained` are the strata that RL's problems are of, none where a set has no strata."""
        evaluation, rl = study.evaluation(self.model), study.rl(self.model)
        draws = evaluation.draws()
        return {
            "evaluation": {**draws, "samples": self.samples or evaluation.samples},
            "bootstrap": evaluation.bootstrap,
            "k": evaluation.primary_k,
            "steps": rl.steps,
            "trained": study.trained_strata(self.model),
        }

    def measure(self, job: Measuring) -> None:
        """Write `by_step`, and the counts that were `drawn` before the end of training."""
        from sage.evaluation.snapshots import by_step, rival_counts

        sampler = job.snapshot_sampler(self.model, self.benchmark)
        drawn, tokens = rival_counts(sampler, job.files["policies"], self.snapshots, [])
        steps = {name: int(name.removeprefix("step-")) for name in drawn["algorithm"].unique()}
        steps |= {BASE: 0, self.algorithm: job.settings["steps"]}
        counts = pd.concat([job.counts_of_samples(), drawn], ignore_index=True)
        asked = (job.settings[name] for name in ("trained", "k", "bootstrap"))
        job.write(by_step=by_step(counts, steps, *asked), drawn=drawn)
        job.write_manifest(tokens)

    def findings(self, study: ResolvedStudy, *frames: pd.DataFrame) -> Findings:
        """What the end of training changed where RL trains and elsewhere."""
        (frame,) = frames
        end = frame[(frame["step"] == frame["step"].max()) & (frame["k"] == frame["k"].max())]
        rows = {str(row["part"]): row for row in end.to_dict("records")}
        if not {"trained", "others"} <= rows.keys():
            return Findings()
        k, own = int(end["k"].iloc[0]), method_title(study, self.algorithm)
        there, elsewhere = (_moved(rows[part]) for part in ("trained", "others"))
        said = (
            f"{study.model(self.model).title}: {own} moves pass@{k} {there} on the strata that it "
            f"trains on, and {elsewhere} on the others."
        )
        return Findings([said])

    def table(self, display: Display) -> TableDocument:
        """A row for each moment: pass@1 and pass@k of each part, and the change over all."""
        frame = display.frame("by_step")
        k, there = int(frame["k"].max()), set(frame["part"])
        at: list[Any] = [*zip(frame["part"], frame["k"], strict=True)]
        columns: list[Column] = [
            (words[0].upper() + words[1:], f"pass@{one}", cell_of(share_cell, (part, one)))
            for part, words in PARTS.items()
            if part in there
            for one in (1, k)
        ]
        for one in (1, k):
            change = cell_of(points_cell, ("all", one), ends=CHANGE)
            columns.append(("All strata, change", f"pass@{one}", change))
        caption = (
            f"{display.heading}, {display.title(self.algorithm)} on "
            f"{display.titles[self.benchmark]} by steps of training: pass@1 and pass@{k} in "
            f"percent. 95 % intervals are over problems and {int(frame['runs'].max())} runs; the "
            "change from the policy before RL (step 0) is in points, paired by problem, not "
            "adjusted."
        )
        table = table_of("Steps", columns, [("", titled_by(frame.assign(at=at), "at", "step"))])
        return TableDocument(frame, table, caption)

    def figure(self, display: Display) -> Figure:
        """A panel for pass@1 and one for pass@k; a line with its band for each part."""
        from matplotlib.ticker import MaxNLocator

        from sage.rendering import style

        frame, styles = display.frame("by_step"), styles_in_order([*PARTS])
        figure, panels = style.grid_of_panels(2, (4.0, 3.0))
        sizes = frame.drop_duplicates("part").set_index("part")["problems"]
        parts = [part for part in PARTS if part in sizes.index]
        for axes, k in zip(panels, sorted(set(frame["k"])), strict=True):
            for part in parts:
                own = frame[(frame["k"] == k) & (frame["part"] == part)].sort_values("step")
                style.draw_band(axes, own, "step", styles[part].hex)
                axes.plot(own["step"], own["value"], **style.line_look(styles[part]))
            axes.set(title=f"pass@{k}", xlabel="steps of RL", ylabel=f"pass@{k} (%)")
            axes.set_ylim(bottom=0.0)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            style.in_percent(axes.yaxis)
        entries = [(f"{PARTS[part]} ({sizes[part]} problems)", styles[part]) for part in parts]
        style.legend_below(figure, entries)
        return figure


def _moved(row: Record) -> str:
    """``from 40.1 to 52.3 % (+12.2 points, +8.0 to +16.3)``."""
    limits = interval_of_points(row["change_low"], row["change_high"])
    change = ", ".join(filter(None, [f"{points(row['change'])} points", limits]))
    return f"from {percent(row['value'] - row['change'])} to {percent(row['value'])} % ({change})"
