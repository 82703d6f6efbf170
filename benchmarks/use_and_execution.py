"""What RL changes in the world of sums: which strategies are used, and how well they are done.

    python -m benchmarks.use_and_execution results/dose_more zero plus

A sheet comes right if its completion uses the strategy that pays on it and does that without a
fault, so a rate of success is a product of the two. Prints both for each method of the models that
are named, by stratum and in short, and adds them to `benchmarks/use_and_execution.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import SEEN
from sage.problems.record import read_problems
from sage.problems.sums import STRATEGIES, read_sheet
from sage.problems.sums_working import check_working
from sage.rendering.numbers import percent
from sage.results import Results
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame

FILE = Path(__file__).with_suffix(".json")
SHEETS = "sheets"

Shares = dict[str, dict[str, float]]
"""By stratum, of all draws: `used` its own strategy, and of these `right` with correct working."""


def shares(samples: pd.DataFrame, problems: dict[str, tuple[str, str]]) -> Shares:
    """Of completions on sheets, whose texts and strata `problems` has by their ids."""
    rows = []
    for name, written in zip(samples["problem_id"], samples["completion"], strict=True):
        text, stratum = problems[name]
        sheet = read_sheet(text)
        checked = check_working(sheet, written) if sheet else None
        used = checked is not None and checked.strategy == stratum
        rows.append((stratum, used, used and checked is not None and checked.right))
    frame = pd.DataFrame(rows, columns=["stratum", "used", "right"]).groupby("stratum").sum()
    draws = samples["problem_id"].map(lambda name: problems[name][1]).value_counts()
    return {
        stratum: {
            "used": round(float(row["used"] / draws[stratum]), 4),
            "right": round(float(row["right"] / max(1, row["used"])), 3),
        }
        for stratum, row in frame.iterrows()
    }


def of_model(results: Results, model: str) -> dict[str, Shares]:
    """By method, over its runs together."""
    problems = {
        p.problem_id: (p.problem, p.stratum) for p in read_problems(results.problems(SHEETS))
    }
    frames: dict[str, list[pd.DataFrame]] = {}
    for file in sorted(results.folder.glob(f"samples/{model}/*/seed*/{SHEETS}.parquet")):
        frames.setdefault(file.parts[-3], []).append(read_frame(file))
    return {row: shares(pd.concat(own), problems) for row, own in frames.items()}


def table(content: dict[str, dict[str, Shares]]) -> str:
    """A line for each model, method and number; a column for each stratum."""
    strata = [
        name for name in STRATEGIES if any(name in s for m in content.values() for s in m.values())
    ]
    lines = [
        [model, f"`{row}`", number, *(percent(found[stratum][key]) for stratum in strata)]
        for model, methods in content.items()
        for row, found in methods.items()
        for number, key in (("uses its strategy", "used"), ("and is then right", "right"))
    ]
    return markdown(" | ".join(["model", "method", "%", *strata]), lines)


def short(content: dict[str, dict[str, Shares]]) -> str:
    """A line for each model and method: strata that RL trains on, and the others."""
    lines = []
    for model, methods in content.items():
        for row, found in methods.items():
            cells = []
            for seen in (True, False):
                own = [each for name, each in found.items() if (name in SEEN) == seen]
                used = sum(each["used"] for each in own)
                right = sum(each["used"] * each["right"] for each in own)
                cells += [percent(used / len(own)), percent(right / used)]
            lines.append([model, f"`{row}`", *cells])
    head = "model | method | used where RL trains | then right | used elsewhere | then right"
    return markdown(head, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep."""
    place, *models = sys.argv[1:] if arguments is None else arguments
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    found = {model: of_model(Results(Path(place)), model) for model in models}
    print(table(found), short(found), sep="\n\n")
    write_json_atomic(FILE, kept | {Path(place).name: found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
