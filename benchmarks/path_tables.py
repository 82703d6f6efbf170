"""Tables of docs/measurements.md about training as it goes on, and about ten bases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import t

from benchmarks.chance import markdown
from benchmarks.kept_tables import KEPT, SEEN, K, difference, frame, points_of, study_of
from sage.evaluation.intervals import groups_of, mean_of, parts_of
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.labels import row_title
from sage.rendering.numbers import interval_of_points, percent, points
from sage.study import BASE

GUIDED = ("grpo_branch_stronger_k1_reward", "grpo_branch_strong_k1_reward")
PLAIN = "grpo_k1_reward"
DRAWS = 10_000

Effect = tuple[float, float, float]
"""A mean and its 95 % interval."""


def over_training(study: str = "equal_accuracy") -> str:
    """Correct working of GRPO as it trains, hotter, and of other methods, by where RL trains."""
    counts = pd.concat(
        pd.read_parquet(KEPT / study / f"{name}.parquet")
        for name in ("counts", "free_rivals_counts")
    )
    title = row_title(study_of(study), "grpo")
    names = {BASE: "base"}
    names |= {f"step-{step}": f"{title}, step {step}" for step in range(10, 100, 10)}
    names |= {"grpo": f"{title}, step 100"}
    names |= {f"temperature-{t}": f"{title}, temperature {t}" for t in ("1.25", "1.5", "2")}
    methods = ("grpo_k1_reward", "grpo_branch_strong_k1_reward", "grpo_forward_kl", "grpo_no_kl")
    names |= {row: row_title(study_of(study), row) for row in methods}
    lines = []
    for model, chosen in (("sums", names), ("sums_full", {"grpo": f"{title}, full fine-tuning"})):
        for name, words in chosen.items():
            own = counts[(counts["algorithm"] == name) & (counts["model"] == model)]
            n, seen = int(own["n_samples"].iloc[0]), own["stratum"].isin(SEEN)
            shares = [(own["worked"][part] / n).mean() for part in (seen, ~seen)]
            covered = pass_at_k(n, own["worked"].to_numpy(int), np.array([K])).mean()
            most = (own[seen].groupby("train_seed")["worked"].mean() / n).agg(["min", "max"])
            spread = f"{percent(most['min'])} to {percent(most['max'])}"
            apart = spread if own["train_seed"].nunique() > 1 else ""
            lines.append([words, percent(shares[0]), apart, *map(percent, (shares[1], covered))])
    return markdown(
        f"policy | pass@1 where RL trains | of single runs | elsewhere | pass@{K}", lines
    )


def early_line(accuracies: Sequence[float], coverages: Sequence[float], accuracy: float) -> float:
    """Coverage of a policy stopped where it has `accuracy`, linear between its moments.

    Moments may be in any order. Above the most accurate and below the least it is theirs.
    """
    order = np.argsort(accuracies, kind="stable")
    return float(np.interp(accuracy, np.array(accuracies)[order], np.array(coverages)[order]))


def beside_stops(
    own: np.ndarray, path: np.ndarray, n: int, k: int, trained: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Accuracy and coverage of a policy, and by problem what it covers beyond an early stop, `[P]`.

    `own` `[P]` and those of a `path` `[M, P]`, a run at M moments, are right samples of `n`.
    Accuracy is pass@1 on `trained` problems `[P]`, coverage pass@k on all. The run is stopped where
    it is as accurate (`early_line`). The mean over problems is the difference; single values also
    have what a problem's accuracy moves the stop by, to first order.
    """
    weights = trained / trained.mean()
    accuracies, coverages = weights * path / n, pass_at_k(n, path, np.array([k]))[..., 0]
    accuracy, coverage = weights * own / n, pass_at_k(n, own, np.array([k]))[..., 0]
    order = np.argsort(accuracies.mean(axis=1), kind="stable")
    means = accuracies.mean(axis=1)[order]
    at = int(np.clip(np.searchsorted(means, accuracy.mean()), 1, len(means) - 1))
    (low, high), gap = order[at - 1 : at + 1], means[at] - means[at - 1]
    share = float(np.clip((accuracy.mean() - means[at - 1]) / gap, 0.0, 1.0)) if gap else 1.0
    stopped, its_accuracy = (
        (1 - share) * each[low] + share * each[high] for each in (coverages, accuracies)
    )
    slope = (coverages[high] - coverages[low]).mean() / gap if 0 < share < 1 else 0.0
    beyond = coverage - stopped - slope * (accuracy - its_accuracy)
    return float(accuracy.mean()), float(coverage.mean()), beyond


def over_problems(beyond: Sequence[np.ndarray], strata: Sequence[str]) -> Effect:
    """The mean of `beside_stops` over runs or bases `[S]` of the same problems, with its interval.

    Runs and problems are both random; `strata` `[P]` of problems are fixed.
    """
    groups = groups_of([""] * len(strata), strata)
    estimate = mean_of([parts_of(np.array(beyond)[..., None], DRAWS, None, groups)])
    low, high = estimate.interval()
    return float(estimate.value[0]), float(low[0]), float(high[0])


def beyond_early_stopping(study: str, plain: str, guided: Sequence[str]) -> pd.DataFrame:
    """For each base and guided method: what it has, and what stopping `plain` early has.

    `accuracy` is pass@1 on the strata that RL trains on, `coverage` pass@16 on all, both with
    correct working; `early` is the coverage of `plain` stopped at that accuracy, and `beyond` and
    `strata` what `over_problems` takes. `reached` is whether `plain` ever is so accurate; if not,
    `early` is that of its most accurate moment.
    """
    counts = pd.concat(pd.read_parquet(each) for each in (KEPT / study).glob("*counts.parquet"))
    counts = counts[counts["benchmark"] == "sheets"]
    rows = []
    for model, of_base in counts.groupby("model"):
        n = int(of_base["n_samples"].iloc[0])
        by_name = of_base.pivot(index="algorithm", columns="problem_id", values="worked")
        strata = of_base.drop_duplicates("problem_id").set_index("problem_id")["stratum"]
        strata = strata[by_name.columns]
        path = [name for name in by_name.index if name in (BASE, plain) or name[:5] == "step-"]
        moments, trained = by_name.loc[path].to_numpy(int), strata.isin(SEEN).to_numpy()
        most = moments[:, trained].mean(axis=1).max() / n
        for name in guided:
            own = by_name.loc[name].to_numpy(int)
            accuracy, coverage, beyond = beside_stops(own, moments, n, K, trained)
            values = accuracy, coverage, coverage - beyond.mean(), beyond.mean()
            rows.append((model, name, *values, accuracy <= most, beyond, [*strata]))
    columns = ["model", "algorithm", "accuracy", "coverage", "early", "difference", "reached"]
    return pd.DataFrame(rows, columns=[*columns, "beyond", "strata"])


def methods_over_bases(study: str = "bases", group: str = "ten", baseline: str = "grpo") -> str:
    """pass@1 and pass@16 as means over bases, and differences whose intervals are over bases."""
    curves = frame(study, "pass_at_k")
    curves = curves[curves["benchmark"] == "sheets"]
    models, lines = study_of(study).study.bases[group], []
    for row in [BASE, *study_of(study).trained(models[0])]:
        own = curves[
            (curves["algorithm"] == row) & (curves["train_seed"] == (0 if row == BASE else -1))
        ]
        values = own.pivot(index="model", columns="k", values="value").loc[models]
        most = curves[(curves["algorithm"] == baseline) & (curves["train_seed"] == -1)]
        before = most.pivot(index="model", columns="k", values="value").loc[models]
        apart = 100 * (values - before)[K]
        own_apart = (difference(study, group, "sheets", row, baseline, k) for k in (1, K))
        lines.append(
            [
                "base" if row == BASE else row_title(study_of(study), row),
                *(percent(values[k].mean()) for k in (1, K)),
                *(["", ""] if row == baseline else map(points_of, own_apart)),
                "" if row == baseline else interval_of_points(apart.min() / 100, apart.max() / 100),
            ]
        )
    name = row_title(study_of(study), baseline)
    return markdown(
        f"method | pass@1 | pass@{K} | pass@1, minus {name} | pass@{K}, minus {name} "
        f"| of single bases",
        lines,
    )


def over_bases(study: str = "bases") -> str:
    """The guide against stopping early at equal accuracy: means over bases and sheets."""
    lines = []
    table = beyond_early_stopping(study, PLAIN, GUIDED)
    for name, own in table.groupby("algorithm", sort=False):
        means = (percent(own[column].mean()) for column in ("accuracy", "coverage", "early"))
        values, equal = own["difference"], own[own["reached"]]
        apart = (
            points_of(over_problems([*each["beyond"]], each["strata"].iloc[0]))
            for each in (own, equal)
        )
        above = f"{(values > 0).sum()} of {len(values)}"
        lines.append(
            [row_title(study_of(study), str(name)), *means, *apart, str(len(equal)), above]
        )
    return markdown(
        f"method | pass@1 where RL trains | pass@{K} | stopped early, pass@{K} | difference "
        "| where stopped early is as accurate | bases of that | bases above 0",
        lines,
    )


def mean_over(values: np.ndarray) -> tuple[float, float, float]:
    """The mean over bases with its 95 % interval by Student's t."""
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


MOMENTS = (0, 100, 200, 300, 500, 700, 1000)


def half_life(steps: Sequence[int], values: Sequence[float]) -> float | None:
    """The step at which `values` first fall to half of their first, linear between; None if never.

    Steps ascend.
    """
    half = values[0] / 2
    for at in range(1, len(steps)):
        if values[at] <= half:
            share = (values[at - 1] - half) / (values[at - 1] - values[at])
            return steps[at - 1] + share * (steps[at] - steps[at - 1])
    return None


def path_of(study: str, exhibit: str, seed: int) -> pd.DataFrame:
    """A run as it trains: by step, pass@1 where RL trains and coverage where it does not.

    `exhibit` is one that follows a method (`cost_free_baselines`). `accuracy` counts right answers
    and `worked` right working; `coverage` is pass@16 with it.
    """
    followed = study_of(study).study.exhibits[exhibit]
    model, row = followed.model, followed.baseline
    final = pd.read_parquet(KEPT / study / "counts.parquet")
    final = final[(final["model"] == model) & final["algorithm"].isin([BASE, row])]
    kept = pd.read_parquet(KEPT / study / f"{exhibit}_counts.parquet")
    counts = pd.concat([final, kept])
    names = {BASE: 0, row: study_of(study).model(model).rl.steps}
    names |= {n: int(n[5:]) for n in kept["algorithm"].unique() if n.startswith("step-")}
    lines = []
    for name, step in sorted(names.items(), key=lambda pair: pair[1]):
        own = counts[(counts["algorithm"] == name) & counts["train_seed"].isin([seed, 0])]
        seen, n = own["stratum"].isin(SEEN), int(own["n_samples"].iloc[0])
        elsewhere = pass_at_k(n, own.loc[~seen, "worked"].to_numpy(int), np.array([K])).mean()
        shares = (own.loc[seen, column].mean() / n for column in ("correct", "worked"))
        lines.append([step, *shares, elsewhere])
    columns = ["step", "accuracy", "worked", "coverage"]
    return pd.DataFrame(lines, columns=columns).set_index("step")


def paths(study: str) -> dict[tuple[str, str, int], pd.DataFrame]:
    """`path_of` each run that an exhibit of the study follows, by model, method and seed."""
    exhibits = study_of(study).study.exhibits
    followed = {name: one for name, one in exhibits.items() if one.kind == "cost_free_baselines"}
    return {
        (one.model, one.baseline, seed): path_of(study, name, seed)
        for name, one in followed.items()
        for seed in study_of(study).seeds(one.model, one.baseline)
    }


def half_lives(study: str = "long") -> str:
    """Each run's coverage where RL does not train, over steps; its half-life, with the accuracy
    where RL trains at that step; and its end."""
    lines, found = [], paths(study)
    several = len({model for model, _, _ in found}) > 1
    for (model, row, seed), path in found.items():
        half = half_life([*path.index], [*path["coverage"]])
        lines.append(
            [
                row_title(study_of(study), row),
                study_of(study).model(model).title if several else str(seed),
                *(percent(path["coverage"][step]) for step in MOMENTS),
                "none" if half is None else f"{half:.0f}",
                "–" if half is None else percent(np.interp(half, path.index, path["worked"])),
                *(percent(path[column].iloc[-1]) for column in ("accuracy", "worked")),
            ]
        )
    moments = " | ".join(f"step {step}" for step in MOMENTS)
    return markdown(
        f"method | {'base' if several else 'run'} | {moments} | half-life "
        "| pass@1 with correct working then | pass@1 where RL trains | with correct working",
        lines,
    )


def guided_at_the_end(study: str = "long_bases") -> str:
    """Coverage at the end with the guide minus without, the mean over bases by Student's t."""
    ends = pd.Series({key: path["coverage"].iloc[-1] for key, path in paths(study).items()})
    by_row = ends.groupby(level=[0, 1], sort=False).mean().unstack(sort=False)
    apart = (by_row[GUIDED[0]] - by_row[PLAIN]).to_numpy()
    each = ", ".join(points(value) for value in apart)
    return f"at the end the guide has {points_of(mean_over(apart))}; of the bases in order {each}"
