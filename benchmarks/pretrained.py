"""What the studies of a pretrained model have shown (docs/pretrained-study.md).

    python -m benchmarks.pretrained results/pretrained

Prints what the base and the runs of a study can do and how each run trained, and writes that to
`benchmarks/{study}.json`; then from kept runs how methods differ, and how many runs are right on
both strata of RL. Runs that are missing are left out, so it can be read while a study is at work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import KEPT, SEEN, difference, points_of
from benchmarks.use_and_execution import COOL, FORMS, forms_of
from sage.evaluation.counts import counts_table
from sage.evaluation.curves import WORKING
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two
from sage.evaluation.snapshots import SnapshotSampler
from sage.exhibits import load_study
from sage.problems.record import read_problems
from sage.rendering.numbers import percent
from sage.results import Results, Run
from sage.runtime.files import write_json_atomic
from sage.runtime.manifest import Manifest
from sage.runtime.tables import read_frame
from sage.study import BASE, Draws

MODEL, SHEETS, K = "sums", "sheets", 32
ENDS = 8
"""Steps at the beginning, and at the end, over which a run's reward is averaged."""
HIGH = 0.85
"""A reward that a policy which chooses blindly between two strategies does not reach."""

BOTH = 0.8
"""A policy is right more often than this on both strata of RL if it looks at the sheet, or if it
adds right whatever form it writes."""

CONTRASTS = (
    ("grpo", BASE),
    ("grpo_k1_reward", BASE),
    ("grpo_branch_stronger_k1_reward", BASE),
    ("grpo_no_kl", "grpo"),
    ("grpo_branch_stronger_k1_reward", "grpo_k1_reward"),
)
"""The methods that the studies compare, each with what it is compared with."""

LOOKS = 0.5
"""A run looks at the sheet if its share of plain forms is so much higher on `plain` sheets."""

COLUMNS = ("seed", "reward_first", "reward_last", "high", "kl_last", "dose")


def solved_by(results: Results, samples: Path) -> dict[str, Any]:
    """How often a policy is right with correct working, over all sheets and by stratum."""
    drawn = {(MODEL, BASE, 0, SHEETS): read_frame(samples)}  # who drew them makes no difference
    counts = counts_table(drawn, read_problems(results.problems(SHEETS)))
    draws = int(counts["n_samples"].iloc[0])
    solved = pass_at_k(draws, counts["worked"].to_numpy(int), np.array([1, K])).mean(axis=0)
    lucky = np.stack(counts["chance"])[:, powers_of_two(draws).tolist().index(K)]
    rates = counts.groupby("stratum")["worked"].mean() / draws
    return {
        "draws": draws,
        "pass_1": round(float(solved[0]), 6),
        f"pass_{K}": round(float(solved[1]), 6),
        f"chance_{K}": round(float(lucky.mean()), 6),
        "strata": {str(name): round(float(rate), 6) for name, rate in rates.items()},
    }


def base_of(results: Results) -> dict[str, Any]:
    """The same of the base, and where it was sampled."""
    run = Run(MODEL, BASE, 0)
    manifest = json.loads(results.sample_manifest(run, SHEETS).read_text(encoding="utf-8"))
    kept = {key: manifest[key] for key in ("git_commit", "hardware", "tokens_per_second")}
    solved = solved_by(results, results.samples(run, SHEETS))
    return kept | solved | {"forms": forms_of(results, run)}


def draw_cooled(results: Results, device: str) -> None:
    """Sample the base at the temperatures of COOL, which sharpens it without training.

    Into `cooled/`, in the form of the study's own samples; what is there is not drawn again.
    """
    draws = Draws.model_validate(
        load_study(results.folder.name, Path("config")).evaluation(MODEL).draws()
    )
    for temperature in COOL:
        cooler = draws.sampling.model_copy(update={"temperature": temperature})
        SnapshotSampler(
            base=results.rl_start(MODEL),
            problems=read_problems(results.problems(SHEETS)),
            settings=draws.model_copy(update={"sampling": cooler}),
            device=device,
            model=MODEL,
            benchmark=SHEETS,
            shards=results.folder / f"cooled/temperature-{temperature:g}",
            manifest=Manifest({"temperature": temperature}, 1, time.time()),
        ).samples(None, BASE, 0, 0)


def cooled_of(results: Results) -> list[dict[str, Any]]:
    """What `draw_cooled` has drawn can solve, warmest first."""
    return [
        {"temperature": temperature} | solved_by(results, samples)
        for temperature in COOL
        for samples in results.folder.glob(
            f"cooled/temperature-{temperature:g}/**/{SHEETS}.parquet"
        )
    ]


def training_of(folder: Path) -> dict[str, Any]:
    """How a run went: reward at both ends, and what it is known by at the end."""
    rows = pd.read_json(folder / "history.jsonl", lines=True)
    last = rows.tail(ENDS)

    def mean(name: str, of: pd.DataFrame) -> float | None:
        given = of[name].dropna() if name in of else pd.Series(dtype=float)
        return round(float(given.mean()), 4) if len(given) else None

    return {
        "method": folder.parent.name,
        "seed": int(folder.name.removeprefix("seed")),
        "steps": len(rows),
        "reward_first": mean("reward", rows.head(ENDS)),
        "reward_last": mean("reward", last),
        "high": _first_high(rows["reward"]),
        "kl_last": mean("kl", last),
        "dose": mean("guide_dose", rows),
        "sampler_gap": round(float(rows["sampler_gap_mean"].max()), 6),
        "seconds_a_step": mean("seconds", rows),
    }


def _first_high(rewards: pd.Series) -> int | None:
    """The first step, from 1, with a reward above HIGH."""
    high = np.flatnonzero(rewards > HIGH)
    return int(high[0]) + 1 if len(high) else None


def file_of(study: str) -> Path:
    """Where a study's numbers are kept."""
    return Path(__file__).with_name(f"{study}.json")


def looks(run: dict[str, Any]) -> bool:
    """Whether a run that was sampled looks at the sheet, by the forms in which it writes."""
    forms: dict[str, float] = run["forms"]
    return forms["plain_on_plain"] - forms["plain_on_turn"] >= LOOKS


def differences(study: str) -> str:
    """The differences of CONTRASTS in the kept run of a study, by correct working."""
    lines = [
        [f"`{method}` minus `{other}`", *map(points_of, found)]
        for method, other in CONTRASTS
        if any(
            found := [difference(study, MODEL, SHEETS, method, other, k, WORKING) for k in (1, K)]
        )
    ]
    return markdown(f"difference | pass@1 | pass@{K}", lines)


def right_on_both() -> str:
    """How many kept runs are right in more than BOTH of draws on each stratum that RL trains on.

    One that chooses blindly, and adds right in one form of a sheet alone, is right on the two in
    100 % together.
    """
    methods = ("grpo", "grpo_no_kl", "grpo_k1_reward", "grpo_branch_stronger_k1_reward")
    lines = []
    for study in ("sizes", "sizes_large", "bases", "long", "pretrained", "pretrained_short"):
        counts = read_frame(KEPT / study / "counts.parquet")
        own = counts[counts["stratum"].isin(SEEN) & counts["algorithm"].isin(methods)]
        rates = own.assign(rate=own["worked"] / own["n_samples"])
        rates = rates.groupby(["algorithm", "model", "train_seed", "stratum"])["rate"].mean()
        both = (rates.unstack().min(axis=1) > BOTH).groupby("algorithm")
        here = both.size()
        cells = [f"{both.sum()[row]} of {here[row]}" if row in here else "–" for row in methods]
        lines.append([f"`{study}`", *cells])
    return markdown(" | ".join(["study", *(f"`{row}`" for row in methods)]), lines)


def render(content: dict[str, Any]) -> str:
    """All as tables."""
    base = content["base"]
    names = ["policy", "pass@1", f"pass@{K}", f"chance of pass@{K}", *base["strata"]]
    policies = [
        [
            label,
            *(percent(solved[name]) for name in ("pass_1", f"pass_{K}", f"chance_{K}")),
            *map(percent, solved["strata"].values()),
        ]
        for label, solved, _ in _policies(content)
    ]
    forms = [
        [label, *(percent(written[name]) for name in FORMS)]
        for label, _, written in _policies(content)
        if written
    ]
    lines = [
        [
            f"`{run['method']}`",
            *("–" if run[name] is None else f"{run[name]:.3g}" for name in COLUMNS),
        ]
        for run in content["runs"]
    ]
    head = (
        f"method | seed | reward, first {ENDS} steps | last {ENDS} | first above {HIGH} | KL | dose"
    )
    return "\n\n".join(
        (
            markdown(" | ".join(names), policies),
            markdown(" | ".join(["policy", *FORMS.values()]), forms),
            markdown(head, lines),
        )
    )


def _policies(content: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, float]]]:
    """What the base, also cooled, and all runs that were sampled are called, solve and write."""
    sampled = [run for run in content["runs"] if run["solved"]]
    return [
        ("base", content["base"], content["base"]["forms"]),
        *((f"base at {one['temperature']:g}", one, {}) for one in content["cooled"]),
        *(
            (f"`{run['method']}`, run {run['seed']}", run["solved"], run["forms"])
            for run in sampled
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="results of the study")
    parser.add_argument("--cooled", metavar="DEVICE", help="draw from the base at COOL first")
    given = parser.parse_args(arguments)
    results = Results(given.folder)
    if given.cooled:
        draw_cooled(results, given.cooled)
    folders = sorted(
        path.parent for path in given.folder.glob(f"models/{MODEL}/*/seed*/history.jsonl")
    )
    runs = [training_of(folder) for folder in folders]
    for run in runs:
        policy = Run(MODEL, run["method"], run["seed"])
        there = results.samples(policy, SHEETS).exists()
        run["solved"] = solved_by(results, results.samples(policy, SHEETS)) if there else None
        run["forms"] = forms_of(results, policy) if there else None
    content = {"base": base_of(results), "cooled": cooled_of(results), "runs": runs}
    study = given.folder.name
    write_json_atomic(file_of(study), content)
    print(render(content), differences(study), right_on_both(), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
