"""Whether a world of routes is one in which the paper's question can be asked.

    python -m benchmarks.route_rules results/routes

Reads the base and the GRPO runs of every model of a finished study whose base was trained on walks
through mazes, and writes `benchmarks/route_rules.json`. No guided run is read: worlds are
chosen on base and GRPO alone, and verdicts are read from other problems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks import arguments
from benchmarks.branch_points import (
    FEW,
    THRESHOLD,
    K,
    chance,
    entropies,
    log_factors,
    of_log_q,
    samples_each,
)
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.grading.walks import allowed_moves, read_route
from sage.policies import load_policy, load_tokenizer
from sage.problems.record import Problem, read_problems
from sage.problems.route_sets import RoutesCorpus
from sage.problems.routes import (
    Trip,
    correct_routes,
    forks,
    named_cell,
    read_gold,
    turned_alike,
)
from sage.prompting import prompt_ids
from sage.results import Results, Run
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE

ROOT = Path(__file__).parents[1]
ROUTES_IN = 64
"""Samples of a problem among which distinct correct routes are counted."""


def read_samples(path: Path, trips: Mapping[str, Trip]) -> pd.DataFrame:
    """Graded samples with the route of each, None where there is none."""
    frame = read_frame(path, columns=["problem_id", "answer", "status", "token_ids"])
    return frame.assign(
        correct=frame["status"] == "correct",
        route=[
            read_route(answer, trips[name].side) if isinstance(answer, str) else None
            for name, answer in zip(frame["problem_id"], frame["answer"], strict=True)
        ],
    )


def moves_of(samples: pd.DataFrame, trips: Mapping[str, Trip]) -> dict[str, float]:
    """Percentages: moves that follow an edge, moves to a new cell, completions with a route."""
    kept, fresh, routes = [], [], samples["route"].dropna()
    for name, route in zip(samples.loc[routes.index, "problem_id"], routes, strict=True):
        kept += allowed_moves(trips[name], route)
        fresh += [cell not in route[:place] for place, cell in enumerate(route) if place]
    return {
        "moves_that_follow_an_edge_%": round(100 * float(np.mean(kept)), 2),
        "moves_to_a_new_cell_%": round(100 * float(np.mean(fresh)), 2),
        "completions_with_a_route_%": round(100 * len(routes) / len(samples), 2),
    }


def fork_places(trip: Trip, route: Sequence[int], texts: Sequence[str]) -> list[int] | None:
    """Places of the tokens that are drawn at a fork: each behind that of the fork's cell.

    `texts` are the completion's tokens. None if the route's cells are not one token each.
    """
    cells = [i for i, text in enumerate(texts) if named_cell(text.strip(), trip.side) is not None]
    if [named_cell(texts[i].strip(), trip.side) for i in cells] != list(route):
        return None
    return [cells[i] + 1 for i in forks(trip, route) if cells[i] + 1 < len(texts)]


def with_log_q(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    samples: pd.DataFrame,
    problems: Mapping[str, Problem],
    trips: Mapping[str, Trip],
) -> pd.DataFrame:
    """`samples` with log q of the completion, its part at forks, and entropies there and elsewhere.

    Completions without a route, or with a cell that is not one token, are left out.
    """
    texts = {i: tokenizer.decode([i]) for i in range(len(tokenizer))}
    prompts = {name: prompt_ids(tokenizer, each.problem) for name, each in problems.items()}
    samples = samples[samples["route"].notna()]
    completions = [list(ids) for ids in samples["token_ids"]]
    values = entropies(model, [prompts[name] for name in samples["problem_id"]], completions)
    rows = []
    for row, ids, entropy in zip(samples.itertuples(), completions, values, strict=True):
        places = fork_places(trips[row.problem_id], row.route, [texts[i] for i in ids])
        if places is None:
            continue
        factors, at = log_factors(entropy), np.isin(np.arange(len(ids)), places)
        rows.append(
            {
                "problem_id": row.problem_id,
                "correct": row.correct,
                "log_q": float(factors.sum()),
                "log_q_at_forks": float(factors[at].sum()),
                "at_forks": entropy[at],
                "elsewhere": entropy[~at],
            }
        )
    return pd.DataFrame(rows)


def of_branches(few: pd.DataFrame, kl_coefficient: float) -> dict[str, float]:
    """Entropies and log q by kind of token; the dose is in units of the advantages' deviation."""
    at_forks, elsewhere = np.concatenate(few["at_forks"]), np.concatenate(few["elsewhere"])
    total = few["log_q"].sum()
    return {
        "entropy_at_forks": round(float(at_forks.mean()), 3),
        "entropy_elsewhere": round(float(elsewhere.mean()), 3),
        "forks_above_threshold_%": round(100 * float((at_forks > THRESHOLD).mean()), 1),
        "others_above_threshold_%": round(100 * float((elsewhere > THRESHOLD).mean()), 1),
        "log_q_at_forks_%": round(100 * float(few["log_q_at_forks"].sum() / total), 2),
        **of_log_q(few, kl_coefficient),
    }


def pass_at(samples: pd.DataFrame, levels: Mapping[str, str], k: int) -> dict[str, float]:
    """Mean pass@k of all problems and of those of each level, in percent."""
    correct = samples.groupby("problem_id")["correct"].sum()
    table = pass_at_k(samples_each(samples), correct.to_numpy(), np.array([k]))[:, 0]
    values = pd.Series(100 * table, correct.index)
    means = {"all": values.mean(), **values.groupby(values.index.map(levels)).mean()}
    return {name: round(float(value), 1) for name, value in means.items()}


def distinct_routes(samples: pd.DataFrame) -> float:
    """Mean number of different correct routes among the first ROUTES_IN samples of a problem."""
    first = samples.groupby("problem_id").head(ROUTES_IN)
    right = first[first["correct"]]
    counts = right["route"].map(tuple).groupby(right["problem_id"]).nunique()
    return round(float(counts.sum() / samples["problem_id"].nunique()), 2)


def of_samples(
    samples: pd.DataFrame,
    few: pd.DataFrame,
    problems: Mapping[str, Problem],
    trips: Mapping[str, Trip],
    kl_coefficient: float,
) -> dict[str, Any]:
    """What is measured of the base and of each trained policy alike."""
    levels = {name: problem.level for name, problem in problems.items()}
    solved = samples.groupby("problem_id")["correct"].mean()
    return {
        "chance_at_k_%": round(100 * chance(samples, list(problems.values()), K), 3),
        "pass@1": pass_at(samples, levels, 1),
        "pass@k": pass_at(samples, levels, K),
        "distinct_correct_routes": distinct_routes(samples),
        "problems_solved_in_at_most_1_%_of_samples": int((solved <= 0.01).sum()),
        **moves_of(samples, trips),
        **of_branches(few, kl_coefficient),
    }


def rules_of(
    results: Results, model: str, benchmark: str, runs: Sequence[Run], kl_coefficient: float
) -> dict[str, Any]:
    """All that is measured of a model: its base, its GRPO runs, and their difference."""
    problems = {p.problem_id: p for p in read_problems(results.problems(benchmark))}
    trips = {name: read_gold(p.answer) for name, p in problems.items()}
    tokenizer = load_tokenizer(results.rl_start(model))
    measured: dict[str, Any] = {
        "problems": len(problems),
        "correct_routes_median": float(
            np.median([sum(1 for _ in correct_routes(trip)) for trip in trips.values()])
        ),
    }
    trained = []
    for run in runs:
        samples = read_samples(results.samples(run, benchmark), trips)
        folder = None if run.algorithm == BASE else results.policy(run)
        policy = load_policy(results.rl_start(model), folder, torch.float32, "cpu").eval()
        first = samples.groupby("problem_id").head(FEW)
        few = with_log_q(policy, tokenizer, first, problems, trips)
        row = of_samples(samples, few, problems, trips, kl_coefficient)
        if run.algorithm == BASE:
            measured["base"] = row
        else:
            trained.append({"seed": run.seed, **row})
    measured["grpo"] = trained
    base = measured["base"]
    measured["grpo_minus_base"] = {
        name: differences([row[name] for row in trained], base[name])
        for name in ("pass@1", "pass@k", "distinct_correct_routes")
    }
    return measured


def differences(trained: Sequence[Any], base: Any) -> Any:
    """Of every run, what it has more than the base; by level where there are levels."""
    if isinstance(base, dict):
        return {level: differences([row[level] for row in trained], base[level]) for level in base}
    return [round(row - base, 2) for row in trained]


def shared_mazes(results: Results, names: Sequence[str]) -> int:
    """How many mazes, up to turning and mirroring, stand in more than one problem set."""
    seen = [
        {turned_alike(read_gold(p.answer)) for p in read_problems(results.problems(name))}
        for name in names
        if results.problems(name).exists()
    ]
    return sum(len(set.union(set(), *seen[:i]) & each) for i, each in enumerate(seen))


def verdicts(measured: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each rule is met, from what `rules_of` measured."""
    base, trained = measured["base"], measured["grpo"]
    return {
        "chance at most 2 %": max(row["chance_at_k_%"] for row in [base, *trained]) <= 2,
        "moves of the base that follow an edge at least 98 %": (
            base["moves_that_follow_an_edge_%"] >= 98
        ),
        "pass@k of the base from 50 to 75 %": 50 <= base["pass@k"]["all"] <= 75,
        "forks above 1.2 nats in the base": base["entropy_at_forks"] > THRESHOLD,
        "forks above 0.6 after GRPO": min((row["entropy_at_forks"] for row in trained), default=0.0)
        > 0.6,
        "problems solved in at most 1 % of samples": (
            base["problems_solved_in_at_most_1_%_of_samples"] > 0
        ),
        "several correct routes": measured["correct_routes_median"] >= 2,
    }


def main(folder: Path) -> None:
    """Measure every model of the study in `folder`; print and write what was measured."""
    study = load_study(folder.name, ROOT / "config").study
    results = Results(folder)
    sets = [name for name, each in study.problems.items() if each.source == "routes"]
    report: dict[str, Any] = {
        "k": K,
        "distinct_routes_in": ROUTES_IN,
        "mazes_in_several_sets": shared_mazes(results, sets),
        "models": {},
    }
    for name, model in study.models.items():
        if not isinstance(getattr(model.base, "corpus", None), RoutesCorpus):
            continue
        for benchmark in model.benchmarks:
            runs = [Run(name, BASE, 0), *(Run(name, "grpo", seed) for seed in study.seeds)]
            kept = [run for run in runs if results.samples(run, benchmark).exists()]
            measured = rules_of(results, name, benchmark, kept, model.rl.kl_coefficient)
            measured["rules"] = verdicts(measured)
            report["models"][f"{name} on {benchmark}"] = measured
    print(json.dumps(report, indent=1))
    text = json.dumps(report, indent=1) + "\n"
    write_text_atomic(ROOT / "benchmarks/route_rules.json", text)


if __name__ == "__main__":
    main(arguments.folder(__doc__))
