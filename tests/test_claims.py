"""Claims: each test on hand-made measurements, and every verdict from numbers alone."""

import math
from pathlib import Path

import pandas as pd
import pytest
from pydantic import TypeAdapter
from report_frames import ROOT, a_study, history

from sage.claims.evidence import (
    Finding,
    of_histories,
    of_pass_at_k,
    of_patterns,
    of_step_times,
    of_tails,
)
from sage.claims.ledger import COLUMNS, Measured, findings, ledger, says
from sage.claims.tests import (
    AnyTest,
    Claim,
    Comparison,
    PassAtK,
    load_claims,
)
from sage.claims.verdicts import of_claim, of_test, verdicts
from sage.claims.view import ledger_view
from sage.exhibits import load_study
from sage.study import ResolvedStudy
from sage.training.stopwatch import COLUMNS as STEP_TIMES


def a_test(direction: str = "up", margin: float | None = None) -> Comparison:
    return Comparison.model_validate(
        {
            "exhibit": "table1",
            "row": "branch",
            "other": "grpo",
            "direction": direction,
            "margin": margin,
        }
    )


def found(low: float, high: float, p: float = math.nan, runs: int | None = 3) -> Finding:
    return Finding("easy", (low + high) / 2, low, high, p, 40, "problems", runs)


def compared(
    rows: list[tuple[str, str, str, int, float, float, float, float]],
) -> pd.DataFrame:
    columns = ["algorithm", "other", "benchmark", "k", "value", "low", "high", "p"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(model="tiny", metric="pass@k", n_problems=40, n_seeds=3)


RAISED = compared(
    [
        ("branch", "grpo", "easy", 1, 0.10, 0.05, 0.15, 0.001),
        ("branch", "grpo", "easy", 2, 0.08, 0.03, 0.13, 0.002),
        ("branch", "grpo", "easy", 4, 0.02, -0.01, 0.05, 0.300),
        ("branch", "grpo", "hard", 1, 0.04, -0.02, 0.10, 0.200),
    ]
)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("direction", "margin", "finding", "verdict"),
        [
            ("up", None, found(0.01, 0.05, 0.01), "supported"),
            ("up", None, found(-0.05, -0.01, 0.01), "contradicted"),
            ("up", None, found(-0.01, 0.05, 0.20), "inconclusive"),
            ("up", None, found(0.01, 0.05, 0.06), "inconclusive"),  # p and interval must agree
            ("up", None, found(0.01, 0.05), "supported"),  # where no p was made
            ("down", None, found(-0.05, -0.01, 0.01), "supported"),
            ("down", None, found(0.01, 0.05, 0.01), "contradicted"),
            ("same", 0.02, found(-0.01, 0.01, 0.90), "supported"),
            ("same", 0.02, found(-0.01, 0.03, 0.90), "inconclusive"),
            ("same", 0.02, found(0.03, 0.05, 0.01), "contradicted"),
            ("not up", 0.02, found(-0.30, 0.01, 0.50), "supported"),
            ("not up", 0.02, found(0.005, 0.015, 0.001), "supported"),  # clear, and within it
            ("not up", 0.02, found(0.03, 0.05, 0.01), "contradicted"),
            ("not up", 0.02, found(0.01, 0.05, 0.01), "inconclusive"),  # perhaps within it
            ("not up", 0.02, found(-0.01, 0.05, 0.40), "inconclusive"),
            ("not up", 0.02, found(0.0, 0.0, 1.0), "inconclusive"),  # without width
            ("up", None, found(math.nan, math.nan, 0.01), "inconclusive"),
            # one training run speaks for itself; what is not about training has none
            ("up", None, found(0.01, 0.05, 0.01, runs=1), "so in one run"),
            ("up", None, found(-0.05, -0.01, 0.01, runs=1), "not so in one run"),
            ("up", None, found(-0.01, 0.05, 0.20, runs=1), "inconclusive"),
            ("not up", 0.02, found(-0.30, 0.01, runs=1), "so in one run"),
            ("not up", 0.02, found(-0.30, 0.01, runs=None), "supported"),
        ],
    )
    def test_a_verdict_follows_from_the_interval_and_p(
        self, direction: str, margin: float | None, finding: Finding, verdict: str
    ) -> None:
        assert verdicts(a_test(direction, margin), [finding]) == [verdict]

    def test_p_is_adjusted_over_the_places_of_a_test(self) -> None:
        one = found(0.01, 0.05, 0.03)
        assert verdicts(a_test(), [one]) == ["supported"]
        assert verdicts(a_test(), [one, found(-0.01, 0.05, 0.40)])[0] == "inconclusive"  # 2 x 0.03

    def test_a_test_is_clear_somewhere_and_nowhere_against_it(self) -> None:
        test = a_test()
        assert of_test(test, ["supported", "inconclusive"]) == "supported"
        assert of_test(test, ["contradicted", "inconclusive"]) == "contradicted"
        assert of_test(test, ["supported", "contradicted"]) == "inconclusive"
        assert of_test(test, ["inconclusive"]) == "inconclusive"
        assert of_test(test, ["so in one run", "so in one run"]) == "inconclusive"
        assert of_test(test, ["not so in one run"]) == "inconclusive"
        assert of_test(test, []) == "not run"

    def test_what_keeps_to_a_margin_must_do_so_everywhere(self) -> None:
        test = a_test("not up", 0.01)
        assert of_test(test, ["supported", "supported"]) == "supported"
        assert of_test(test, ["supported", "inconclusive"]) == "inconclusive"
        assert of_test(test, ["supported", "contradicted"]) == "contradicted"
        assert of_test(test, []) == "not run"

    def test_a_claim_needs_all_of_its_tests(self) -> None:
        assert of_claim(["supported", "supported"]) == "supported"
        assert of_claim(["supported", "inconclusive"]) == "inconclusive"
        assert of_claim(["supported", "not run"]) == "inconclusive"
        assert of_claim(["contradicted", "not run"]) == "contradicted"
        assert of_claim(["not run", "not run"]) == "not run"


class TestLoader:
    def test_the_ledger_of_the_paper_loads_and_names_rows_that_exist(self) -> None:
        claims = load_claims(ROOT / "config/claims.yaml")
        paper = load_study("paper", ROOT / "config")
        known = {"base", *paper.algorithms}
        for claim in claims.values():
            for test in claim.tests:
                assert {test.row, test.other} <= known
                assert test.exhibit in paper.study.exhibits
                rows = set(paper.rows_of(test.exhibit)) | {"base"}
                assert {test.row, test.other} <= rows, test

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{test: pass_at_k, row: a, other: b, k: 1, direction: up}", "exhibit"),
            ("{test: pass_at_k, exhibit: t, row: a, other: b, k: 0, direction: up}", "k"),
            ("{test: pass_at_k, exhibit: t, row: a, other: b, k: 1, direction: more}", "more"),
            ("{test: tail, exhibit: t, row: a, other: b, direction: same}", "margin"),
            ("{test: tail, exhibit: t, row: a, other: b, direction: up, verdict: yes}", "verdict"),
            ("{test: taste, exhibit: t, row: a, other: b, direction: up}", "taste"),
        ],
    )
    def test_a_faulty_test_is_an_error_that_names_file_and_fault(
        self, tmp_path: Path, line: str, message: str
    ) -> None:
        path = tmp_path / "claims.yaml"
        path.write_text(f"one:\n  claim: c\n  source: s\n  tests:\n    - {line}\n")
        with pytest.raises(ValueError, match=rf"claims.yaml: one.tests.0.*{message}"):
            load_claims(path)


class TestEvidence:
    def test_a_difference_is_turned_round_where_it_was_taken_the_other_way(self) -> None:
        (forward,) = of_pass_at_k(RAISED, "tiny", ["easy"], "branch", "grpo", 1, 4)
        (backward,) = of_pass_at_k(RAISED, "tiny", ["easy"], "grpo", "branch", 1, 4)
        assert (forward.effect, forward.low, forward.high) == (0.10, 0.05, 0.15)
        assert (backward.effect, backward.low, backward.high) == (-0.10, -0.15, -0.05)

    def test_the_largest_k_is_what_one_seed_samples(self) -> None:
        assert of_pass_at_k(RAISED, "tiny", ["easy"], "branch", "grpo", None, 4)[0].effect == 0.02
        assert of_pass_at_k(RAISED, "tiny", ["easy"], "branch", "grpo", None, 3)[0].effect == 0.08

    def test_shares_of_a_pattern_are_joined_by_their_intervals(self) -> None:
        table = pd.DataFrame(
            [("branch", 0.30, 0.20, 0.42), ("grpo", 0.10, 0.06, 0.18), ("base", 0.0, 0.0, 0.0)],
            columns=["algorithm", "pooled", "low", "high"],
        ).assign(pattern="contradiction", benchmark="easy", n_problems=40, n_runs=[2, 3, 1])
        (one,) = of_patterns(table, "contradiction", "branch", "grpo")
        assert one.effect == pytest.approx(0.20)
        assert one.low == pytest.approx(0.20 - math.hypot(0.10, 0.08))
        assert one.high == pytest.approx(0.20 + math.hypot(0.12, 0.04))
        assert math.isnan(one.p)
        assert one.runs == 2
        (against_none,) = of_patterns(table, "contradiction", "branch", "base")
        bound = 1 - 0.025 ** (1 / 40)  # what 40 problems without the pattern allow
        assert against_none.low == pytest.approx(0.30 - math.hypot(0.10, bound))

    def test_tails_are_counted_above_the_bases_percentile_problem_by_problem(self) -> None:
        rows = [("base", float(i)) for i in range(100)]
        rows += [("grpo", 1.0)] * 40 + [("branch", 200.0)] * 20 + [("branch", 1.0)] * 20
        frame = pd.DataFrame(rows, columns=["algorithm", "perplexity"]).assign(problem_id="p")
        (tail,) = of_tails(frame, "branch", "grpo", level=0.95)
        assert (tail.effect, tail.runs) == (0.5, 1)
        assert tail.low > 0.3
        assert tail.p < 1e-6
        (none,) = of_tails(frame, "grpo", "grpo", level=0.95)
        assert (none.effect, none.p) == (0.0, 1.0)

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
            {"test": "history", "exhibit": "figure2", "row": "a", "other": "b", "key": "reward"}
            | {"direction": "up"}
        )
        assert verdicts(test, [one]) == ["inconclusive"]

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

    def test_times_are_compared_round_by_round(self) -> None:
        rounds = range(40)
        times = pd.DataFrame(
            [("grpo", i, 1.0 + i, 8, 64) for i in rounds]  # a machine that gets ever slower
            + [("branch", i, (1.01 if i % 2 else 1.03) * (1.0 + i), 8, 64) for i in rounds],
            columns=STEP_TIMES,
        )
        (one,) = of_step_times(times, "branch", "grpo")
        assert one.effect == pytest.approx(0.02)
        assert (one.low, one.high) == pytest.approx((0.01, 0.03))
        assert (one.n, one.p) == (40, pytest.approx(2 * 0.5**40))
        assert of_step_times(times, "token", "grpo") == []
        # Nothing measurable, and more than the margin allows: a verdict of each kind.
        (test,) = [
            test
            for test in load_claims(ROOT / "config/claims.yaml")["overhead"].tests
            if test.row == "grpo_branch"
        ]
        assert verdicts(test, [one]) == ["supported"]
        slower = times.assign(seconds=times["seconds"] * (1 + 0.2 * (times["algorithm"] != "grpo")))
        assert verdicts(test, of_step_times(slower, "branch", "grpo")) == ["contradicted"]

    def test_what_was_not_recorded_is_not_found(self) -> None:
        assert of_histories({1: history(40)}, {1: history(40)}, "kl") == []
        assert of_histories({1: history(40)}, {}, "reward") == []


CLAIM = Claim.model_validate(
    {
        "claim": "It rises.",
        "source": "Table 1",
        "tests": [
            {"test": "pass_at_k", "exhibit": "table1", "row": "branch", "other": "grpo", "k": k}
            | {"direction": "up"}
            for k in (1, "largest")
        ],
    }
)


class TestLedger:
    @pytest.fixture
    def study(self) -> ResolvedStudy:
        return a_study()

    def test_a_row_per_place_and_one_verdict_for_the_claim(self, study: ResolvedStudy) -> None:
        frame = ledger({"rise": CLAIM}, study, Measured(comparisons=RAISED))
        assert list(frame.columns) == COLUMNS
        assert frame["place"].tolist() == ["easy", "hard", "easy", "hard"]
        assert frame["test_verdict"].tolist() == ["supported"] * 2 + ["inconclusive"] * 2
        assert set(frame["verdict"]) == {"inconclusive"}

    def test_one_training_run_decides_no_claim_and_says_so(self, study: ResolvedStudy) -> None:
        at_one = CLAIM.model_copy(update={"tests": CLAIM.tests[:1]})
        frame = ledger({"rise": at_one}, study, Measured(RAISED))
        assert set(frame["verdict"]) == {"supported"}
        frame = ledger({"rise": at_one}, study, Measured(RAISED.assign(n_seeds=1)))
        assert set(frame["verdict"]) == {"inconclusive"}
        (claim,) = ledger_view(frame, study)
        assert claim.because == "one training run"
        assert [row.verdict for row in claim.rows] == ["so in one run", "inconclusive"]
        assert claim.rows[0].over == "40 problems, 1 run"

    def test_a_margin_has_no_p(self, study: ResolvedStudy) -> None:
        within = CLAIM.tests[0].model_copy(update={"direction": "not up", "margin": 0.2})
        found_, _ = findings(within, study, Measured(RAISED))
        assert all(math.isnan(finding.p) for finding in found_)
        assert verdicts(within, found_) == ["supported", "supported"]

    def test_what_was_not_measured_says_why(self, study: ResolvedStudy) -> None:
        frame = ledger({"rise": CLAIM}, study, Measured())
        assert frame["verdict"].tolist() == ["not run", "not run"]
        assert set(frame["reason"]) == {"there are no comparisons yet"}
        elsewhere = CLAIM.tests[0].model_copy(update={"exhibit": "table4"})
        assert findings(elsewhere, study, Measured(comparisons=RAISED)) == (
            [],
            "the study has no table4",
        )

    def test_the_frame_survives_parquet_and_is_shown_as_text(
        self, study: ResolvedStudy, tmp_path: Path
    ) -> None:
        frame = ledger({"rise": CLAIM, "none": CLAIM}, study, Measured(comparisons=RAISED))
        frame.to_parquet(tmp_path / "claims.parquet", index=False)
        (claim, _) = ledger_view(pd.read_parquet(tmp_path / "claims.parquet"), study)
        assert (claim.text, claim.verdict) == ("It rises.", "inconclusive")
        first, second = claim.rows[:2]
        assert (first.says, second.says) == ("pass@1: Branch > GRPO", "")
        assert (first.place, first.effect, first.interval) == ("Easy", "+10.0", "+5.0 to +15.0")
        assert (first.p, first.over, first.verdict) == ("0.001", "40 problems", "supported")
        assert claim.rows[2].over == "40 problems, k = 4"

    def test_every_test_of_the_paper_can_be_said(self) -> None:
        mini = load_study("mini", ROOT / "config")
        tests = [
            test for c in load_claims(ROOT / "config/claims.yaml").values() for test in c.tests
        ]
        texts = [says(test, mini) for test in tests]
        assert all(": " in text for text in texts)
        time = "time to learn from the same completions"
        assert f"{time}: GRPO + Branch ≤ GRPO + 5\u202f%" in texts
        assert "pass@1: GRPO + Forward KL ≤ GRPO + 1.0 points" in texts
        assert "grad norm, second third: GRPO w/o KL < GRPO" in texts
        assert isinstance(tests[0], PassAtK)
