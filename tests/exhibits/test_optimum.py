"""The optimum of Eq. 4 from samples of the base: by hand, and against exact policies of a tree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from graded import problem, samples
from test_perplexity import network, random_pairs  # noqa: F401  (a fixture)
from trainers import write_parent

from reports.early_stopping.optimum import (
    divergence,
    effective_size,
    log_q_of,
    optimal_weights,
    optimum_row,
)
from sage.exhibits import load_study
from sage.exhibits.kind import Measuring
from sage.problems.record import write_problems
from sage.runtime.manifest import Manifest
from sage.study import StudyError
from sage.theory.toy import BRANCH, rlvr_policy, sage_policy

ROOT = Path(__file__).parents[2]


def test_weights_by_hand() -> None:
    """q is 1 and 2 at reward 1, and 1 at reward 0 with beta 1 / log 3: weights 1/3 : 2/3, 3 : 1."""
    weights = optimal_weights(np.log([[1.0, 2.0], [1.0, 1.0]]), np.eye(2), 1 / np.log(3))
    assert weights == pytest.approx(np.array([[3 / 5, 2 / 5], [1 / 4, 3 / 4]]))
    assert effective_size(weights) == pytest.approx(np.array([25 / 13, 8 / 5]))
    nats = 0.6 * np.log(1.2) + 0.4 * np.log(0.8)
    assert divergence(weights)[0] == pytest.approx(nats)
    assert divergence(np.array([0.0, 1.0])) == pytest.approx(np.log(2))
    with pytest.raises(ValueError, match="beta is 0 but must be above 0"):
        optimal_weights(np.zeros(2), np.zeros(2), 0)


def test_a_problem_is_estimable_by_its_effective_samples() -> None:
    """Right in 8, 4 and 0 of 16 samples; with a large reward only right samples have weight."""
    right = (np.arange(16)[None] < np.array([[8], [4], [0]])).astype(float)
    row = optimum_row(np.zeros((3, 16)), right, 0.02)
    assert row["problems"] == 3
    assert row["solved"] == pytest.approx(2 / 3)
    assert row["estimable"] == pytest.approx(1 / 3)
    assert row["accuracy"] == pytest.approx(1)
    assert row["effective"] == pytest.approx(8)
    assert row["kl_optimum"] == pytest.approx(np.log(2))
    assert row["moved"] == row["log_q_gap"] == 0
    log_q = np.where(np.arange(16) < 4, np.log(3.0), 0.0) * np.ones((3, 1))
    moved = optimum_row(log_q, right, 0.02)
    assert moved["moved"] == pytest.approx(0.25)  # 3/4 of the mass of right ones, and not 1/2
    assert moved["accuracy"] == pytest.approx(1)
    assert moved["log_q_gap"] == pytest.approx(np.log(3) * (1 / 2 + 1) / 2)
    assert np.isnan(optimum_row(log_q[2:], right[2:], 0.02)["accuracy"])
    # Where methods are compared, it is on problems that are estimable for all.
    alone = optimum_row(np.zeros((3, 16)), right, 0.02, np.array([False, True, False]))
    assert alone["estimable"] == pytest.approx(1 / 3)
    assert alone["effective"] == pytest.approx(4)  # of the second problem, not the first


def test_samples_of_the_reference_give_the_exact_optimum() -> None:
    """Over 400,000 draws from five completions, the optimum's chance of being right, its KL
    divergence from the reference and what the guide moves are those of the exact policies."""
    reference = torch.tensor([0.5, 0.3, 0.1, 0.08, 0.02], dtype=torch.float64).log()
    guide = torch.tensor([0.6, 1.4, 1.0, 0.8, 1.4], dtype=torch.float64).log()
    reward, beta = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64), 0.5
    policies = sage_policy(reference, guide, reward, beta), rlvr_policy(reference, reward, beta)
    exact = [policy.exp().numpy() for policy in policies]
    drawn = np.random.default_rng(3).choice(len(BRANCH), 400_000, p=reference.exp().numpy())
    row = optimum_row(guide.numpy()[drawn][None], reward.numpy()[drawn][None], beta)
    right = reward.numpy() > 0
    assert row["accuracy"] == pytest.approx(exact[0][right].sum(), abs=2e-3)
    kl = (exact[0] * np.log(exact[0] / reference.exp().numpy())).sum()
    assert row["kl_optimum"] == pytest.approx(kl, abs=3e-3)
    shares = [policy[right] / policy[right].sum() for policy in exact]
    assert row["moved"] == pytest.approx(0.5 * np.abs(shares[0] - shares[1]).sum(), abs=2e-3)


def test_log_q_of_a_branch_guide_counts_the_tokens_above_its_threshold() -> None:
    """1 + 0.3 (1.3 - 1.2) and 1 + 0.3 (2.0 - 1.2), and none of a lone token; 0 without a guide."""
    algorithms = load_study("mini", ROOT / "config").algorithms
    read = [(np.zeros(3), np.array([1.3, 1.1, 2.0])), (np.zeros(1), np.array([0.0]))]
    assert log_q_of(algorithms["grpo_branch"], read) == pytest.approx([np.log(1.03 * 1.24), 0.0])
    assert log_q_of(algorithms["grpo"], read) == pytest.approx([0.0, 0.0])


RLPR_KL = "own_methods={rlpr_kl: {base: rlpr, kl: reverse}}"


def test_the_table_is_measured_from_the_bases_samples_and_what_training_reached(
    tmp_path: Path,
) -> None:
    """Of four problems the base solves two; a policy that is the base has a divergence of 0."""
    asked = [problem(f"p{i}") for i in range(4)]
    base = write_parent(tmp_path / "base", asked, spread=4.0)
    write_problems(asked, tmp_path / "b.jsonl")
    paths = []
    for row, seed in (("base", 0), ("grpo", 7), ("grpo_branch", 8), ("grpo_branch", 9)):
        paths.append(path := tmp_path / f"samples/m/{row}/seed{seed}/b.parquet")
        path.parent.mkdir(parents=True)
        letters = {"p0": "cccccccc", "p1": "wwwwwwww", "p2": "ccwwwwcw", "p3": "wwwwwwww"}
        frame = samples(letters)
        ids = [[20 + i % 50, 21, 22 + i % 7] for i in range(len(frame))]
        frame.assign(token_ids=ids).to_parquet(path)
    policies = [tmp_path / f"m/{path.parts[-3]}/{path.parts[-2]}" for path in paths[1:]]
    for policy in policies:
        shutil.copytree(base, policy)
    study = load_study("early_stopping", ROOT / "config")
    kind = study.study.exhibits["optimum"].model_copy(update={"responses": 2})
    methods = load_study("mini", ROOT / "config").algorithms
    rows = {name: methods[name].model_dump() for name in ("grpo", "grpo_branch")}
    files = {"base": [base], "samples": paths, "policies": policies}
    files["problems"] = [tmp_path / "b.jsonl"]
    settings = {"algorithms": rows, "betas": {"grpo": 0.5, "grpo_branch": 0.5}}
    job = Measuring(files, settings, tmp_path, "cpu", tmp_path, Manifest({}, 1, 0.0))
    kind.measure(job)
    table = pd.read_parquet(tmp_path / "optimum.parquet").set_index("algorithm")
    assert [*table.index] == ["grpo", "grpo_branch"]
    assert table["problems"].tolist() == [4, 4]
    assert table["solved"].tolist() == [0.5, 0.5]
    assert table["estimable"].tolist() == [0.25, 0.25]  # of p2, 27.2² / 169 = 4.4 effective samples
    assert table["kl_reached"].tolist() == pytest.approx([0.0, 0.0], abs=1e-5)
    assert table.loc["grpo", "moved"] == 0.0
    # The base's 32 samples, and of each method two of the estimable problem, read twice.
    assert json.loads((tmp_path / "manifest.json").read_text())["tokens"] == 3 * (32 + 2 * 2 * 2)

    frame = pd.read_parquet(paths[0])
    frame.iloc[1:].to_parquet(paths[0])
    with pytest.raises(ValueError, match="problems have 7 to 8 samples"):
        kind.measure(job)


def test_only_methods_whose_objective_it_is_are_shown() -> None:
    """Not a reward for wrong answers, no reward without a grader, no reference before SFT."""
    rows = "grpo, grpo_wrong_reward, rlpr_kl, grpo_released, grpo_no_kl, grpo_learned, grpo_branch"
    changed = [RLPR_KL, f"exhibits.optimum.algorithms=[{rows}]"]
    study = load_study("early_stopping", ROOT / "config", changed)
    settings = study.study.exhibits["optimum"].settings(study, "optimum")
    assert [*settings["betas"]] == ["grpo", "grpo_branch"]


def test_an_optimum_of_no_method_is_refused() -> None:
    changed = [RLPR_KL, "exhibits.optimum.algorithms=[grpo_no_kl, rlpr_kl]"]
    study = load_study("early_stopping", ROOT / "config", changed)
    with pytest.raises(StudyError, match="optimum: no method of the model sums has a reverse KL"):
        study.study.exhibits["optimum"].settings(study, "optimum")
