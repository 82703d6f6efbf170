"""Signs in a history that training went wrong: pure functions over its rows.

The limits are settings (`sage.study.watch.Watch`). What a row does not hold is no sign, so
histories of SFT, with a loss and a gradient norm alone, are judged by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sage.study.watch import Sign, Watch

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A sign and the steps that show it, `first` to `last`; `text` says it to people."""

    sign: Sign
    first: int
    last: int
    text: str

    def plain(self) -> dict[str, Any]:
        """As JSON for a manifest."""
        return {"sign": self.sign, "first": self.first, "last": self.last, "text": self.text}


@dataclass(frozen=True)
class _Test:
    """Whether a window of rows shows a sign; `window` is how many rows it takes."""

    sign: Sign
    window: int
    holds: Callable[[Sequence[Row]], bool]
    text: str


def findings(rows: Sequence[Row], watch: Watch) -> list[Finding]:
    """Every sign in `rows`, a row per optimizer step, by its first step.

    Steps that show a sign without a gap are one finding: from the first row of the first window
    that shows it to the last row of the last.
    """
    episodes = [finding for test in _tests(watch) for finding in _episodes(rows, test)]
    return sorted(episodes, key=lambda finding: (finding.first, finding.sign))


def current(rows: Sequence[Row], watch: Watch) -> list[Finding]:
    """The signs that the last step shows; `first` is the first step of that window."""
    present = []
    for test in _tests(watch):
        start = len(rows) - test.window
        if start >= 0 and test.holds(rows[start:]):
            present.append(Finding(test.sign, _first(rows, start), _step(rows[-1]), test.text))
    return present


def _episodes(rows: Sequence[Row], test: _Test) -> list[Finding]:
    episodes: list[Finding] = []
    for start in range(len(rows) - test.window + 1):
        window = rows[start : start + test.window]
        if not test.holds(window):
            continue
        first, last = _first(rows, start), _step(window[-1])
        if episodes and first <= episodes[-1].last + 1:
            first = episodes.pop().first
        episodes.append(Finding(test.sign, first, last, test.text))
    return episodes


def _tests(watch: Watch) -> list[_Test]:
    def mean(key: str, holds: Callable[[float], bool]) -> Callable[[Sequence[Row]], bool]:
        def test(window: Sequence[Row]) -> bool:
            values = [float(row[key]) for row in window if key in row]
            return len(values) == len(window) and holds(math.fsum(values) / len(values))

        return test

    n = watch.patience
    return [
        _Test("not_finite", 1, _not_finite, "the loss or its gradient is not a finite number"),
        _Test(
            "large_loss",
            1,
            lambda window: watch.largest_loss < abs(window[0].get("loss") or 0.0) < math.inf,
            f"the loss is larger than {watch.largest_loss:g}",
        ),
        _Test(
            "sampler_gap",
            1,
            mean("sampler_gap_mean", lambda nats: not nats <= watch.largest_gap),
            f"the sampler's and the trainer's log-probs differ by more than {watch.largest_gap:g} "
            "nats per token, so the rollouts are of another policy",
        ),
        _Test("zero_reward", n, mean("reward", lambda share: share == 0), "no answer is correct"),
        _Test(
            "zero_advantages",
            n,
            mean("zero_advantages", lambda share: share >= 1),
            "every advantage is 0, so rewards train nothing",
        ),
        _Test(
            "truncated",
            n,
            mean("truncated_share", lambda share: share >= watch.truncated_share),
            f"at least {watch.truncated_share:.0%} of the completions are truncated",
        ),
        _Test(
            "low_entropy",
            n,
            mean("entropy", lambda nats: nats < watch.lowest_entropy),
            f"the entropy per token is below {watch.lowest_entropy:g} nats",
        ),
        _Test(
            "grader_timeouts",
            n,
            mean("grader_timeouts", lambda share: share > watch.timeout_share),
            f"the grader gave no verdict in time on more than {watch.timeout_share:.0%} of the "
            "answers",
        ),
        _Test(
            "runaway",
            2 * n,
            lambda window: _runs_away(window, watch),
            "the reward falls while log q or the truncated share rises: the guide may feed itself",
        ),
    ]


def _runs_away(window: Sequence[Row], watch: Watch) -> bool:
    """Whether the second half of `window`, of a run with a guide, shows the sign."""

    def rise(key: str) -> float:
        values = [float(row.get(key, math.nan)) for row in window]
        half = len(values) // 2
        return (math.fsum(values[half:]) - math.fsum(values[:half])) / half

    grows = rise("log_q") >= watch.log_q_rise
    longer = "log_q" in window[0] and rise("truncated_share") >= watch.truncated_rise
    return (grows or longer) and rise("reward") <= -watch.reward_fall


def _not_finite(window: Sequence[Row]) -> bool:
    values = [window[0].get(key) for key in ("loss", "grad_norm")]
    return any(value is not None and not math.isfinite(value) for value in values)


def _first(rows: Sequence[Row], start: int) -> int:
    """The first step that row `start` tells of: a row can be logged for several steps."""
    return _step(rows[start - 1]) + 1 if start else 1


def _step(row: Row) -> int:
    return int(row["step"])
