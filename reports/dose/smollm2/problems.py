"""Writes sums.csv and words.csv: problems behind two worked examples, for a model without SFT.

    python reports/dose/smollm2/problems.py

Without examples SmolLM2-135M-Instruct writes no answer where the prompt asks for it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd

from sage.prompting import WORK_OPEN, completion
from sage.tasks import draw_problems

HERE = Path(__file__).resolve().parent
SUMS = [("Calculate 5+3.", "5+3=8", "8"), ("Calculate 9-4+2.", "9-4=5, 5+2=7", "7")]
MORE = "{0} has {1} {2} and gets {3} more. How many {2} does {0} have now?"
LESS = "{0} has {1} {2} and gives {3} away. How many {2} does {0} have now?"
WORDS = [
    (MORE.format("Sam", 6, "pears", 3), "6+3=9", "9"),
    (LESS.format("Kim", 9, "hats", 4), "9-4=5", "5"),
]
NAMES, THINGS = (
    ["Ann", "Ben", "Eva", "Ida", "Leo", "Max"],
    ["apples", "books", "coins", "eggs", "pens", "cards"],
)


def write(name: str, worked: list[tuple[str, str, str]], rows: list[tuple[str, str]]) -> None:
    """The problems and answers `rows`, each behind the `worked` examples, as NAME.csv."""
    shown = "".join(f"{p}\n{WORK_OPEN}{completion(how, a)}\n\n" for p, how, a in worked)
    frame = pd.DataFrame(rows, columns=["problem", "answer"])
    frame["problem"] = shown + frame["problem"]
    frame.to_csv(HERE / f"{name}.csv", index=False)


def main() -> None:
    drawn = {"source": "arithmetic", "title": "", "count": 90, "seed": 2, "split": "test"}
    sums = draw_problems("arithmetic", drawn | {"min_terms": 2, "max_terms": 3})
    write("sums", SUMS, [(each.problem, each.answer) for each in sums])
    rng, rows = random.Random(5), []
    pairs = [(form, a, b) for form in (MORE, LESS) for a in range(2, 10) for b in range(1, a)]
    for form, a, b in rng.sample(pairs, 60):
        text = form.format(rng.choice(NAMES), a, rng.choice(THINGS), b)
        rows.append((text, str(a + b if form == MORE else a - b)))
    write("words", WORDS, rows)


if __name__ == "__main__":
    main()
