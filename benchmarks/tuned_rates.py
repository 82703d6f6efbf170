"""Each method's learning rate by the rule of docs/method.md, from a finished tuning study.

    python -m benchmarks.tuned_rates results/rivals_tuning

Every model of the study is one rate. A rate is out if a run ended early or showed `truncated` or
`runaway` at its end; of the rest those count whose pass@1 is within a point of the method's best,
and of these the one with the highest pass@k with correct working is taken, the lowest at a tie.
Writes `benchmarks/tuned_rates.json` and prints a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import arguments
from benchmarks.chance import markdown
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.results import Results
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.training.signs import findings

ROOT = Path(__file__).parents[1]
CLOSE = 0.01
"""How far below the best pass@1 a rate may be, a share."""
RUINED = ("truncated", "runaway")


@dataclass(frozen=True)
class Trial:
    """A method at one rate: means over its runs, shares; `signs` of a run that went wrong.

    `where_trained` is each run's pass@1 on the strata of RL's problems, which the rule ignores.
    """

    method: str
    rate: float
    pass_at_1: float
    pass_at_k: float
    signs: list[str]
    where_trained: list[float] = field(default_factory=list)


def chosen(trials: Sequence[Trial]) -> Trial:
    """The trial of a method that the rule takes; ValueError if all of them went wrong."""
    sound = [trial for trial in trials if not trial.signs]
    if not sound:
        raise ValueError(f"{trials[0].method}: a run went wrong at every rate")
    best = max(trial.pass_at_1 for trial in sound)
    close = [trial for trial in sound if trial.pass_at_1 >= best - CLOSE]
    return max(close, key=lambda trial: (trial.pass_at_k, -trial.rate))


def signs_of(history: Path, study: ResolvedStudy, model: str) -> list[str]:
    """What of RUINED a run showed in its last step, and `stopped` if it has not all steps."""
    rows = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    rl = study.rl(model)
    late = {each.sign for each in findings(rows, rl.watch) if each.last >= rl.steps}
    stopped = ["stopped"] if len(rows) < rl.steps else []
    return [*(sign for sign in RUINED if sign in late), *stopped]


def trials_of(folder: Path, study: ResolvedStudy) -> dict[str, list[Trial]]:
    """The trials of each method, in the order of rates."""
    results, counts = Results(folder), read_frame(Results(folder).metrics("counts"))
    trials: dict[str, list[Trial]] = {}
    for model in sorted(study.study.models, key=lambda name: study.rl(name).learning_rate):
        k = study.evaluation(model).primary_k
        strata = study.problem_set(study.rl(model).problems)["strata"]
        for method in study.trained(model):
            own = counts[(counts["model"] == model) & (counts["algorithm"] == method)]
            coverage = pass_at_k(
                int(own["n_samples"].iloc[0]), own["worked"].to_numpy(int), np.array([k])
            )
            seen = own[own["stratum"].isin(strata)].groupby("train_seed")
            signs = [
                sign
                for run in study.runs_of(model, method)
                for sign in signs_of(results.history(run), study, model)
            ]
            trials.setdefault(method, []).append(
                Trial(
                    method,
                    study.rl(model).learning_rate,
                    round(float((own["correct"] / own["n_samples"]).mean()), 4),
                    round(float(coverage.mean()), 4),
                    sorted(set(signs)),
                    (seen["correct"].sum() / seen["n_samples"].sum()).round(3).tolist(),
                )
            )
    return trials


def table(trials: Mapping[str, Sequence[Trial]]) -> str:
    """A row for each method: the rate that is taken, then pass@1 / pass@k at every rate."""
    rates = sorted({trial.rate for own in trials.values() for trial in own})
    lines = [
        [
            f"`{method}`",
            f"{chosen(own).rate:g}",
            *(
                f"{100 * trial.pass_at_1:.1f} / {100 * trial.pass_at_k:.1f}"
                + (f" ({', '.join(trial.signs)})" if trial.signs else "")
                for trial in own
            ),
        ]
        for method, own in trials.items()
    ]
    return markdown(f"method | rate | {' | '.join(f'{rate:g}' for rate in rates)}", lines)


def main(folder: Path) -> None:
    """Choose, print and write."""
    trials = trials_of(folder, load_study(folder.name, ROOT / "config"))
    print(table(trials))
    report = {
        "command": f"python -m benchmarks.tuned_rates results/{folder.name}",
        "rates": {method: chosen(own).rate for method, own in trials.items()},
        "trials": [asdict(trial) for own in trials.values() for trial in own],
    }
    path = ROOT / "benchmarks/tuned_rates.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(arguments.folder(__doc__))
