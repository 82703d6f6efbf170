"""The tables of docs/measurements.md on the kept studies, printed as Markdown from their files.

    python -m benchmarks.study_tables

Each number is in a file of `reports/kept/{study}`, and `python -m benchmarks.keep_run --check
FOLDER` computes those about pass@k again from the kept counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import KEPT, SEEN, K, difference, frame, points_of, runs, study_of
from benchmarks.path_tables import (
    guided_at_the_end,
    half_lives,
    methods_over_bases,
    over_bases,
    over_training,
)
from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import ANSWERS, WORKING, curves_of, right_counts
from sage.evaluation.mixtures import beside_mixture
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.labels import row_title
from sage.rendering.numbers import percent
from sage.study import BASE, ResolvedStudy


def methods(
    study: str, model: str, benchmark: str, rows: Iterable[str], baseline: str = "grpo"
) -> str:
    """pass@1 and pass@16 of methods, what stands behind them, and their differences."""
    curves, behind = frame(study, "pass_at_k"), frame(study, "chance").fillna({"stratum": ""})
    curves, behind = (
        table[(table["model"] == model) & (table["benchmark"] == benchmark)]
        for table in (curves, behind)
    )

    def apart_of(row: str, k: int) -> tuple[float, float, float] | None:
        return difference(study, model, benchmark, row, baseline, k)

    lines = []
    for row in rows:
        own = curves[
            (curves["algorithm"] == row) & (curves["train_seed"] == (0 if row == BASE else -1))
        ]
        one, many = (own[own["k"] == k].iloc[0] for k in (1, K))
        luck = behind[(behind["algorithm"] == row) & (behind["stratum"] == "")].iloc[0]
        alone = row != BASE and runs(study, model, benchmark, row) < 2  # problems alone vary
        apart = ["" if row == baseline or alone else points_of(apart_of(row, k)) for k in (1, K)]
        lines.append(
            [
                "base" if row == BASE else row_title(study_of(study), row),
                str(runs(study, model, benchmark, row)),
                percent(one["value"]),
                percent(many["value"]),
                f"{100 * luck['chance']:.2f}",
                percent(luck["worked"]),
                *apart,
            ]
        )
    name = "GRPO" if baseline == "grpo" else row_title(study_of(study), baseline)
    return markdown(
        f"method | runs | pass@1 | pass@{K} | chance level | with correct working "
        f"| pass@1, minus {name} | pass@{K}, minus {name}",
        lines,
    )


def doses(study: str, rows: Iterable[str]) -> str:
    """The doses of guides and KL terms over training, from the kept histories."""
    steps = frame(study, "histories")
    lines = []
    for row in rows:
        own = steps[steps["algorithm"] == row]
        guide, kl = (own[key].mean() if key in own else np.nan for key in ("guide_dose", "kl_dose"))
        short = "" if np.isnan(guide) or guide >= 0.05 else f"{0.05 / guide:.1f}"
        lines.append(
            [
                row_title(study_of(study), row),
                "–" if np.isnan(guide) else f"{guide:.3f}",
                f"{kl:.3f}",
                short,
            ]
        )
    return markdown("method | dose of the guide | dose of the KL term | times too small", lines)


def contrasts(
    study: str, model: str, benchmarks: Iterable[str], pairs: Iterable[tuple[str, str]]
) -> str:
    """Differences of pairs of methods on several benchmarks, pass@1 and pass@16."""
    lines = []
    for row, other in pairs:
        for benchmark in benchmarks:
            names = f"{row_title(study_of(study), row)} − {row_title(study_of(study), other)}"
            title = study_of(study).study.problems[benchmark].title
            apart = (difference(study, model, benchmark, row, other, k) for k in (1, K))
            lines.append([names, title, *map(points_of, apart)])
    return markdown(f"contrast | problems | pass@1 | pass@{K}", lines)


def dose_cells(exhibit: str, study: str = "dose") -> str:
    """The guide's effect in each cell of an exhibit of the dose study."""
    table = frame(study, exhibit)
    lines = []
    for (beta, setting), cell in table.groupby(["kl_coefficient", "setting"], sort=False):
        one, many = (cell[cell["k"] == k].iloc[0] for k in (1, K))
        lines.append(
            [
                f"{beta:g}",
                f"{setting:g}",
                f"{one['guide_dose']:.3f}",
                percent(one["without"]),
                points_of((one["value"], one["low"], one["high"])),
                percent(many["without"]),
                points_of((many["value"], many["low"], many["high"])),
            ]
        )
    return markdown(
        f"β | ratio | dose | pass@1 without | guide's effect | pass@{K} without | guide's effect",
        lines,
    )


def trained_and_others(
    study: str, model: str, rows: Sequence[str], plain: str, draws: int = 4_000
) -> str:
    """Correct working on the strata that RL trains on, on the others, and against a mixture.

    The mixture is of the base and `plain`, with the accuracy of the method on the strata that RL
    trains on; intervals are over problems and training runs (`sage.evaluation.mixtures`).
    """
    counts = pd.read_parquet(KEPT / study / "counts.parquet")
    counts = counts[(counts["model"] == model) & (counts["benchmark"] == "sheets")]
    curves = {row: each for (_, row, _), each in curves_of(counts).items()}
    right, _ = right_counts(curves)
    n, groups = curves[BASE].n, curves[BASE].groups
    by_problem = counts.drop_duplicates("problem_id").set_index("problem_id")["stratum"]
    seen = by_problem.loc[list(curves[BASE].problems)].isin(SEEN).to_numpy()

    def paired(row: str) -> list[np.ndarray]:
        """A row's runs and those of `plain`, of the training seeds that both have."""
        both = (row, row) if row == BASE else (row, plain)
        seeds = [seed for seed in curves[row].seeds if seed in curves[both[1]].seeds]
        return [right[name][[curves[name].seeds.index(s) for s in seeds]] for name in both]

    lines = []
    for row in rows:
        own, other = paired(row)
        places = own, other, right[BASE][0]
        found = beside_mixture(*places, n, K, draws, groups, weights=seen / seen.mean())
        shares = found["accuracy"], own[..., ~seen].mean() / n, found["coverage"]
        there = row not in (BASE, plain) and not np.isnan(found["value"])
        apart = points_of((found["value"], found["low"], found["high"])) if there else ""
        short = "base" if row == BASE else cell_name(row)
        mixture = percent(found["mixture"]) if there else ""
        lines.append([short, *map(percent, shares), mixture, apart])
    return markdown(
        f"method | pass@1 where RL trains | elsewhere | pass@{K} | mixture, pass@{K} | difference",
        lines,
    )


def cell_name(row: str) -> str:
    """The name of a cell in words: β, and the guide's ratio."""
    beta, _, ratio = row.partition("-kl")[2].partition("-")
    return f"β {beta}, " + ("no guide" if ratio == "unguided" else ratio.replace("ratio", "ratio "))


def slopes(exhibits: Iterable[str], study: str = "dose") -> str:
    """What ten times the dose adds to pass@16, by world."""
    lines = []
    for exhibit in exhibits:
        table = frame(study, f"{exhibit}_slopes")
        for row in table.to_dict("records"):
            title = f"`{study_of(study).study.exhibits[exhibit].model}`"
            value = points_of((row["value"], row["low"], row["high"]))
            lines.append([title, row["estimator"], f"pass@{row['k']}", value])
    return markdown("world | KL term | k | ten times the dose adds", lines)


def rivals(study: str = "rivals") -> str:
    """Every method beside GRPO with a KL term, or without one where the method has none.

    pass@1 on the strata that RL trains on and pass@16 on all, by answers (as the claims are) and
    with correct working, and differences of both.
    """
    counts = pd.read_parquet(KEPT / study / "counts.parquet")
    counts = counts[counts["benchmark"] == "sheets"]
    kept, lines = study_of(study), []
    for row in [BASE, *kept.trained("sums")]:
        own = counts[counts["algorithm"] == row]
        n, seen = int(own["n_samples"].iloc[0]), own[own["stratum"].isin(SEEN)]
        shares = [
            (seen["correct"] / n).mean(),
            (seen["worked"] / n).mean(),
            pass_at_k(n, own["correct"].to_numpy(int), np.array([K])).mean(),
            pass_at_k(n, own["worked"].to_numpy(int), np.array([K])).mean(),
        ]
        if row == BASE:
            lines.append(["base", "", *map(percent, shares), "", ""])
            continue
        twin = "grpo" if kept.algorithms[row].kl != "none" else "grpo_no_kl"
        compared = ("sums", "sheets", row, twin, K)
        apart = [difference(study, *compared, metric) for metric in (ANSWERS, WORKING)]
        told = ["" if row == twin else points_of(each) for each in apart]
        rate = f"{kept.rl('sums', row).learning_rate:g}"
        title = row_title(kept, row)
        lines.append([title, rate, *map(percent, shares), *told])
    return markdown(
        "method | learning rate | pass@1 where RL trains | with correct working "
        f"| pass@{K} | with correct working | pass@{K} minus GRPO, with or without KL "
        "| with correct working",
        lines,
    )


def two_bases(study: str = "rivals") -> str:
    """What a study's kept runs from two bases show: the kept run, and `first_base` before it."""
    places = (KEPT / study / "first_base", KEPT / study)
    columns = [_of_base(place, study_of(study)) for place in places]
    lines = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return markdown(
        "with correct working where nothing else is said | first base, four runs "
        "| second base, ten runs",
        lines,
    )


def _of_base(place: Path, study: ResolvedStudy) -> dict[str, str]:
    """The rows of `two_bases` for one of them."""
    counts = pd.read_parquet(place / "counts.parquet")
    counts = counts[counts["benchmark"] == "sheets"].sort_values("problem_id")
    seen = counts["stratum"].isin(SEEN)

    def apart(row: str, other: str) -> str:
        two = pd.concat([counts[counts["algorithm"] == name] for name in (other, row)])
        table = comparisons_table(two, study.study.evaluation.bootstrap)
        (one,) = table[(table["metric"] == WORKING) & (table["k"] == K)].to_dict("records")
        return points_of([one[end] for end in ("value", "low", "high")])

    claims = pd.read_csv(place / "claims.csv").set_index(["claim", "test"])
    by_answers = claims.loc[("gains_of_grpo", 1), ["effect", "low", "high"]]
    grpo = counts[seen & (counts["algorithm"] == "grpo")]
    rows = {
        "GRPO, pass@1 where RL trains": percent((grpo["worked"] / grpo["n_samples"]).mean()),
        f"GRPO minus base, pass@{K}": apart("grpo", BASE),
        f"GRPO minus base, pass@{K} by answers": points_of([float(end) for end in by_answers]),
        f"GRPO w/o KL minus GRPO, pass@{K}": apart("grpo_no_kl", "grpo"),
        f"W-REINFORCE minus GRPO w/o KL, pass@{K}": apart("w_reinforce", "grpo_no_kl"),
        f"DARS minus GRPO w/o KL, pass@{K}": apart("dars", "grpo_no_kl"),
        f"strong guide minus none, pass@{K}": apart(*STRONG),
    }
    for where, here in (("where RL trains", seen), ("elsewhere", ~seen)):
        wrong = wrong_working(counts[here], study)
        rows[f"runs with wrong working {where}, without a KL term"] = wrong["none"]
        rows[f"runs with wrong working {where}, with one on all tokens"] = wrong["all"]
    return rows


def wrong_working(counts: pd.DataFrame, study: ResolvedStudy) -> dict[str, str]:
    """In how many runs less than 90 % of the right answers have correct working, by KL term.

    `none`, or on `all` tokens; SCOPE's is on `some`. Guided retry repeats GRPO without a KL term
    and is left out.
    """
    trained = counts[~counts["algorithm"].isin([BASE, "guided_retry"])]
    runs = trained.groupby(["algorithm", "train_seed"])[["correct", "worked"]].sum()
    kinds = {
        name: "none" if study.algorithms[name].kl == "none" else "all"
        for name in runs.index.levels[0]
    }
    kinds["scope"] = "some"
    wrong = (runs["worked"] < 0.9 * runs["correct"]).groupby(lambda run: kinds[run[0]])
    return {str(kind): f"{own.sum()} of {len(own)}" for kind, own in wrong}


MINI = ("grpo_no_kl", "grpo_branch", "grpo_k1_reward", "grpo_branch_k1_reward")
COMPARED = (BASE, "grpo", *MINI, "grpo_branch_strong_k1_reward")
CONTROLS = ("grpo_random_reward", "grpo_format_reward", "grpo_wrong_reward")
STRONG = ("grpo_branch_strong_k1_reward", "grpo_k1_reward")

CELL = "grpo_branch_k1_reward-kl{}-{}"
CELLS = [
    CELL.format(beta, end)
    for beta in ("0.05", "0.2")
    for end in ("unguided", "ratio0.3", "ratio1", "ratio3")
]
DOSES = ("dose_plus", "dose_minus")
FURTHER = ("dose_loss", "dose_zero")


def tables() -> Iterator[str]:
    """All tables, in the order of the page."""
    yield methods("mini", "sums", "sheets", (*COMPARED, "grpo_forward_kl", *CONTROLS))
    yield doses("mini", (*COMPARED[1:2], *MINI[1:], "grpo_branch_strong_k1_reward"))
    yield contrasts("mini", "sums", ("sheets",), (STRONG,))
    yield methods("mini", "routes", "routes", (BASE, "grpo", "grpo_no_kl", "grpo_branch"))
    for exhibit in DOSES:
        yield dose_cells(exhibit)
    yield slopes(DOSES)
    for exhibit in FURTHER:
        yield dose_cells(exhibit, "dose_more")
    yield slopes(FURTHER, "dose_more")
    for model in ("plus", "minus"):
        yield trained_and_others("dose", model, (BASE, *CELLS), CELLS[0])
    yield over_training()
    yield methods_over_bases()
    yield over_bases()
    yield half_lives()
    yield half_lives("long_bases")
    yield guided_at_the_end()
    yield rivals()
    yield two_bases()


if __name__ == "__main__":
    print("\n\n".join(tables()))
