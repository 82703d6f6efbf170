"""Do a base's gradients foretell when a policy learns to see which strategy a sheet needs?

    python -m benchmarks.looking results/sizes_large

RL raises the odds of `plain` over `turn` on plain sheets and lowers them on turn sheets. If the
gradient of these odds is the same on both kinds of sheets, the two cancel, and what is learned is
how often a strategy is used at all. So it was expected; docs/long-study.md has what was found.
Prints for each base how much of the gradient is its own on each kind, 1 − cos of the two; and
beside it from which step of RL on each run looks, and how many points more often its final policy
writes the plain form on plain sheets than on turn sheets. Adds all to `benchmarks/looking.json`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import arguments
from benchmarks.chance import markdown
from benchmarks.kept_tables import SEEN
from benchmarks.use_and_execution import forms_of
from sage.policies import load_model, load_tokenizer
from sage.problems.sums import STRATEGIES, StrategyName, draw_sheet
from sage.prompting import prompt_ids
from sage.results import Results, Run
from sage.runtime.files import write_json_atomic

FILE = Path(__file__).with_suffix(".json")
SHEETS, PARTS = 200, 5
"""Sheets of each kind that a gradient is the mean over, and their sums."""


def own_part(base: Path, sheets: int = SHEETS, seed: int = 1) -> dict[str, float]:
    """How the gradient of the odds of `plain` over `turn` differs between the two kinds of sheets.

    `own` is 1 − cos of the gradient's means on plain and on turn sheets, over the weights of all
    projections; each product of two gradients is of disjoint halves of the sheets, so its mean does
    not depend on how many there are. `plain` and `turn` are how often the base takes each.
    """
    tokenizer, model = load_tokenizer(base), load_model(base).eval()
    chosen = [tokenizer.encode(STRATEGIES[name].mark, add_special_tokens=False) for name in SEEN]
    if any(len(ids) != 1 for ids in chosen):
        raise ValueError(f"{base}: a strategy's letter is not one token")
    weights = [w for name, w in model.named_parameters() if "_proj.weight" in name]
    rng, means, taken = random.Random(seed), {}, torch.zeros(2)
    for stratum in SEEN:
        for half in range(2):
            texts = [_drawn(rng, stratum) for _ in range(sheets // 2)]
            prompts = torch.tensor([list(prompt_ids(tokenizer, text)) for text in texts])
            log_probs = model(prompts).logits[:, -1].float().log_softmax(-1)
            plain, turn = (log_probs[:, ids[0]] for ids in chosen)
            gradient = torch.autograd.grad((plain - turn).mean(), weights)
            means[stratum, half] = torch.cat([part.flatten().double() for part in gradient])
            taken += torch.stack([plain, turn]).detach().exp().mean(1) / 4
    (p0, p1), (t0, t1) = ([means[stratum, half] for half in range(2)] for stratum in SEEN)
    both = (p0 @ t1 + p1 @ t0) / 2
    own = 1 - both / torch.sqrt((p0 @ p1).clamp(min=0) * (t0 @ t1).clamp(min=0))
    return {"own": float(own), "plain": float(taken[0]), "turn": float(taken[1])}


def looks_from(history: Sequence[Mapping[str, Any]], window: int = 20, level: float = 0.8) -> int:
    """The first step at which the mean reward of the last `window` steps is above `level`, which a
    policy that neither looks nor adds right in any form cannot reach; 0 if there is none."""
    means = pd.Series([step["reward"] for step in history]).rolling(window).mean()
    above = np.flatnonzero(means > level)
    return int(above[0]) + 1 if len(above) else 0


def apart(forms: Mapping[str, float]) -> float:
    """How many points the share of plain forms is higher on `plain` sheets than on `turn` ones."""
    return round(100 * (forms["plain_on_plain"] - forms["plain_on_turn"]), 1)


def _drawn(rng: random.Random, stratum: str) -> str:
    name: StrategyName = "plain" if stratum == "plain" else "turn"
    return draw_sheet(rng, name, PARTS).text


def main(results: Results) -> None:
    """Measure each base of a study, print the table and keep it."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(results.folder.glob("models/*/base/model.safetensors")):
        found[file.parts[-3]] = own_part(file.parent)
        for history in sorted(file.parents[1].glob("*/seed1/history.jsonl")):
            steps = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
            base, row = file.parts[-3], history.parts[-3]
            forms = forms_of(results, Run(base, row, 1))
            found[base].setdefault("runs", {})[row] = [looks_from(steps), apart(forms)]
    if not found:
        raise SystemExit(f"{results.folder}: no base; give the results of a study, not a kept run")
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    write_json_atomic(FILE, kept | {results.folder.name: found})
    print(table(found))


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each base, the largest own part first; of a run its step and its points apart."""
    rows = sorted({name for own in found.values() for name in own.get("runs", ())})
    runs = {base: own.get("runs", {}) for base, own in found.items()}
    lines = [
        [f"`{base}`", f"{own['own']:.4f}"]
        + [
            f"{runs[base][r][0] or 'none'}, {runs[base][r][1]:.1f}" if r in runs[base] else "–"
            for r in rows
        ]
        for base, own in sorted(found.items(), key=lambda pair: -pair[1]["own"])
    ]
    return markdown(
        " | ".join(["base", "own part of the gradient", *(f"`{r}`" for r in rows)]), lines
    )


if __name__ == "__main__":
    main(Results(arguments.folder(__doc__)))
