"""Whether a world of sums is one in which the paper's question can be asked.

    python -m benchmarks.sums_rules results/sums

Reads the base and the GRPO runs of every model of a study whose base was trained on sheets of
sums, draws completions under each strategy, and writes `benchmarks/sums_rules.json`, where models
of other studies stay. No guided run is read: worlds are chosen on base and GRPO alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks import arguments
from benchmarks.branch_points import FEW, THRESHOLD, K, chance, entropies, log_factors, of_log_q
from sage.evaluation.intervals import interval_of_difference
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.policies import load_policy, load_tokenizer
from sage.problems.record import Problem, read_problems
from sage.problems.sum_sets import SumsCorpus, chooses
from sage.problems.sums import LABELS, MARKS, STRATEGIES, Sheet, read_sheet
from sage.problems.sums_working import check_working
from sage.prompting import WORK_CLOSE, prompt_ids
from sage.results import Results, Run
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import BASE, Model, Sampling

ROOT = Path(__file__).parents[1]
CHOICES = range(4, 9)
"""Pairs to choose from at a branch point: a five has four, a nine eight; log 4 is above 1.2."""

DRAWS = 32
"""Completions of each problem under each strategy."""

BOOTSTRAP = 10_000
"""Draws of an interval over problems and runs."""

RARE = (3e-4, 3e-3)
"""Success rates about 10⁻³."""


@dataclass(frozen=True)
class Policy:
    """A policy with its tokenizer, and the prompts of the problems it is asked."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    prompts: Mapping[str, list[int]]


def open_policy(base: Path, trained: Path | None, problems: Sequence[Problem]) -> Policy:
    """The policy trained from `base`, or `base` itself."""
    tokenizer = load_tokenizer(base)
    prompts = {p.problem_id: prompt_ids(tokenizer, p.problem) for p in problems}
    return Policy(load_policy(base, trained, torch.float32, "cpu").eval(), tokenizer, prompts)


def drawn_by_strategy(
    policy: Policy, problems: Sequence[Problem], draws: int, max_tokens: int
) -> pd.DataFrame:
    """`draws` completions of each problem under each strategy, whose mark is given."""
    sampler = TransformersSampler.from_model(policy.model, policy.tokenizer, 640)
    keys, requests = [], []
    for problem in problems:
        for name, strategy in STRATEGIES.items():
            mark = policy.tokenizer(strategy.mark, add_special_tokens=False)["input_ids"]
            given = (*policy.prompts[problem.problem_id], *mark)
            for index in range(draws):
                keys.append((problem, name, mark))
                stream = json.dumps(["world rules", problem.problem_id, name, index])
                requests.append(Request(given, stream))
    completions = sampler.sample(requests, Sampling(temperature=1.0, max_tokens=max_tokens))
    return pd.DataFrame(
        {
            "problem_id": problem.problem_id,
            "stratum": sheet_of(problem).stratum,
            "strategy": name,
            "named": name,
            "token_ids": [*mark, *drawn.token_ids],
            "right": check_working(sheet_of(problem), STRATEGIES[name].mark + drawn.text).right,
        }
        for (problem, name, mark), drawn in zip(keys, completions, strict=True)
    )


def sheet_of(problem: Problem) -> Sheet:
    """The sheet of a problem; raises ValueError for another kind of problem."""
    if (sheet := read_sheet(problem.problem)) is None:
        raise ValueError(f"{problem.problem_id}: {problem.problem!r} is no sheet of sums")
    return sheet


def branch_points(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Where a step chooses, in a completion's decoded tokens: the place, and how many choices.

    It is the digit after the written form; the form's sum says how many pairs there are.
    """
    end = texts.index(WORK_CLOSE) if WORK_CLOSE in texts else len(texts)
    points = []
    for place in range(5, end):
        first, plus, second, then = texts[place - 4 : place]
        whole = first.isdecimal() and second.isdecimal() and plus == "+" and then in ("=", ",")
        if whole and texts[place - 5].strip() in LABELS:
            choices = int(first) + int(second) - 1
            points += [(place, choices)] if choices in CHOICES else []
    return points


def with_entropies(policy: Policy, frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with the log q of each completion, and its entropies by the number of choices.

    log q leaves out the first token, the strategy's mark: its factor is the same for all
    completions of a problem. `on_branches` is the part of log q at branch points.
    """
    texts = [policy.tokenizer.decode([i]) for i in range(len(policy.tokenizer))]
    prompts = [policy.prompts[name] for name in frame["problem_id"]]
    completions = [list(ids) for ids in frame["token_ids"]]
    rows = []
    for ids, values in zip(completions, entropies(policy.model, prompts, completions), strict=True):
        factors = log_factors(values)
        factors[0] = 0.0
        points = branch_points([texts[i] for i in ids])
        rows.append(
            {
                "log_q": float(factors.sum()),
                "on_branches": float(sum(factors[place] for place, _ in points)),
                "choices": [(choices, float(values[place])) for place, choices in points],
            }
        )
    return frame.assign(**pd.DataFrame(rows, index=frame.index))


def branch_entropies(frame: pd.DataFrame, corpus: SumsCorpus) -> dict[int, float]:
    """Mean entropy by number of choices, in completions that name a strategy which chooses."""
    own = [
        pair
        for named, points in zip(frame["named"], frame["choices"], strict=True)
        if named and chooses(named, corpus.alignment, corpus.common)
        for pair in points
    ]
    means = pd.DataFrame(own, columns=["choices", "entropy"]).groupby("choices")["entropy"].mean()
    return {int(choices): round(float(value), 3) for choices, value in means.items()}


def by_stratum(frame: pd.DataFrame, column: str, k: int) -> dict[str, float]:
    """Mean pass@k of each stratum and of all problems, in percent; `column` says what is right."""
    counts = frame.groupby(["stratum", "problem_id"])[column].agg(["sum", "size"])
    n = int(counts["size"].iloc[0])
    values = pd.Series(
        pass_at_k(n, counts["sum"].to_numpy().astype(int), np.array([k]))[:, 0], counts.index
    )
    means = {str(name): value for name, value in values.groupby(level=0).mean().items()}
    return {
        name: round(100 * float(value), 1)
        for name, value in {**means, "all": values.mean()}.items()
    }


def read_samples(path: Path, problems: Mapping[str, Problem]) -> pd.DataFrame:
    """Graded samples with stratum, strategy, and whether answer and working are right."""
    frame = read_frame(path, columns=["problem_id", "completion", "answer", "status", "token_ids"])
    sheets = {name: sheet_of(problem) for name, problem in problems.items()}
    checked = [
        check_working(sheets[name], text)
        for name, text in zip(frame["problem_id"], frame["completion"], strict=True)
    ]
    return frame.assign(
        stratum=[sheets[name].stratum for name in frame["problem_id"]],
        strategy=[each.strategy for each in checked],
        named=[MARKS.get(text[:1]) for text in frame["completion"]],
        correct=frame["status"] == "correct",
        right=[each.right for each in checked],
    )


def first(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """The first `count` samples of each problem."""
    return frame.groupby("problem_id").head(count)


def of_samples(
    frame: pd.DataFrame,
    policy: Policy,
    problems: Sequence[Problem],
    corpus: SumsCorpus,
    kl_coefficient: float,
) -> dict[str, Any]:
    """What is measured of the base and of each trained policy alike."""
    few = with_entropies(policy, first(frame, FEW))
    shares = frame["strategy"].fillna("none").value_counts(normalize=True)
    return {
        "chance_at_k": round(100 * chance(frame, problems, K), 3),
        "pass@1": by_stratum(frame, "correct", 1),
        "pass@k": by_stratum(frame, "correct", K),
        "pass@k_with_correct_working": by_stratum(frame, "right", K),
        "shares_of_named": {
            str(name): round(v, 4)
            for name, v in frame["named"].fillna("none").value_counts(normalize=True).items()
        },
        "shares_of_strategies": {str(name): round(v, 4) for name, v in shares.items()},
        "entropy_by_choices": branch_entropies(few, corpus),
        "log_q_on_branch_points": round(float(few["on_branches"].mean()), 4),
        **of_log_q(few, kl_coefficient),
    }


def of_strategies(
    policy: Policy, problems: Sequence[Problem], corpus: SumsCorpus, draws: int, max_tokens: int
) -> dict[str, Any]:
    """Accuracy of each strategy on each stratum, and the alignment, from completions of each."""
    drawn = drawn_by_strategy(policy, problems, draws, max_tokens)
    accuracy = drawn.groupby(["stratum", "strategy"])["right"].mean().unstack()
    gaps = {}
    for stratum, row in accuracy.iterrows():
        best, second = row.nlargest(2).items()
        gaps[str(stratum)] = {
            "best": best[0],
            "pays": best[0] == stratum,
            "best_%": round(100 * best[1], 1),
            "second": second[0],
            "second_%": round(100 * second[1], 2),
            "gap": round(100 * (best[1] - second[1]), 1),
        }
    few = drawn.groupby(["problem_id", "strategy"]).head(2)
    log_q = with_entropies(policy, few)
    means = log_q.groupby(["problem_id", "strategy"])["log_q"].mean().unstack()
    common = [name for name in STRATEGIES if name in corpus.common]
    needed = [name for name in STRATEGIES if name not in corpus.common]
    shift = means[needed].mean(axis=1) - means[common].mean(axis=1)
    rates = success_rates(policy, drawn)
    return {
        "strategies_by_stratum": gaps,
        "entropy_by_choices": branch_entropies(log_q, corpus),
        "log_q_by_strategy": {name: round(float(v), 4) for name, v in means.mean().items()},
        "alignment": round(float(shift.mean()), 4),
        "alignment_sd_over_problems": round(float(shift.std()), 4),
        "problems_of_rate_about_1e-3": int(rates.between(*RARE).sum()),
        "problems": len(rates),
        "lowest_rate": round(float(rates.min()), 6),
    }


def success_rates(policy: Policy, drawn: pd.DataFrame) -> pd.Series:
    """Success rate of each problem: that under each strategy, weighed by its probability."""
    accuracy = drawn.groupby(["problem_id", "strategy"])["right"].mean().unstack()
    names = list(accuracy.index)
    marks = {
        name: policy.tokenizer(strategy.mark, add_special_tokens=False)["input_ids"][0]
        for name, strategy in STRATEGIES.items()
    }
    with torch.no_grad():
        ids = torch.tensor([policy.prompts[name] for name in names])
        opening = policy.model(ids).logits[:, -1].softmax(-1)
    weights = pd.DataFrame({name: opening[:, i].numpy() for name, i in marks.items()}, index=names)
    return (accuracy * weights).sum(axis=1)


def rules_of(
    results: Results, name: str, model: Model, corpus: SumsCorpus, runs: Sequence[Run]
) -> dict[str, Any]:
    """All that is measured of a model: its base, its GRPO runs, and their difference."""
    (benchmark,) = model.benchmarks
    problems = {p.problem_id: p for p in read_problems(results.problems(benchmark))}
    measured: dict[str, Any] = {"alignment": corpus.alignment, "branches": corpus.branches}
    every = list(problems.values())
    trained, values = [], []
    for run in runs:
        policy = open_policy(
            results.rl_start(name), None if run.algorithm == BASE else results.policy(run), every
        )
        samples = read_samples(results.samples(run, benchmark), problems)
        row = of_samples(samples, policy, every, corpus, model.rl.kl_coefficient)
        values.append(np.stack([solved(samples, column) for column in ("correct", "right")], -1))
        if run.algorithm == BASE:
            longest = int(samples["token_ids"].map(len).max())
            measured["base"] = row
            measured["strategies"] = of_strategies(policy, every, corpus, DRAWS, longest)
        else:
            trained.append({"seed": run.seed, **row})
    measured["grpo"] = trained
    if trained:
        differences = np.stack(values[1:]) - values[0]
        low, high = interval_of_difference(differences, BOOTSTRAP)
        for place, what in enumerate(("pass@k", "pass@k_with_correct_working")):
            ends = differences[..., place].mean(), low[place], high[place]
            measured[f"grpo_minus_base_{what}"] = [round(100 * float(end), 1) for end in ends]
    return measured


def solved(frame: pd.DataFrame, column: str) -> np.ndarray:
    """pass@K of each problem, `[P]`, counting the samples where `column` is true."""
    counts = frame.groupby("problem_id")[column].agg(["sum", "size"])
    return pass_at_k(int(counts["size"].iloc[0]), counts["sum"].to_numpy(), np.array([K]))[:, 0]


def verdicts(measured: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each rule is met, from what `rules_of` measured."""
    base, strategies, trained = measured["base"], measured["strategies"], measured["grpo"]
    gaps = strategies["strategies_by_stratum"].values()
    before = base["entropy_by_choices"].values()
    after = [value for row in trained for value in row["entropy_by_choices"].values()]
    shift = strategies["alignment"]
    signs = {"plus": shift > 0.05, "zero": abs(shift) <= 0.05, "minus": shift < -0.05}
    rules = {
        "chance at most 2 %": base["chance_at_k"] <= 2,
        "each stratum has its strategy, 30 points ahead": all(
            each["pays"] and each["gap"] >= 30 for each in gaps
        ),
        "branch points above 1.2 nats in the base": min(before, default=0) > THRESHOLD,
        "and above 0.6 after GRPO": min(after, default=0) > 0.6,
        "alignment has its sign": signs[measured["alignment"]],
        "pass@k of the base from 50 to 75 %": 50 <= base["pass@k"]["all"] <= 75,
        "problems of rate about 1e-3": strategies["problems_of_rate_about_1e-3"] > 0,
    }
    return {rule: bool(met) for rule, met in rules.items()}


def shown(name: str, measured: Mapping[str, Any]) -> str:
    """What was measured of a model, as lines of text."""
    base, strategies, trained = measured["base"], measured["strategies"], measured["grpo"]
    rows = pd.DataFrame(
        {
            "base pass@1": base["pass@1"],
            "base pass@k": base["pass@k"],
            "right working": base["pass@k_with_correct_working"],
            **{f"GRPO {row['seed']} pass@k": row["pass@k"] for row in trained},
            **{
                f"GRPO {row['seed']} right working": row["pass@k_with_correct_working"]
                for row in trained
            },
            **{
                key: {name: gap[key] for name, gap in strategies["strategies_by_stratum"].items()}
                for key in ("best_%", "second_%")
            },
        }
    )
    lines = [
        f"== {name} (alignment {measured['alignment']}, branches {measured['branches']})",
        rows.to_string(),
        f"chance: base {base['chance_at_k']} %, GRPO {[row['chance_at_k'] for row in trained]}",
        f"entropy by choices: base {base['entropy_by_choices']}",
        *(f"  GRPO {row['seed']}: {row['entropy_by_choices']}" for row in trained),
        f"alignment: {strategies['alignment']} (SD {strategies['alignment_sd_over_problems']})",
        f"log q: base {base['log_q']}, right - wrong {base['log_q_right_minus_wrong']}",
        f"problems of rate about 1e-3: {strategies['problems_of_rate_about_1e-3']}",
        f"strategies: base {base['shares_of_strategies']}",
        *(f"  GRPO {row['seed']}: {row['shares_of_strategies']}" for row in trained),
        *(f"{'met    ' if met else 'NOT MET'} {rule}" for rule, met in measured["rules"].items()),
    ]
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Measure every model of the study in `folder`; print and write what was measured."""
    study_name = folder.name
    study = load_study(study_name, ROOT / "config").study
    results = Results(folder)
    file = ROOT / "benchmarks/sums_rules.json"
    kept = json.loads(file.read_text(encoding="utf-8"))["models"] if file.exists() else {}
    report: dict[str, Any] = {"k": K, "draws_by_strategy": DRAWS, "models": kept}
    for name, model in study.models.items():
        corpus = getattr(model.base, "corpus", None)
        if not isinstance(corpus, SumsCorpus):
            continue
        (benchmark,) = model.benchmarks
        seeds = (model.seeds or {}).get("grpo", study.seeds)
        runs = [Run(name, BASE, 0), *(Run(name, "grpo", seed) for seed in seeds)]
        sampled = [run for run in runs if results.samples(run, benchmark).exists()]
        if runs[0] not in sampled:
            print(f"{name}: not sampled yet")
            continue
        measured = rules_of(results, name, model, corpus, sampled)
        report["models"][name] = {"study": study_name} | measured | {"rules": verdicts(measured)}
        print(shown(name, report["models"][name]), flush=True)
        write_text_atomic(file, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(arguments.folder(__doc__))
