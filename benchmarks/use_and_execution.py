"""What RL changes in the world of sums: which strategies are used, and how well they are done.

    python -m benchmarks.use_and_execution results/dose_more plus zero --cooled

A sheet comes right if its completion uses the strategy that pays on it and does that without a
fault, so a rate of success is a product of the two. Prints both for each method of the models that
are named, by stratum and in short, and adds them to `benchmarks/use_and_execution.json`. With
`--cooled` also of their bases at lower temperatures, which sharpen a policy without training.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import SEEN
from sage.policies import load_model, load_tokenizer
from sage.problems.record import read_problems
from sage.problems.sums import STRATEGIES, read_sheet
from sage.problems.sums_working import check_working, in_form_of
from sage.prompting import prompt_ids
from sage.rendering.numbers import percent
from sage.results import Results, Run
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import BASE, Sampling

FILE = Path(__file__).with_suffix(".json")
SHEETS = "sheets"
COOL, DRAWS = (0.7, 0.5, 0.3), 64
"""Temperatures at which the base is drawn from as well, and its completions of each sheet then."""

FORMS = {
    "plain_on_plain": "plain form on `plain`",
    "plain_on_turn": "plain form on `turn`",
    "others": "four other forms, all sheets",
}
"""What `forms_of` reads, and how columns of it are headed."""

Shares = dict[str, dict[str, float]]
"""By stratum, of all draws: `used` its own strategy, and of these `right` with correct working."""


def sheets_of(results: Results) -> dict[str, tuple[str, str]]:
    """The text and the stratum of each sheet, by its id."""
    return {p.problem_id: (p.problem, p.stratum) for p in read_problems(results.problems(SHEETS))}


def samples_of(results: Results, model: str) -> dict[str, pd.DataFrame]:
    """The samples of each method, of its runs together."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for file in sorted(results.folder.glob(f"samples/{model}/*/seed*/{SHEETS}.parquet")):
        frames.setdefault(file.parts[-3], []).append(read_frame(file))
    return {row: pd.concat(own) for row, own in frames.items()}


def uses(samples: pd.DataFrame, sheets: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Of each completion its sheet's `stratum`, if that is `used`, and if it is then `right`."""
    rows = []
    for name, written in zip(samples["problem_id"], samples["completion"], strict=True):
        text, stratum = sheets[name]
        sheet = read_sheet(text)
        checked = check_working(sheet, written) if sheet else None
        used = checked is not None and checked.strategy == stratum
        rows.append((stratum, used, used and checked is not None and checked.right))
    return pd.DataFrame(rows, columns=["stratum", "used", "right"])


def shares(samples: pd.DataFrame, sheets: dict[str, tuple[str, str]]) -> Shares:
    """The same by stratum."""
    found = uses(samples, sheets).groupby("stratum").agg(["sum", "size"])
    return {
        str(stratum): {
            "used": round(float(row["used", "sum"] / row["used", "size"]), 4),
            "right": round(float(row["right", "sum"] / max(1, row["used", "sum"])), 3),
        }
        for stratum, row in found.iterrows()
    }


def forms_of(results: Results, run: Run) -> dict[str, float]:
    """In which strategy's form a policy writes its sums, whatever its completions say they use.

    `plain_on_plain` and `plain_on_turn`: of the completions of such sheets in one of these two
    forms the share in the plain one. `others`: of all completions the share in another form.
    """
    sheets, samples = sheets_of(results), read_frame(results.samples(run, SHEETS))
    forms = [
        (sheets[name][1], form_of(sheets[name][0], written))
        for name, written in zip(samples["problem_id"], samples["completion"], strict=True)
    ]
    found = pd.crosstab(*zip(*forms, strict=True))
    both = found.reindex(columns=["plain", "turn"], fill_value=0)
    chosen = both["plain"] / both.sum(axis=1)
    others = found.drop(columns=["plain", "turn", ""], errors="ignore").to_numpy().sum()
    return {
        "plain_on_plain": round(float(chosen["plain"]), 4),
        "plain_on_turn": round(float(chosen["turn"]), 4),
        "others": round(float(others / len(samples)), 4),
    }


def form_of(problem: str, written: str) -> str:
    """The strategy in whose form all sums of a completion are written; "" for none."""
    if (sheet := read_sheet(problem)) is None:
        return ""
    steps = check_working(sheet, written).steps
    return next((name for name in STRATEGIES if in_form_of(name, sheet, steps)), "")


def of_model(results: Results, model: str, temperatures: Sequence[float]) -> dict[str, Shares]:
    """By method, and of the base at these temperatures."""
    sheets, base = sheets_of(results), results.folder / f"models/{model}/base"
    drawn = {f"{BASE} at {t:g}": cooled(base, sheets, t) for t in temperatures}
    return {row: shares(own, sheets) for row, own in (samples_of(results, model) | drawn).items()}


def cooled(base: Path, sheets: dict[str, tuple[str, str]], temperature: float) -> pd.DataFrame:
    """Completions of a base at a temperature, DRAWS of each sheet: a rival without training."""
    tokenizer = load_tokenizer(base)
    sampler = TransformersSampler.from_model(load_model(base), tokenizer, None, consume=True)
    requests = [
        Request(tuple(prompt_ids(tokenizer, text)), f"{name}/{draw}")
        for name, (text, _) in sheets.items()
        for draw in range(DRAWS)
    ]
    drawn = sampler.sample(requests, Sampling(temperature=temperature, max_tokens=64))
    names = [name for name in sheets for _ in range(DRAWS)]
    return pd.DataFrame({"problem_id": names, "completion": [each.text for each in drawn]})


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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--cooled", action="store_true", help="draw from bases at less than 1 too")
    asked = parser.parse_args(arguments)
    temperatures = COOL if asked.cooled else ()
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    found = {m: of_model(Results(asked.results), m, temperatures) for m in asked.models}
    print(table(found), short(found), sep="\n\n")
    write_json_atomic(FILE, kept | {asked.results.name: found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
