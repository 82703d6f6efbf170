"""Dose and alignment of guides on the checkpoint from which RL starts, before any training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pandas as pd

from sage.evaluation.histories import LEAST_DOSE
from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import BASE, Name, Positive
from sage.rendering.numbers import number_text, percent
from sage.rendering.table import Column, TableDocument, points_cell
from sage.study import ResolvedStudy, StudyError
from sage.study.choices import Guide
from sage.study.exhibit import ExhibitOfRows

LEAST_MIXED = 10
"""Problems with right and wrong completions below which nothing is said of a direction."""

LEAST_EFFECT = 0.005
"""beta a_k, in shares, below which a guide leaves coverage as it is."""


class GuideDoseTable(ExhibitOfRows, Kind):
    """What each guide would do to the policy from which RL starts.

    Completions of the policy before RL, drawn with RL's prompt, temperature and limits. Dose: the
    standard deviation of β log q within a prompt in those of the advantages, in the reward and in
    the loss. Alignment: the derivative of pass@k along log q, times β, in points.
    """

    kind: Literal["guide_dose"]
    benchmark: Name
    """the problem set; not that of training, on which alignment says less"""
    k: Positive | None = None
    """alignment is that with pass@k; `null` takes `evaluation.primary_k` [samples]"""
    problems: Positive = 60
    """how many, at even distances in the problem set [problems]"""
    samples: Positive = 32
    """of each problem, more than k [completions]"""

    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    of_policies: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("base", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.guide_dose",)

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """Guides and KL coefficients by method, and how RL samples. Raises StudyError."""
        rl, evaluation = study.model(self.model).rl, study.evaluation(self.model)
        rows = [row for row in self.methods_of(study) if row != BASE]
        guides = {row: guide for row in rows if (guide := study.algorithms[row].guide)}
        k = self.k or evaluation.primary_k
        fault = ""
        if rl is None or not guides:
            fault = f"no method of the model {self.model} has a guide; name one in `algorithms`"
        elif k >= self.samples:
            fault = f"samples {self.samples} must be above k = {k}"
        if fault or rl is None:
            raise StudyError(f"exhibits: {name}: {fault}")
        drawn = {"samples": self.samples, "seeds": evaluation.seeds[:1]}
        return {
            "evaluation": {**evaluation.draws(), **drawn, "sampling": rl.sampling.model_dump()},
            "guides": {row: guide.model_dump() for row, guide in guides.items()},
            "betas": {row: study.kl_coefficient(self.model, row) for row in guides},
            "k": k,
            "bootstrap": evaluation.bootstrap,
        }

    def measure(self, job: Measuring) -> None:
        """Write `doses`, a row for each method with a guide (`sage.evaluation.guide_dose`)."""
        from sage.evaluation.guide_dose import measured, read_completions, spaced
        from sage.runtime.tables import read_frame

        sampler = job.snapshot_sampler(self.model, self.benchmark)
        sampler = replace(sampler, problems=spaced(sampler.problems, self.problems))
        samples = read_frame(sampler.samples(None, BASE, 0, 0))
        temperature = sampler.settings.sampling.temperature
        where = (job.device, job.shards / "signals")
        read = read_completions(sampler.base, sampler.problems, samples, temperature, *where)
        settings, rows = job.settings, []
        for name, guide in settings["guides"].items():
            more = (settings["betas"][name], settings["k"], settings["bootstrap"])
            found = measured(read, Guide.model_validate(guide), *more)
            rows.append({"algorithm": name, **found.row})
        job.write(doses=pd.DataFrame(rows))
        job.write_manifest(int(samples["n_tokens"].sum()))

    def table(self, display: Display) -> TableDocument:
        frame = display.ordered(display.frame("doses"))
        first = frame.iloc[0]
        said = " ".join(f"{row['title']}: {sentence_of(row)}" for row in frame.to_dict("records"))
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: {first['problems']} problems, "
            f"{first['samples']} completions of each by the policy before RL, as RL draws them. "
            f"{DEFINITIONS} {said}"
        )
        return display.document(frame, columns_of(int(first["k"])), caption)


DEFINITIONS = (
    "Dose: β times the standard deviation of log q within a prompt, in those of GRPO's advantages "
    "(reward), and that of q among the tokens of a state (loss), where it is 0 for a guide that "
    "looks at the state alone. Centred: the dose in the reward with centred advantages, as "
    "k1_reward has them. Alignment: β times the derivative of pass@k along log q, in points, with "
    "95 % intervals over problems; it predicts sign and order, not size."
)
"""What the columns of the table are."""


def columns_of(k: int) -> list[Column]:
    """The columns of a table of doses."""

    def aligned(name: str) -> Any:
        ends = (name, f"{name}_low", f"{name}_high")
        return lambda row: points_cell(*(row["kl_coefficient"] * row[end] for end in ends))

    def number(name: str, form: str = ".2g") -> Any:
        return lambda row: number_text(row[name], form)

    return [
        ("Dose", "reward", number("dose_reward")),
        ("Dose", "centred", number("dose_centred")),
        ("Dose", "loss", number("dose_loss")),
        ("SD of log q", "as it is", number("spread", ".3g")),
        ("SD of log q", "equal length", number("spread_equal_length", ".3g")),
        ("SD of log q", "without noise", number("spread_without_noise", ".3g")),
        ("Alignment", "k = 1", aligned("a_1")),
        ("Alignment", f"k = {k}", aligned("a_k")),
        ("Alignment", f"k = {k}, equal length", aligned("a_k_equal_length")),
        ("Tokens", "branches (%)", lambda row: percent(row["branches"])),
        ("Tokens", "at the clamps (%)", lambda row: percent(row["clamped"])),
        ("Tokens", "entropy", number("entropy")),
        ("", "r(log q, length)", number("length_correlation")),
    ]


def sentence_of(row: Mapping[Any, Any]) -> str:
    """What a guide would do, in one sentence, from a row of `measured`."""
    beta, dose = row["kl_coefficient"], row["dose_reward"]
    if row["spread"] < 1e-9:
        return "the guide changes nothing here: log q is the same for all completions of a prompt."
    weak, at = dose < LEAST_DOSE, f"At β = {beta:g} in the reward the guide"
    if weak:
        said = (
            f"{at} is too weak to be seen (dose {dose:.2g}); it would need β ≥ "
            f"{_rounded_up(beta * LEAST_DOSE / dose):g}"
        )
    else:
        said = f"{at} is strong enough to be seen (dose {dose:.2g})"
    said += f", {'where' if weak else 'and'} {_direction(row, weak)}"
    correlation = row["length_correlation"]
    if correlation**2 >= 0.5:
        said += f"; it mostly rewards {'length' if correlation > 0 else 'shortness'}"
    return f"{said}."


def expected(rows: Sequence[Mapping[Any, Any]], beta: float, k: int, dose: float) -> str:
    """What a guide is expected to do, in one sentence, from rows of `transfer` and its dose.

    Helps and harms need an interval without 0 and a transfer beyond that of placebos, z of 2.
    """
    by_part = {row["part"]: row for row in rows}
    whole = by_part["all"]
    if dose < LEAST_DOSE:
        said = f"too weak to be seen (dose {dose:.2g})"
    elif not (whole["transfer_low"] > 0 or whole["transfer_high"] < 0) or abs(whole["z"]) < 2:
        said = "what the guide does cannot be told from these completions"
    else:
        said = f"the guide {'helps' if whole['transfer'] > 0 else 'harms'}"
        if not math.isclose(whole["reward"], 0):
            times = abs(beta * whole["transfer"] / whole["reward"])
            said += f", {times:.2g} times what the reward's own gradient moves"
    signs = [
        f"{part} strata {'up' if row['transfer'] > 0 else 'down'}"
        for part, row in by_part.items()
        if part != "all"
    ]
    parts = f" ({', '.join(signs)})" if signs else ""
    return f"Expected of RL with k1_reward, for pass@{k} of the evaluation problems: {said}{parts}."


def _direction(row: Mapping[Any, Any], weak: bool) -> str:
    scale = row["kl_coefficient"] * (LEAST_DOSE / row["dose_reward"] if weak else 1.0)
    low, high = scale * row["a_k_low"], scale * row["a_k_high"]
    what = f"pass@{row['k']}"
    if row["mixed"] < LEAST_MIXED or math.isnan(low + high):
        return (
            f"what it does to {what} is open: {row['mixed'] or 'none'} of the {row['problems']} "
            "problems have both right and wrong completions, too few"
        )
    if low > 0:
        return f"it would raise {what} here"
    if high < 0:
        return f"it pushes against {what} here"
    if max(-low, high) < LEAST_EFFECT:
        return f"it leaves {what} as it is"
    return f"it may push {what} either way: {needed(row)}"


def needed(row: Mapping[Any, Any]) -> str:
    """How many problems would decide, where these did not."""
    value, half = abs(row["a_k"]), (row["a_k_high"] - row["a_k_low"]) / 2
    count = math.ceil(row["problems"] * (half / value) ** 2) if value > 0 else math.inf
    some = f"{row['problems']} problems × {row['samples']} samples do not decide"
    if count > 100 * row["problems"]:
        return f"{some}, nor would a hundred times as many"
    return f"{some}; about {max(count, row['problems'] + 1)} problems would"


def _rounded_up(value: float) -> float:
    """To two digits, up."""
    unit: float = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")
