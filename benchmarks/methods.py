"""What a step of each method costs over one of grpo: whole steps, with the drawing, in pairs.

For every row of `config/studies/rivals.yaml` a trainer of that row and one of grpo step in turn
(A B B A) on the study's model, problems and settings, from its parent, which is made first. The
learning rate is 0: so both draw the same completions of the same prompts, but for what a planner
draws further, and the ratio is that of the method and not of what the policies have become. grpo
has a KL term; methods without one save the reference's forward pass.

Counted is the processor time of this process, on one core; other programs disturb it least. The
interval is that of the sign test over pairs. Answers that need Math-Verify are worked out in
another process, which all trainers share. `python -m benchmarks.methods` prints the table of
docs/method.md from the kept results.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.calibration_page import table_of
from benchmarks.paired import Comparison, overhead
from benchmarks.turns import pairs_in_turn, still_trainer
from sage.exhibits import load_study
from sage.fetched_bases import kept_base
from sage.problems.record import Problem
from sage.runtime.manifest import Manifest
from sage.study import RL, ResolvedStudy, ScratchBase
from sage.tasks import Grader, draw_problems
from sage.training.drawing import DRAWN
from sage.training.examples import find_solutions
from sage.training.sft import fine_tune
from sage.training.trainer import SageTrainer

ROOT = Path(__file__).resolve().parents[1]
STEPS, WARM_UP = 14, 2
FIRST = "grpo"
LIMIT = 1.6
"""The most that a step may cost over one of grpo, by completion token drawn."""


@dataclass(frozen=True)
class StepCost(Comparison):
    """The time of a method's step over that of grpo; `tokens` and `other_tokens` of a step."""

    row: str = ""
    tokens: float = 0.0
    other_tokens: float = 0.0


@dataclass(frozen=True)
class World:
    """What all rows are trained on, and the folder for what they write."""

    study: ResolvedStudy
    folder: Path
    parent: Path
    problems: Sequence[Problem]
    settings: RL
    grader: Grader


def comparisons(rows: Sequence[str] | None = None, steps: int = STEPS) -> Iterator[StepCost]:
    """Seconds of a step of each of `rows`, by default all of the study, over one of grpo."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        grader = Grader()
        with tempfile.TemporaryDirectory() as folder:
            world = world_in(Path(folder), grader, steps)
            make_parent(world)
            for row in rows or world.study.model("sums").algorithms:
                if row != FIRST:
                    yield step_cost(row, world)
                gc.collect()
    finally:
        torch.set_num_threads(threads)


def world_in(folder: Path, grader: Grader, steps: int) -> World:
    """The study, with its problems, for runs of `steps`; its parent is still to be made."""
    study = load_study("rivals", ROOT / "config")
    settings = study.model("sums").rl.model_copy(update={"steps": steps})
    entry = study.study.problems[settings.problems]
    problems = draw_problems(settings.problems, entry.model_dump())
    return World(study, folder, folder / "parent", problems, settings, grader)


def make_parent(world: World) -> None:
    """Fine-tune the base that comes with the repository: the policy that all start from."""
    model = world.study.model("sums")
    base, sft = model.base, model.sft
    assert isinstance(base, ScratchBase)
    assert sft is not None
    corpus = (sft.corpus or base.corpus).model_dump()
    solutions = find_solutions(sft.data, sft.examples, sft.seed, corpus)
    kept, scratch = kept_base(base, ROOT / "config/bases"), world.folder / "sft"
    manifest = Manifest({}, threads=1, started=time.time())
    fine_tune(kept, solutions, sft, "cpu", scratch, world.parent, manifest)


def step_cost(row: str, world: World) -> StepCost:
    """Trains `row` and grpo in turn; the pairs behind the warm-up are compared."""
    parts = world.parent, world.problems, world.settings
    pair = [
        still_trainer(
            SageTrainer, *parts, world.study.algorithms[name], world.folder / name, world.grader
        )
        for name in (row, FIRST)
    ]
    times = pairs_in_turn(pair, world.settings.steps, WARM_UP, time.process_time)
    tokens, other = (tokens_per_step(trainer) for trainer in pair)
    name = f"a step of {row} over one of {FIRST}"
    found = overhead(name, times, LIMIT * max(1.0, tokens / other))
    return StepCost(**vars(found), row=row, tokens=tokens, other_tokens=other)


def tokens_per_step(trainer: SageTrainer) -> float:
    """Completion tokens drawn in a step behind the warm-up, on average."""
    drawn = [entry[DRAWN] for entry in trainer.state.log_history if DRAWN in entry]
    more = [after - before for before, after in pairwise(drawn[WARM_UP - 1 :])]
    return sum(more) / len(more)


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """The kept comparisons as a Markdown table, in the order of the study."""
    body = []
    for record in records:
        drawn = f"{record['tokens'] / record['other_tokens']:.2f}"
        interval = f"{record['low']:.2f}–{record['high']:.2f}"
        body.append([f"`{record['row']}`", f"{record['ratio']:.2f}", interval, drawn])
    return table_of(["method", "time of a step", "95 % interval", "tokens drawn"], body)


if __name__ == "__main__":
    results = json.loads((ROOT / "benchmarks/results.json").read_text(encoding="utf-8"))
    print(table(results["methods"]["comparisons"]))
