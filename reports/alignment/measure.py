"""Trains what study.yaml asks and measures guides on bases, a job after the other in one process.

    python reports/alignment/measure.py BASES [MODEL=RUNS ...]

RUNS are trained of each method of MODEL, at most; by default all. BASES has a folder for each
remade base, `{run}-{model}/pretrained`, and keeps all work: a stopped run goes on. Writes
counts.parquet, measured.csv, bases.csv and placebo.parquet beside this file.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.counts import counts_table
from sage.evaluation.guide_dose import measured, read_completions
from sage.evaluation.samples import evaluate
from sage.exhibits import kept_study, load_study
from sage.fetched_bases import kept_base
from sage.method.alignment import alignment
from sage.runtime.manifest import Manifest
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.tasks import draw_problems
from sage.training.examples import find_solutions
from sage.training.rl import train_rl
from sage.training.sft import fine_tune

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
K, PLACEBOS = 16, 500
PLAIN = "grpo_k1_reward"
STRONG = ["grpo_branch_strong_k1_reward", "grpo_branch_stronger_k1_reward"]

OWN = load_study(str(HERE / "study.yaml"), ROOT / "config")
TEN = ["sums", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
KEPT = [("sizes/sizes", name, STRONG[1:]) for name in ("sums", "small_second", "small_third")]
KEPT += [("bases/bases", name, STRONG) for name in TEN]


def job(settings: dict[str, Any], seed: int | None = None) -> Manifest:
    """The manifest of a job that starts now."""
    return Manifest(settings, 1, time.time(), seed=seed)


def rl_start(study: ResolvedStudy, model: str, folder: Path) -> Path | None:
    """The checkpoint that RL starts from, made of the base in `folder`; None without the base."""
    own = study.study.models[model]
    if own.sft is None:
        return kept_base(own.base, ROOT / "config" / "bases")
    if not (folder / "pretrained").is_dir():
        return None
    base, sft = folder / "base", own.sft
    if not base.is_dir():
        source = (sft.corpus or own.base.corpus).model_dump()
        solutions = find_solutions(sft.data, sft.examples, sft.seed, source)
        fine_tune(folder / "pretrained", solutions, sft, "cpu", folder / "scratch", base, job({}))
    return base


def problems_of(study: ResolvedStudy, name: str) -> Any:
    return draw_problems(name, {**study.problem_set(name), "title": ""})


def sampled(
    study: ResolvedStudy,
    model: str,
    name: str,
    seed: int,
    base: Path,
    policy: Path | None,
    at: Path,
) -> Path:
    """The graded samples of a policy on its model's benchmark, as the study evaluates it."""
    benchmark = study.study.models[model].benchmarks[0]
    output = at / f"{name}-{seed}.parquet"
    if not output.is_file():
        evaluate(
            base=base,
            policy=policy,
            problems=problems_of(study, benchmark),
            settings=study.evaluation(model),
            device="cpu",
            model=model,
            benchmark=benchmark,
            train_seed=seed,
            shards=output.with_suffix(""),
            output=output,
            manifest=job({}),
        )
    return output


def trained(model: str, base: Path, at: Path, most: int) -> pd.DataFrame:
    """Counts of the first `most` runs of a model of study.yaml, trained where not there."""
    benchmark, rows = OWN.study.models[model].benchmarks[0], {}
    runs = [run for run in OWN.trained_runs(model) if run.seed <= most]
    for _, method, seed in sorted(runs, key=lambda run: run.seed):
        policy = at / f"{method}-{seed}"
        if not policy.is_dir():
            train_rl(
                base,
                problems_of(OWN, OWN.rl(model, method).problems),
                OWN.rl(model, method),
                OWN.algorithms[method],
                seed,
                "cpu",
                at / "scratch",
                policy,
                job({}, seed),
            )
        file = sampled(OWN, model, method, seed, base, policy, at)
        rows[(model, method, seed, benchmark)] = read_frame(file)
        print(time.strftime("%H:%M:%S"), model, method, seed, flush=True)
    return counts_table(rows, problems_of(OWN, benchmark))


def measure(
    study: ResolvedStudy, run: str, model: str, guides: list[str], base: Path, at: Path
) -> tuple[list[dict[str, Any]], list[pd.DataFrame], pd.DataFrame]:
    """Rows of measured.csv, placebos of each guide, and the counts of the base."""
    benchmark = study.study.models[model].benchmarks[0]
    problems = problems_of(study, benchmark)
    samples = read_frame(sampled(study, model, "base", 0, base, None, at))
    read = read_completions(base, problems, samples, 1.0, "cpu", at / "signals")
    size, rows, placebos = read.right.shape[1], [], []
    for name in guides:
        guide, beta = study.algorithms[name].guide, study.kl_coefficient(model, name)
        found = measured(read, guide, beta, K)
        cell = {"run": run, "model": model, "algorithm": name}
        rows.append({**cell, "other": PLAIN, **found.row})
        generator, drawn = torch.Generator().manual_seed(0), []
        for _ in range(PLACEBOS):  # the same orders for all guides of a base
            order = torch.rand(read.right.shape, generator=generator).argsort(dim=1)
            drawn.append(float(alignment(read.right, found.log_q.gather(1, order), K).mean()))
        placebos.append(pd.DataFrame({**cell, "draw": np.arange(PLACEBOS), "a_k": drawn}))
        print(time.strftime("%H:%M:%S"), run, model, name, found.row["a_k"], size, flush=True)
    key = (model, "remade", 0, benchmark)
    return rows, placebos, counts_table({key: samples}, problems)


def main() -> None:
    bases, most = Path(sys.argv[1]), dict(each.split("=") for each in sys.argv[2:])
    ready = [
        (OWN, "alignment", m, OWN.trained(m), bases / d)
        for m, d in (("routes", "routes"), ("sums", "sizes-sums"))
    ]
    ready = [(s, r, m, [g for g in gs if s.algorithms[g].guide], f) for s, r, m, gs, f in ready]
    for run, model, guides in KEPT:
        folder = bases / f"{run.split('/')[1]}-{model}"
        ready.append((kept_study(ROOT / "reports" / run), run, model, guides, folder))
    rows, placebos, counts, remade = [], [], [], []
    for study, run, model, guides, folder in ready:
        base = rl_start(study, model, folder)
        if base is None:
            continue
        at = folder / run.replace("/", "-")
        at.mkdir(parents=True, exist_ok=True)
        if not (done := at / "found.pickle").is_file():
            pd.to_pickle(measure(study, run, model, guides, base, at), done)
        found, drawn, own = pd.read_pickle(done)
        rows, placebos = [*rows, *found], [*placebos, *drawn]
        if run == "alignment":
            counts.append(trained(model, base, at, int(most.get(model, 99))))
            pd.concat(counts).to_parquet(HERE / "counts.parquet", index=False)
        else:
            kept = pd.read_parquet(ROOT / "reports" / run / "counts.parquet")
            here = kept["model"].eq(model) & kept["algorithm"].eq("base")
            both = comparisons_table(pd.concat([kept[here], own]).reset_index(drop=True), 10_000)
            same = (
                kept[here].set_index("problem_id")["correct"]
                == own.set_index("problem_id")["correct"]
            ).all()
            chosen = both["k"].isin([1, K]) & both["metric"].eq("pass@k")
            part = both.loc[chosen, ["model", "k", "value", "low", "high"]]
            remade.append(part.assign(run=run, same_counts=bool(same)))
            pd.concat(remade).to_csv(HERE / "bases.csv", index=False, float_format="%.6g")
        pd.DataFrame(rows).to_csv(HERE / "measured.csv", index=False, float_format="%.6g")
        pd.concat(placebos).to_parquet(HERE / "placebo.parquet", index=False)


if __name__ == "__main__":
    main()
