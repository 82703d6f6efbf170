"""Signs in a history that training went wrong: pure functions over its rows.

`sage.study.watch.Watch` explains the signs and their limits. What a row does not hold is no sign,
so histories of SFT, with a loss and a gradient norm alone, are judged by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sage.study.watch import Sign, Watch

LARGEST_LOSS = 100.0
LARGEST_GAP = 0.1
LOWEST_ENTROPY = 0.001
MOST_TIMEOUTS = 0.1
REWARD_FALL, LOG_Q_RISE, TRUNCATED_RISE = 0.05, 0.5, 0.1

Row = Mapping[str, Any]
Window = Sequence[Row]
Test = tuple[Sign, int, Callable[[Window], bool], str]
"""A sign, how many rows a window takes, whether a window shows it, and the sign in words."""


@dataclass(frozen=True)
class Finding:
    """A sign and the steps that show it, `first` to `last`; `text` says it to people."""

    sign: Sign
    first: int
    last: int
    text: str

    def plain(self) -> dict[str, Any]:
        """As JSON for a manifest."""
        return asdict(self)


def findings(rows: Window, watch: Watch) -> list[Finding]:
    """Every sign in `rows`, a row per optimizer step, by its first step.

    Windows that show a sign without a gap are one finding.
    """
    episodes: list[Finding] = []
    for test in _tests(watch):
        for start in range(len(rows) - test[1] + 1):
            for now in _in_window(rows, start, test):
                before = episodes[-1] if episodes else None
                if before and before.sign == now.sign and now.first <= before.last + 1:
                    now = Finding(now.sign, episodes.pop().first, now.last, now.text)
                episodes.append(now)
    return sorted(episodes, key=lambda finding: (finding.first, finding.sign))


def current(rows: Window, watch: Watch) -> list[Finding]:
    """The signs that the last step shows; `first` is the first step of that window."""
    return [now for test in _tests(watch) for now in _in_window(rows, len(rows) - test[1], test)]


def _in_window(rows: Window, start: int, test: Test) -> Iterator[Finding]:
    """The sign that the window from row `start` shows, if it does; a row can tell of many steps."""
    sign, size, holds, text = test
    if start >= 0 and holds(window := rows[start : start + size]):
        first = int(rows[start - 1]["step"]) + 1 if start else 1
        yield Finding(sign, first, int(window[-1]["step"]), text)


def _tests(watch: Watch) -> list[Test]:
    def mean(key: str, holds: Callable[[float], bool]) -> Callable[[Window], bool]:
        def test(window: Window) -> bool:
            values = [float(row[key]) for row in window if row.get(key) is not None]
            return len(values) == len(window) and holds(math.fsum(values) / len(values))

        return test

    def large(window: Window) -> bool:
        return LARGEST_LOSS < abs(window[0].get("loss") or 0.0) < math.inf

    n = watch.patience
    return [
        ("not_finite", 1, _not_finite, "the loss or its gradient is not a finite number"),
        ("large_loss", 1, large, f"the loss is larger than {LARGEST_LOSS:g}"),
        (
            "sampler_gap",
            1,
            mean("sampler_gap_mean", lambda nats: not nats <= LARGEST_GAP),
            "the sampler's and the trainer's log-probs differ by more than "
            f"{LARGEST_GAP:g} nats per token, so the rollouts are of another policy",
        ),
        ("zero_reward", n, mean("reward", lambda mean: mean == 0), "no answer is correct"),
        (
            "zero_advantages",
            n,
            mean("zero_advantages", lambda mean: mean >= 1),
            "every advantage is 0, so rewards train nothing",
        ),
        (
            "truncated",
            n,
            mean("truncated_share", lambda mean: mean >= 1),
            "all completions are truncated",
        ),
        (
            "low_entropy",
            n,
            mean("entropy", lambda nats: nats < LOWEST_ENTROPY),
            f"the entropy per token is below {LOWEST_ENTROPY:g} nats",
        ),
        (
            "grader_timeouts",
            n,
            mean("grader_timeouts", lambda mean: mean > MOST_TIMEOUTS),
            f"the grader gave no verdict in time on more than {MOST_TIMEOUTS:.0%} of the answers",
        ),
        (
            "runaway",
            2 * n,
            _runs_away,
            "the reward falls while log q or the truncated share rises: the guide may feed itself",
        ),
    ]


def _runs_away(window: Window) -> bool:
    """Whether the second half of `window`, of a run with a guide, shows the sign."""

    def rise(key: str) -> float:
        values = [math.nan if row.get(key) is None else float(row[key]) for row in window]
        half = len(values) // 2
        return (math.fsum(values[half:]) - math.fsum(values[:half])) / half

    grows = rise("log_q") >= LOG_Q_RISE
    longer = "log_q" in window[0] and rise("truncated_share") >= TRUNCATED_RISE
    return (grows or longer) and rise("reward") <= -REWARD_FALL


def _not_finite(window: Window) -> bool:
    values = [window[0].get(key) for key in ("loss", "grad_norm")]
    return any(value is not None and not math.isfinite(value) for value in values)
