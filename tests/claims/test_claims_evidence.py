"""What a test of a claim finds in hand-made measurements."""

import math

import pandas as pd
import pytest
from claim_frames import RAISED
from pydantic import TypeAdapter
from report_frames import history

from sage.claims.evidence import by_pair, of_histories, of_pass_at_k, of_tails
from sage.claims.tests import AnyTest
from sage.claims.verdicts import of_finding


class TestEvidence:
    def test_a_difference_is_turned_round_where_it_was_taken_the_other_way(self) -> None:
        skewed = by_pair(RAISED.assign(var_above=4 * RAISED["var_above"]))
        (forward,) = of_pass_at_k(skewed, "tiny", ["easy"], "branch", "grpo", 1)
        (backward,) = of_pass_at_k(skewed, "tiny", ["easy"], "grpo", "branch", 1)
        # Student's quantile with 40 degrees of freedom, 2.021
        assert (forward.low, forward.high) == pytest.approx((0.1 - 0.0404, 0.1 + 0.0808), abs=1e-4)
        assert (backward.effect, backward.low) == pytest.approx((-0.10, -forward.high))
        assert backward.high == pytest.approx(-forward.low)

    def test_the_mean_over_benchmarks_comes_first_and_needs_all_of_them(self) -> None:
        pairs = by_pair(RAISED)
        mean, easy, hard = of_pass_at_k(pairs, "tiny", ["easy", "hard"], "branch", "grpo", 2)
        assert (mean.place, easy.place, hard.place) == ("average", "easy", "hard")
        assert mean.effect == pytest.approx(0.06)
        assert mean.n == 82
        # (0.02^2 + 0.02^2) / 4 with 80 degrees of freedom, but no closer than 40 allow
        assert mean.high - mean.effect == pytest.approx(2.021 * math.sqrt(0.0002), rel=1e-3)
        assert (easy.p, hard.p) == (0.002, 0.06)
        assert of_pass_at_k(pairs, "tiny", ["easy", "other"], "branch", "grpo", 2) == []

    def test_a_mean_counts_the_runs_that_all_benchmarks_have(self) -> None:
        seeds = {"easy": [1, 2, 3], "hard": [3, 4, 5]}
        mixed = RAISED.assign(train_seeds=[seeds[name] for name in RAISED["benchmark"]])
        mean, easy, _ = of_pass_at_k(by_pair(mixed), "tiny", ["easy", "hard"], "branch", "grpo", 1)
        assert (mean.runs, easy.runs) == (1, 3)
        apart = mixed.assign(train_seeds=[[seeds[0]] * 3 for seeds in mixed["train_seeds"]])
        assert of_pass_at_k(by_pair(apart), "tiny", ["easy", "hard"], "branch", "grpo", 1) == []

    def test_tails_are_compared_over_problems_and_runs(self) -> None:
        """Beyond the base's 0.95 quantile, 94.05: 3 and 1 of 4 responses in two runs, and none."""
        rows = [("base", 0, problem, float(i)) for problem in "pqr" for i in range(100)]
        for problem in "pqr":
            for seed, beyond in ((1, 3), (2, 1)):
                rows += [("branch", seed, problem, 200.0)] * beyond
                rows += [("branch", seed, problem, 1.0)] * (4 - beyond)
                rows += [("grpo", seed, problem, 1.0)] * 4
        columns = ["algorithm", "train_seed", "problem_id", "perplexity"]
        frame = pd.DataFrame(rows, columns=columns).assign(benchmark="easy")
        (tail,) = of_tails(frame, "branch", "grpo", 0.95, draws=500)
        assert (tail.effect, tail.runs, tail.n) == (0.5, 2, 3)
        half = 12.706 * 0.25  # Student's t of two runs at 0.75 and 0.25
        assert half <= tail.high - tail.effect < 1.1 * half  # and what three problems leave open
        assert of_tails(frame, "branch", "base", 0.95, draws=500) == []
        assert of_tails(frame, "branch", "token", 0.95, draws=500) == []
        others = {"branch": "pq", "grpo": "r", "base": "pqr"}
        apart = [problem in others[row] for row, _, problem, _ in rows]
        assert of_tails(frame[apart], "branch", "grpo", 0.95, draws=500) == []

    def test_several_runs_are_compared_over_runs(self) -> None:
        ours = {1: history(30, slope=0.03), 2: history(30, slope=0.05)}
        theirs = {1: history(30), 2: history(30)}
        (one,) = of_histories(ours, theirs, "reward")
        # mean step 15.5; differences of slopes 0.02 and 0.04
        assert one.effect == pytest.approx(0.03 * 15.5)
        assert (one.n, one.runs, one.over) == (2, 2, "training runs")
        half = 12.706 * 0.01 * 15.5  # t with one degree of freedom, standard error 0.01 x 15.5
        assert one.high - one.effect == pytest.approx(half, rel=1e-3)

    def test_one_run_says_nothing_of_others_however_long_it_is(self) -> None:
        (one,) = of_histories({1: history(400, slope=0.02)}, {1: history(400)}, "reward")
        assert one.effect == pytest.approx(0.01 * 200.5)
        assert math.isnan(one.low + one.high + one.p)
        assert (one.n, one.runs, one.over) == (1, 1, "training run")
        test = TypeAdapter(AnyTest).validate_python(
            {"test": "history", "exhibit": "figure2", "method": "a", "other": "b", "key": "reward"}
            | {"direction": "up"}
        )
        assert of_finding(test, one, one.p) == "inconclusive"

    def test_a_ratio_over_runs_is_their_geometric_mean(self) -> None:
        def norms(size: float) -> list[dict[str, float]]:
            return [{"step": i, "grad_norm": size} for i in range(1, 7)]

        ours, theirs = {1: norms(0.5), 2: norms(2.0)}, {1: norms(1.0), 2: norms(1.0)}
        (one,) = of_histories(ours, theirs, "grad_norm", relative=True)
        assert one.effect == pytest.approx(0.0)

    def test_nought_has_no_ratio(self) -> None:
        flat = [{"step": i, "grad_norm": 0.0} for i in range(1, 7)]
        steep = [{"step": i, "grad_norm": 1.0} for i in range(1, 7)]
        assert of_histories({1: flat}, {1: steep}, "grad_norm", relative=True) == []
        (difference,) = of_histories({1: flat}, {1: steep}, "grad_norm")
        assert difference.effect == -1.0

    def test_a_stage_is_a_third_of_training(self) -> None:
        ours, theirs = {1: history(7, slope=1.01)}, {1: history(7)}
        effects = [
            of_histories(ours, theirs, "reward", stage)[0].effect
            for stage in (None, "early", "mid", "late")
        ]
        # steps 1 to 3, 4 and 5, 6 and 7
        assert effects == pytest.approx([4.0, 2.0, 4.5, 6.5])

    def test_steps_in_which_nothing_was_scored_do_not_count(self) -> None:
        ours = [*history(6, slope=1.01), {"step": 7, "reward": None}]
        (one,) = of_histories({1: ours, 2: ours[6:]}, {1: history(7), 2: history(7)}, "reward")
        assert (one.effect, one.runs) == (pytest.approx(3.5), 1)  # the mean of steps 1 to 6

    def test_what_was_not_recorded_is_not_found(self) -> None:
        assert of_histories({1: history(40)}, {1: history(40)}, "kl") == []
        assert of_histories({1: history(40)}, {}, "reward") == []
