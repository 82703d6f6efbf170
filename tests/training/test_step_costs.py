"""What a step of each method costs: trainers in turn, the benchmark's world, the kept table."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from trainers import write_parent

from benchmarks import methods
from benchmarks.__main__ import keep
from benchmarks.paired import Comparison, overhead
from benchmarks.turns import pairs_in_turn
from sage.exhibits import load_study
from sage.tasks import Grader

RESULTS = ROOT / "benchmarks/results.json"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The last run of the benchmark."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))["methods"]


class Stepping:
    """A trainer of `steps` steps that only says when it steps; step `fails_at` raises."""

    def __init__(self, name: str, said: list[str], steps: int, fails_at: int = -1) -> None:
        self.name, self.said, self.steps, self.fails_at = name, said, steps, fails_at
        self.callbacks: list[Any] = []

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def train(self) -> None:
        for step in range(self.steps):
            for callback in self.callbacks:
                callback.on_step_begin()
            if step == self.fails_at:
                raise ArithmeticError("the loss is not finite")
            self.said.append(self.name)
            for callback in self.callbacks:
                callback.on_step_end()


def test_two_trainers_step_in_the_order_a_b_b_a() -> None:
    """The clock says 0, 1, 2, ... so that each step takes one second."""
    said: list[str] = []
    ticks = count()
    pair = Stepping("A", said, 5), Stepping("B", said, 5)
    times = pairs_in_turn(pair, 5, 2, lambda: float(next(ticks)))
    assert "".join(said) == "ABBAABBAAB"
    assert times == [(1.0, 1.0)] * 3


@pytest.mark.parametrize("failing", [0, 1])
def test_a_trainer_that_fails_does_not_leave_the_other_waiting(failing: int) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        pair = [Stepping("AB"[i], [], 5, fails_at=2 if i == failing else -1) for i in (0, 1)]
        try:
            pairs_in_turn(pair, 5, 0)
        except ArithmeticError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert len(raised) == 1


def test_an_overhead_has_the_interval_of_the_sign_test_from_six_pairs_on() -> None:
    """All of six ratios lie above the true median with a probability of (1/2)^6."""
    pairs = [(float(n), 2.0) for n in (1, 2, 3, 4, 5, 6)]
    found = overhead("six", pairs, 2)
    assert (found.ratio, found.low, found.high) == (1.75, 0.5, 3.0)
    assert overhead("five", pairs[:5], 2).low is None


def test_a_benchmark_replaces_its_own_results_alone(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for name, ratio in (("one", 1.0), ("two", 2.0), ("one", 3.0)):
        keep(name, [Comparison("named", ratio, "at most 4", 1.0, 1.0, 5)], file)
    kept = json.loads(file.read_text())
    ratios = {name: part["comparisons"][0]["ratio"] for name, part in kept.items()}
    assert ratios == {"one": 3.0, "two": 2.0}


@pytest.mark.slow
@pytest.mark.timeout(2000)
def test_rows_draw_the_same_completions_but_for_what_a_planner_adds(tmp_path: Path) -> None:
    """A policy that knows nothing fails on every prompt: DARS then draws 32 of each, not 8."""
    grader = Grader()
    world = methods.world_in(tmp_path, grader, methods.WARM_UP + 1)
    write_parent(world.parent, world.problems)
    few = {"prompts_per_step": 2}
    world = replace(world, settings=world.settings.model_copy(update=few))
    same = methods.step_cost("grpo_branch", world)
    more = methods.step_cost("dars", world)
    assert same.tokens == same.other_tokens > 0
    assert same.rounds == 1
    assert more.other_tokens == same.other_tokens
    assert more.tokens == pytest.approx(4 * more.other_tokens, rel=0.1)
    assert more.ratio > 1.5


def test_every_row_of_the_study_is_kept_within_its_limit(kept: dict[str, Any]) -> None:
    rows = load_study("rivals", ROOT / "config").model("sums").algorithms
    found = {record["row"]: record for record in kept["comparisons"]}
    assert list(found) == [row for row in rows if row in found]
    assert all(record["kept"] for record in found.values())
    assert all(record["low"] <= record["ratio"] <= record["high"] for record in found.values())


def test_the_page_has_the_kept_table(kept: dict[str, Any]) -> None:
    text = (ROOT / "docs/method.md").read_text(encoding="utf-8")
    assert methods.table(kept["comparisons"]) in text
    assert f"median of {kept['comparisons'][0]['rounds']} pairs" in text
    assert kept["hardware"]["cpu"] in text
