"""Tables that texts quote and no exhibit makes, from the counts of kept runs.

`by_stratum.csv` has each policy of a run, moments of training among them, where RL trains and where
it does not; `fixed_stops.csv` has a guide minus the same method stopped at fixed steps. `early.csv`
holds a guide against the same method stopped where it is as accurate, `interaction.csv` what a
guide does in the reward minus what it does in the loss, `doses.csv` what guides did to advantages,
`working.csv` counts runs whose right answers have wrong working, `pooled.csv` joins two studies
of a guide, `alignment` holds what was measured on bases against what guides did
(`workflow.alignment_tables`), and `paper/tested` has the exhibit `paper_tests` of the study
`paper`, which needs no run. `make numbers` writes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import ANSWERS, WORKING
from sage.evaluation.intervals import ANY_DIFFERENCES, groups_of, mean_of, parts_of, student
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import kept_study, load_study, shows
from sage.exhibits.kind import Display
from sage.study import BASE
from sage.tools.keep import ROOT
from workflow import alignment_tables

REPORTS = ROOT / "reports"
GUIDED, PLAIN = "grpo_branch_stronger_k1_reward", "grpo_k1_reward"
BENCHMARK = "sheets"
PARTS = ("all", "trained", "others")
"""All strata, those that RL trains on, and the others."""

STRATA = ("mini/mini", "early_stopping/equal_accuracy", "pretrained/pretrained_plain")
"""Runs that get a `by_stratum.csv`."""

EARLY = ("bases/bases", "pretrained/pretrained_plain")
"""Runs that get an `early.csv`."""

STOPS = ("step-20", "step-30", "step-40")

DRAWS = 10_000

POOLED = ("pretrained_short", "pretrained_plain")
"""Studies of one model and two kinds of RL that `pooled.csv` joins."""


def tables() -> dict[Path, pd.DataFrame]:
    """Every table, by its file."""
    made = {REPORTS / name / "by_stratum.csv": strata(REPORTS / name) for name in STRATA}
    made[REPORTS / "bases/bases/fixed_stops.csv"] = fixed_stops(REPORTS / "bases/bases")
    made[REPORTS / "dose/matched/interaction.csv"] = interaction(REPORTS / "dose/matched")
    made[REPORTS / "mini/mini/doses.csv"] = doses(REPORTS / "mini/mini")
    made |= {REPORTS / n / "early.csv": beyond_early_stopping(REPORTS / n) for n in EARLY}
    made[REPORTS / "rivals/rivals/working.csv"] = wrong_working(REPORTS / "rivals/rivals")
    made[REPORTS / "pretrained/pooled.csv"] = pooled()
    made |= alignment_tables.tables(REPORTS / "alignment")
    paper = load_study("paper", ROOT / "config")
    shown = Display(paper, "paper_tests", [], REPORTS / "paper")
    for suffix, make in shows(paper, "paper_tests").tables().items():
        made[REPORTS / f"paper/tested/paper_tests{suffix}.csv"] = make(shown).frame
    return made


def text_of(table: pd.DataFrame) -> str:
    """A table as it stands in its file."""
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


def counts_of(folder: Path) -> pd.DataFrame:
    """The counts of a kept run on sheets, those of moments of training and temperatures among them.

    The base stands once, with the study's counts.
    """
    files = sorted(folder.glob("*counts.parquet"), key=lambda file: file.name != "counts.parquet")
    counts = pd.concat([pd.read_parquet(file) for file in files])
    counts = counts[counts["benchmark"] == BENCHMARK]
    keys = ["model", "algorithm", "train_seed", "problem_id"]
    return counts.drop_duplicates(keys).reset_index(drop=True)


def trained_strata(folder: Path, model: str) -> Sequence[str]:
    """The strata of the sheets that RL trains a kept run's model on; none where it has no RL."""
    return kept_study(folder).trained_strata(model)


def strata(folder: Path) -> pd.DataFrame:
    """pass@k of each policy and its difference from the base, by PARTS, at k = 1 and the primary k.

    `runs` are those of the policy. Intervals are those of `comparisons_table`.
    """
    study, rows = kept_study(folder), []
    for model, own in counts_of(folder).groupby("model", sort=False):
        trained, k = trained_strata(folder, model), study.evaluation(model).primary_k
        seen = own["stratum"].isin(trained)
        if seen.all() or not seen.any():
            continue
        for part, chosen in zip(PARTS, (own, own[seen], own[~seen]), strict=True):
            base = chosen[chosen["algorithm"] == BASE]
            for policy, of_policy in chosen.groupby("algorithm", sort=False):
                apart = _from_base(base, of_policy, study.study.evaluation.bootstrap)
                n, runs = int(of_policy["n_samples"].iloc[0]), of_policy["train_seed"].nunique()
                for metric, column in ((ANSWERS, "correct"), (WORKING, "worked")):
                    right = of_policy[column].to_numpy(dtype=int)
                    values = pass_at_k(n, right, np.array([1, k])).mean(axis=0)
                    for one, value in zip((1, k), values, strict=True):
                        ends = apart.get((metric, one), (np.nan,) * 3)
                        rows.append((model, policy, runs, part, metric, one, value, *ends))
    columns = ["model", "algorithm", "runs", "part", "metric", "k", "value", "minus_base"]
    return pd.DataFrame(rows, columns=[*columns, "low", "high"])


def _from_base(
    base: pd.DataFrame, policy: pd.DataFrame, draws: int
) -> dict[tuple[str, int], tuple[float, float, float]]:
    """A policy minus the base with its interval, by metric and k; nothing for the base itself."""
    if (policy["algorithm"] == BASE).all() or base.empty:
        return {}
    table = comparisons_table(pd.concat([base, policy]).reset_index(drop=True), draws)
    return {
        (row["metric"], row["k"]): (row["value"], row["low"], row["high"])
        if row["other"] == BASE
        else (-row["value"], -row["high"], -row["low"])
        for row in table.to_dict("records")
    }


def fixed_stops(folder: Path) -> pd.DataFrame:
    """A guided method, and the same without its guide, minus that stopped at fixed steps.

    pass@k with correct working at k = 1 and the primary k, by PARTS, over all bases of a run.
    """
    study, counts, rows = kept_study(folder), counts_of(folder), []
    models = [*counts["model"].unique()]
    seen = counts["stratum"].isin(trained_strata(folder, models[0]))
    counts = counts[counts["algorithm"].isin([GUIDED, PLAIN, *STOPS])].assign(seen=seen)
    parts = counts, counts[counts["seen"]], counts[~counts["seen"]]
    for part, chosen in zip(PARTS, parts, strict=True):
        own = chosen.drop(columns="seen").reset_index(drop=True)
        table = comparisons_table(own, study.study.evaluation.bootstrap, {"all": models})
        of_k = table["k"].isin([1, study.evaluation(models[0]).primary_k])
        for row in table[of_k & (table["metric"] == WORKING)].to_dict("records"):
            ends = [row["value"], row["low"], row["high"]]
            pair = row["algorithm"], row["other"]
            if pair[0] in STOPS:  # a stop is what is taken away
                pair, ends = pair[::-1], [-ends[0], -ends[2], -ends[1]]
            if pair[1] in STOPS and pair[0] not in STOPS:
                rows.append((part, *pair, row["k"], *ends))
    return pd.DataFrame(rows, columns=["part", "algorithm", "stop", "k", "value", "low", "high"])


def interaction(folder: Path) -> pd.DataFrame:
    """What a guide adds to pass@k with the KL term in the reward, minus what it adds in the loss.

    For each scale of advantages; runs are paired by their seed.
    """
    counts, rows = counts_of(folder), []
    k = kept_study(folder).evaluation("sums").primary_k
    strata = counts.drop_duplicates("problem_id").sort_values("problem_id")["stratum"]
    for scale in ("centred", "group"):
        arms = []
        for place, guide in itertools.product(("reward", "loss"), ("_guide", "")):
            own = counts[counts["algorithm"] == f"{place}_{scale}{guide}"]
            right = own.pivot(index="train_seed", columns="problem_id", values="correct")
            n = int(own["n_samples"].iloc[0])
            arms.append(pass_at_k(n, right.to_numpy(dtype=int), np.array([k])))
        values = arms[0] - arms[1] - (arms[2] - arms[3])
        groups = groups_of([""] * len(strata), [*strata])
        estimate = mean_of([parts_of(values, DRAWS, ANY_DIFFERENCES, groups)])
        low, high = (float(end[0]) for end in estimate.interval())
        rows.append((scale, float(estimate.value[0]), low, high, len(values)))
    return pd.DataFrame(rows, columns=["scale", "value", "low", "high", "runs"])


def early_line(accuracies: Sequence[float], coverages: Sequence[float], accuracy: float) -> float:
    """Coverage of a policy stopped where it has `accuracy`, linear between its moments.

    Moments may be in any order. Above the most accurate and below the least it is theirs.
    """
    order = np.argsort(accuracies, kind="stable")
    return float(np.interp(accuracy, np.array(accuracies)[order], np.array(coverages)[order]))


def beside_stops(
    own: np.ndarray, path: np.ndarray, n: int, k: int, trained: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Accuracy and coverage of a policy, and what it covers beyond an early stop, by problem `[P]`.

    `own` `[P]` and a `path` `[M, P]` of another run at M moments are right samples of `n`. Accuracy
    is pass@1 on `trained` problems `[P]`, coverage pass@k on all. The other run is stopped where it
    is as accurate, linear between its moments. The mean over problems is the difference; a single
    value also has what that problem's accuracy moves the stop by, to first order.
    """
    weights = trained / trained.mean()
    accuracies, coverages = weights * path / n, pass_at_k(n, path, np.array([k]))[..., 0]
    accuracy, coverage = weights * own / n, pass_at_k(n, own, np.array([k]))[..., 0]
    order = np.argsort(accuracies.mean(axis=1), kind="stable")
    means = accuracies.mean(axis=1)[order]
    at = int(np.clip(np.searchsorted(means, accuracy.mean()), 1, len(means) - 1))
    low, high, gap = order[at - 1], order[at], means[at] - means[at - 1]
    share = float(np.clip((accuracy.mean() - means[at - 1]) / gap, 0.0, 1.0)) if gap else 1.0
    stopped, moved = ((1 - share) * a[low] + share * a[high] for a in (coverages, accuracies))
    slope = (coverages[high] - coverages[low]).mean() / gap if 0 < share < 1 else 0.0
    beyond = coverage - stopped - slope * (accuracy - moved)
    return float(accuracy.mean()), float(coverage.mean()), beyond


def beyond_early_stopping(folder: Path, plain: str = PLAIN, guided: str = GUIDED) -> pd.DataFrame:
    """For each run of a guided method: what it has, and what stopping `plain` early has.

    `accuracy` is pass@1 where RL trains, `coverage` pass@k on all strata, both with correct
    working; `early` is the coverage of `plain`, of the same base and seed, stopped at that
    accuracy. `reached` is whether `plain` ever is so accurate. The last rows are means with their
    95 % intervals over runs and problems: of `all` runs, one that is not reached beside the nearest
    moment, and of those that are `matched`; and the `median` of all.
    """
    rows, apart = [], []
    counts = counts_of(folder)
    runs = counts.loc[counts["algorithm"] == guided, ["model", "train_seed"]].drop_duplicates()
    for model, seed in runs.itertuples(index=False):
        here = counts[(counts["model"] == model) & counts["train_seed"].isin([0, seed])]
        right = here.pivot(index="algorithm", columns="problem_id", values="worked")
        strata = here.drop_duplicates("problem_id").set_index("problem_id")["stratum"]
        strata = strata.loc[right.columns]
        path = [name for name in right.index if name in (BASE, plain) or name[:5] == "step-"]
        moments, own = right.loc[path].to_numpy(dtype=int), right.loc[guided].to_numpy(dtype=int)
        trained = strata.isin(trained_strata(folder, model)).to_numpy()
        n, k = int(here["n_samples"].iloc[0]), kept_study(folder).evaluation(model).primary_k
        accuracy, coverage, beyond = beside_stops(own, moments, n, k, trained)
        ends = moments[:, trained].mean(axis=1) / n
        reached = ends.min() <= accuracy <= ends.max()
        values = accuracy, coverage, coverage - beyond.mean(), reached, beyond.mean()
        rows.append((model, seed, *values))
        apart.append(beyond)
    columns = ["model", "seed", "accuracy", "coverage", "early", "reached", "value"]
    table = pd.DataFrame(rows, columns=columns)
    groups, means = groups_of([""] * len(strata), [*strata]), []
    for name, chosen in (("all", [True] * len(table)), ("matched", table["reached"])):
        runs_apart = np.array(apart)[np.array(chosen)][..., None]
        estimate = mean_of([parts_of(runs_apart, DRAWS, ANY_DIFFERENCES, groups)])
        low, high = (float(end[0]) for end in estimate.interval())
        value = float(estimate.value[0])
        means.append({"model": name, "value": value, "low": low, "high": high, "n": sum(chosen)})
    means.append({"model": "median", "value": table["value"].median(), "n": len(table)})
    return pd.concat([table, pd.DataFrame(means)])


def _mean(values: np.ndarray) -> dict[str, float]:
    """A mean with its 95 % interval by Student's t, and of how many."""
    half = student(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    mean = float(values.mean())
    return {"value": mean, "low": mean - half, "high": mean + half, "n": len(values)}


def doses(folder: Path) -> pd.DataFrame:
    """The mean dose of each method's guide and KL term over training, from the kept histories."""
    steps = pd.read_csv(folder / "histories.csv.gz")
    means = steps.groupby("algorithm", sort=False)[["guide_dose", "kl_dose"]].mean()
    return means.rename(columns={"guide_dose": "dose"}).reset_index()


def wrong_working(folder: Path) -> pd.DataFrame:
    """In how many runs less than 90 % of the right answers have correct working, by KL term.

    `none`, or on `all` tokens, where RL trains and elsewhere. SCOPE has a KL term on some tokens,
    and guided retry repeats GRPO without one: both are left out.
    """
    study, counts, rows = kept_study(folder), counts_of(folder), []
    for part, seen in (("trained", True), ("others", False)):
        here = counts["stratum"].isin(trained_strata(folder, "sums")) == seen
        own = counts[here & ~counts["algorithm"].isin([BASE, "guided_retry", "scope"])]
        runs = own.groupby(["algorithm", "train_seed"])[["correct", "worked"]].sum()
        wrong = runs["worked"] < 0.9 * runs["correct"]
        without = [study.algorithms[name].kl == "none" for name, _ in runs.index]
        for kind, chosen in (("none", np.array(without)), ("all", ~np.array(without))):
            rows.append((kind, part, int(wrong[chosen].sum()), int(chosen.sum())))
    return pd.DataFrame(rows, columns=["kl", "part", "wrong", "runs"])


def pooled() -> pd.DataFrame:
    """The guide minus the same without it in pass@k with correct working, a pretrained model.

    Each training seed of POOLED is one difference; its mean with the interval by Student's t.
    """
    rows = []
    for name in POOLED:
        folder = REPORTS / "pretrained" / name
        counts, k = counts_of(folder), kept_study(folder).evaluation("sums").primary_k
        for (policy, seed), own in counts.groupby(["algorithm", "train_seed"]):
            worked = own["worked"].to_numpy(dtype=int)
            value = pass_at_k(int(own["n_samples"].iloc[0]), worked, np.array([k])).mean()
            rows.append((name, policy, seed, value))
    values = pd.DataFrame(rows, columns=["study", "algorithm", "seed", "value"])
    wide = values.pivot(index=["study", "seed"], columns="algorithm", values="value")
    apart = (wide[GUIDED] - wide[PLAIN]).dropna()
    table = apart.rename("value").reset_index().assign(seed=lambda t: t["seed"].astype(str))
    mean = {"study": "both", "seed": "all", **_mean(apart.to_numpy())}
    return pd.concat([table, pd.DataFrame([mean])])
