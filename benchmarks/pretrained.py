"""What the study of a pretrained model has shown so far (docs/pretrained-study.md).

    python -m benchmarks.pretrained results/pretrained

Prints what its base can do and how each run trained, and writes `benchmarks/pretrained.json`. Runs
that are missing are left out, so it can be read while the study is at work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.branch_points import chance
from benchmarks.chance import markdown
from sage.evaluation.pass_at_k import pass_at_k
from sage.problems.record import read_problems
from sage.problems.sums import read_sheet
from sage.problems.sums_working import check_working
from sage.rendering.numbers import percent
from sage.results import Results, Run
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE

FILE = Path(__file__).with_suffix(".json")
MODEL, SHEETS, K = "sums", "sheets", 32
ENDS = 8
"""Steps at the beginning, and at the end, over which a run's reward is averaged."""


def base_of(results: Results) -> dict[str, Any]:
    """How often the base is right with correct working, over all sheets and by stratum."""
    run = Run(MODEL, BASE, 0)
    samples = read_frame(results.samples(run, SHEETS))
    problems = read_problems(results.problems(SHEETS))
    sheets = {each.problem_id: read_sheet(each.problem) for each in problems}
    right = np.array(
        [
            (sheet := sheets[name]) is not None and check_working(sheet, written).right
            for name, written in zip(samples["problem_id"], samples["completion"], strict=True)
        ]
    )
    by_sheet = pd.Series(right).groupby(samples["problem_id"].to_numpy()).agg(["sum", "size"])
    draws = int(by_sheet["size"].iloc[0])
    strata = pd.Series({each.problem_id: each.stratum for each in problems})
    rates = by_sheet["sum"].groupby(strata).sum() / by_sheet["size"].groupby(strata).sum()
    solved = pass_at_k(draws, by_sheet["sum"].to_numpy(int), np.array([1, K]))
    manifest = json.loads(results.sample_manifest(run, SHEETS).read_text(encoding="utf-8"))
    return {
        "commit": manifest["git_commit"],
        "hardware": manifest["hardware"],
        "tokens_per_second": manifest["tokens_per_second"],
        "draws": draws,
        "pass_1": round(float(solved[:, 0].mean()), 4),
        f"pass_{K}": round(float(solved[:, 1].mean()), 4),
        f"chance_{K}": round(chance(samples, problems, K), 4),
        "strata": {str(name): round(float(rate), 4) for name, rate in rates.items()},
    }


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
        "kl_last": mean("kl", last),
        "dose": mean("guide_dose", rows),
        "sampler_gap": round(float(rows["sampler_gap_mean"].max()), 6),
        "seconds_a_step": mean("seconds", rows),
    }


def render(content: dict[str, Any]) -> str:
    """Both as tables."""
    base = content["base"]
    cells = [percent(base[name]) for name in ("pass_1", f"pass_{K}", f"chance_{K}")]
    cells += [percent(rate) for rate in base["strata"].values()]
    names = ["pass@1", f"pass@{K}", f"chance of pass@{K}", *base["strata"]]
    lines = [
        [
            f"`{run['method']}`",
            *("–" if run[name] is None else f"{run[name]:.3g}" for name in COLUMNS),
        ]
        for run in content["runs"]
    ]
    head = f"method | seed | reward, first {ENDS} steps | last {ENDS} | KL | dose"
    return markdown(" | ".join(names), [cells]) + "\n\n" + markdown(head, lines)


COLUMNS = ("seed", "reward_first", "reward_last", "kl_last", "dose")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep."""
    (place,) = sys.argv[1:] if arguments is None else arguments
    results = Results(Path(place))
    folders = sorted(
        path.parent for path in Path(place).glob(f"models/{MODEL}/*/seed*/history.jsonl")
    )
    content = {"base": base_of(results), "runs": [training_of(folder) for folder in folders]}
    write_json_atomic(FILE, content)
    print(render(content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
