"""Claims: each test on hand-made measurements, and every verdict from numbers alone."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pydantic import TypeAdapter
from report_frames import ROOT, a_study, history

from sage.claims.evidence import (
    Finding,
    by_pair,
    of_histories,
    of_pass_at_k,
    of_step_times,
    of_tails,
)
from sage.claims.figure import contrasts_figure
from sage.claims.ledger import COLUMNS, Measured, findings, ledger, resolved_k, says
from sage.claims.strength import strength_text
from sage.claims.tests import AnyTest, Claim, Comparison, PassAtK, load_claims
from sage.claims.verdicts import APART, of_claim, of_finding, of_secondary
from sage.claims.view import counted, ledger_view
from sage.exhibits import load_study
from sage.rendering.labels import row_title
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
    """A finding whose 90 % interval is that of 95 %, less a tenth on each side."""
    tenth = 0.1 * (high - low)
    inner = low + tenth, high - tenth
    return Finding("easy", (low + high) / 2, low, high, p, 40, "problems", runs, *inner)


def compared(rows: list[tuple[str, str, str, int, float, float, float]]) -> pd.DataFrame:
    """Comparisons of 3 runs from value, standard error and p; all variance is over problems."""
    columns = ["algorithm", "other", "benchmark", "k", "value", "error", "p"]
    frame = pd.DataFrame(rows, columns=columns)
    variance = frame["error"] ** 2
    return frame.assign(
        model="tiny",
        metric="pass@k",
        n_problems=41,
        n_seeds=3,
        train_seeds=[[1, 2, 3]] * len(frame),
        by_run=[[value] * 3 for value in frame["value"]],
        var_problems=variance,
        var_interaction=0.0,
        var_below=variance,
        var_above=variance,
    )


def one_run(frame: pd.DataFrame) -> pd.DataFrame:
    by_run = [[value] for value in frame["value"]]
    return frame.assign(n_seeds=1, train_seeds=[[1]] * len(frame), by_run=by_run)


RAISED = compared(
    [
        ("branch", "grpo", "easy", 1, 0.10, 0.02, 0.001),
        ("branch", "grpo", "easy", 2, 0.08, 0.02, 0.002),
        ("branch", "grpo", "hard", 1, 0.04, 0.03, 0.200),
        ("branch", "grpo", "hard", 2, 0.04, 0.02, 0.060),
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
            ("up", None, found(-0.01, 0.05, 0.04), "inconclusive"),
            ("up", None, found(0.01, 0.05), "inconclusive"),  # what has no p says nothing
            ("down", None, found(-0.05, -0.01, 0.01), "supported"),
            ("down", None, found(0.01, 0.05, 0.01), "contradicted"),
            ("up", 0.02, found(-0.02, 0.02, 0.90), "no difference"),  # 90 %: within 0.016
            ("up", 0.02, found(-0.02, 0.03, 0.90), "inconclusive"),
            ("up", 0.02, found(0.001, 0.015, 0.03), "supported"),  # small, and there
            ("not up", 0.02, found(-0.30, 0.01, 0.001), "supported"),
            ("not up", 0.02, found(0.005, 0.015, 0.001), "supported"),
            ("not up", 0.02, found(0.03, 0.05, 0.01), "contradicted"),
            ("not up", 0.02, found(0.01, 0.05, 0.50), "inconclusive"),  # perhaps within it
            ("not up", 0.02, found(0.0, 0.0, 0.0), "inconclusive"),  # without width
            ("up", None, found(math.nan, math.nan, 0.01), "inconclusive"),
            # one training run speaks for itself; what is not about training has none
            ("up", 0.02, found(0.01, 0.05, 0.01, runs=1), "so in one run"),
            ("up", 0.02, found(-0.05, -0.01, 0.01, runs=1), "not so in one run"),
            ("up", 0.02, found(-0.01, 0.01, 0.20, runs=1), "inconclusive"),
            ("not up", 0.02, found(-0.30, 0.01, 0.001, runs=1), "so in one run"),
            ("not up", 0.02, found(-0.30, 0.01, 0.001, runs=None), "supported"),
        ],
    )
    def test_a_verdict_follows_from_the_interval_and_p(
        self, direction: str, margin: float | None, finding: Finding, verdict: str
    ) -> None:
        assert of_finding(a_test(direction, margin), finding, finding.p, True) == verdict

    def test_only_the_primary_contrast_may_find_no_difference(self) -> None:
        near = found(-0.01, 0.01, 0.9)
        assert of_secondary([(a_test("up", 0.02), near)]) == ["inconclusive"]

    def test_secondary_findings_are_adjusted_together_whichever_way_they_point(self) -> None:
        right, wrong = found(0.01, 0.05, 0.03), found(-0.05, -0.01, 0.03)
        assert of_secondary([(a_test(), right)]) == ["supported"]
        assert of_secondary([(a_test(), wrong)]) == ["contradicted"]
        far = replace(found(-0.01, 0.05, 0.4), place="hard")
        for one in (right, wrong):  # 2 x 0.03
            assert of_secondary([(a_test(), one), (a_test(), far)])[0] == "inconclusive"

    def test_the_same_numbers_are_one_test(self) -> None:
        pair = (a_test(), found(0.01, 0.05, 0.03))
        assert of_secondary([pair, pair]) == ["supported", "supported"]

    def test_the_primary_contrast_decides(self) -> None:
        assert of_claim("supported", ["inconclusive"], ["inconclusive"]) == ("supported", "")
        assert of_claim("contradicted", (), ["supported"]) == ("contradicted", "")
        assert of_claim("inconclusive", ["supported"], ["supported"]) == ("inconclusive", "")
        assert of_claim("no difference", ["inconclusive"]) == ("no difference", "")
        assert of_claim("inconclusive", runs=3) == ("inconclusive", "")
        assert of_claim("inconclusive", runs=1) == ("inconclusive", "one training run")
        assert of_claim("so in one run") == ("inconclusive", "one training run")
        assert of_claim("not so in one run") == ("inconclusive", "one training run")
        assert of_claim(None, (), ["supported"]) == ("not run", "")

    def test_opposite_findings_take_a_verdict_back(self) -> None:
        apart = ("inconclusive", APART)
        assert of_claim("supported", ["supported", "contradicted"]) == apart
        assert of_claim("supported", (), ["contradicted"]) == apart
        assert of_claim("contradicted", ["supported", "contradicted"]) == apart
        assert of_claim("no difference", ["supported", "contradicted"]) == apart


class TestLoader:
    def test_the_ledger_of_the_paper_loads_and_names_rows_that_exist(self) -> None:
        claims = load_claims(ROOT / "config/claims.yaml")
        paper, mini = (load_study(name, ROOT / "config") for name in ("paper", "mini"))
        assert [name for name, claim in claims.items() if claim.source == "Eq. 4"] == [
            "anchor_in_reward"  # the paper has no such row
        ]
        for name, claim in claims.items():
            study = mini if name == "anchor_in_reward" else paper
            for test in (claim.primary, *claim.secondary):
                assert test.exhibit in study.study.exhibits
                rows = set(study.rows_of(test.exhibit)) | {"base"}
                assert {test.row, test.other} <= rows, test

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{test: pass_at_k, row: a, other: b, k: 1, direction: up}", ".exhibit: missing"),
            (
                "{test: pass_at_k, exhibit: t, row: a, other: b, k: 0, direction: up}",
                ".k: .*allowed: half",
            ),
            (
                "{test: pass_at_k, exhibit: t, row: a, other: b, k: 1, direction: more}",
                ".direction: 'more' is not",
            ),
            ("{test: tail, exhibit: t, row: a, other: b, direction: not up}", ": .*needs a margin"),
            (
                "{test: tail, exhibit: t, row: a, other: b, direction: up, verdict: yes}",
                ".verdict: unknown key",
            ),
            (
                "{test: taste, exhibit: t, row: a, other: b, direction: up}",
                ".test: 'taste' is not .*tail",
            ),
        ],
    )
    def test_a_faulty_test_is_an_error_that_names_file_and_fault(
        self, tmp_path: Path, line: str, message: str
    ) -> None:
        path = tmp_path / "claims.yaml"
        path.write_text(f"one:\n  claim: c\n  source: s\n  primary: {line}\n")
        with pytest.raises(
            ValueError, match=rf"(?s)claims.yaml: \d faults?\n  one.primary{message}"
        ):
            load_claims(path)

    def test_a_name_that_occurs_twice_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "claims.yaml"
        path.write_text("one: {claim: c}\none: {claim: d}\n")
        with pytest.raises(ValueError, match=r"claims.yaml, line 2, .*'one' occurs twice"):
            load_claims(path)

    def test_a_primary_test_states_its_margin(self, tmp_path: Path) -> None:
        path = tmp_path / "claims.yaml"
        line = "{test: tail, exhibit: t, row: a, other: b, direction: up}"
        path.write_text(f"one:\n  claim: c\n  source: s\n  primary: {line}\n")
        with pytest.raises(ValueError, match=r"one: .*primary test needs a margin"):
            load_claims(path)

    def test_at_most_three_claims_open_the_report(self, tmp_path: Path) -> None:
        path = tmp_path / "claims.yaml"
        line = "{test: tail, exhibit: t, row: a, other: b, direction: up, margin: 0.1}"
        claim = f"  claim: c\n  source: s\n  headline: true\n  primary: {line}\n"
        path.write_text("".join(f"c{n}:\n{claim}" for n in range(3)))
        assert all(one.headline for one in load_claims(path).values())
        path.write_text("".join(f"c{n}:\n{claim}" for n in range(4)))
        with pytest.raises(ValueError, match="c0, c1, c2, c3 have headline: true; at most 3"):
            load_claims(path)


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
        (base,) = of_tails(frame, "branch", "base", 0.95, draws=500)
        assert (base.effect, base.runs) == (pytest.approx(0.45), 2)
        assert of_tails(frame, "branch", "token", 0.95, draws=500) == []

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
        assert of_secondary([(test, one)]) == ["inconclusive"]

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
        test = load_claims(ROOT / "config/claims.yaml")["overhead"].primary

        def verdict(measured: pd.DataFrame) -> str:
            (cost,) = of_step_times(measured, "branch", "grpo", test.null)
            return of_finding(test, cost, cost.p)

        assert verdict(times) == "supported"
        slower = times.assign(seconds=times["seconds"] * (1 + 0.2 * (times["algorithm"] != "grpo")))
        assert verdict(slower) == "contradicted"

    def test_what_was_not_recorded_is_not_found(self) -> None:
        assert of_histories({1: history(40)}, {1: history(40)}, "kl") == []
        assert of_histories({1: history(40)}, {}, "reward") == []


def pass_test(k: int | str, **more: object) -> dict[str, object]:
    names = {"test": "pass_at_k", "exhibit": "table1", "row": "branch", "other": "grpo"}
    return {**names, "k": k, "direction": "up", **more}


CLAIM = Claim.model_validate(
    {
        "claim": "It rises.",
        "source": "Table 1",
        "primary": pass_test("half", margin=0.02),
        "secondary": [pass_test(1)],
    }
)


class TestLedger:
    @pytest.fixture
    def study(self) -> ResolvedStudy:
        return a_study()

    def test_a_row_per_place_and_one_verdict_for_the_claim(self, study: ResolvedStudy) -> None:
        frame = ledger({"rise": CLAIM}, study, Measured(comparisons=RAISED))
        assert list(frame.columns) == COLUMNS
        assert frame["place"].tolist() == ["average", "easy", "hard"] * 2
        assert frame["role"].tolist() == ["primary", "place", "place", *["secondary"] * 3]
        assert frame["test_verdict"].tolist() == ["supported"] * 6
        assert set(frame["verdict"]) == {"supported"}
        # 0.002 and 0.06 at k = 2, 0.001 and 0.2 at k = 1, and the mean there: five tests
        assert frame["place_verdict"].tolist()[1:3] == ["supported", "inconclusive"]

    def test_half_leaves_two_samples_for_each_of_k(self, study: ResolvedStudy) -> None:
        test = CLAIM.primary
        assert isinstance(test, PassAtK)
        assert resolved_k(test, study) == 2  # four samples, one seed
        paper = load_study("paper", ROOT / "config")
        assert resolved_k(test, paper) == 256  # five seeds of 256

    def test_opposite_effects_on_two_benchmarks_are_no_support(self, study: ResolvedStudy) -> None:
        rows = [("easy", 0.30, 0.001), ("hard", -0.10, 0.001)]
        frame = compared(
            [("branch", "grpo", on, k, d, 0.01, p) for on, d, p in rows for k in (1, 2)]
        )
        judged = ledger({"rise": CLAIM}, study, Measured(frame))
        assert judged["place_verdict"].tolist()[:3] == ["supported", "supported", "contradicted"]
        assert set(judged["verdict"]) == {"inconclusive"}
        assert set(judged["because"]) == {APART}

    def test_small_differences_closely_measured_are_none(self, study: ResolvedStudy) -> None:
        frame = RAISED.assign(value=0.001, by_run=[[0.001] * 3] * 4, p=0.8)
        frame = frame.assign(var_below=1e-5, var_above=1e-5, var_problems=1e-5)
        judged = ledger({"rise": CLAIM}, study, Measured(frame))
        assert set(judged["verdict"]) == {"no difference"}
        (claim,) = ledger_view(judged, study)
        assert claim.verdict_text == "no difference larger than 2.0 points"
        assert claim.found.startswith("pass@2 +0.1 points (95 % interval ")
        assert claim.found.endswith("), mean of 2 benchmarks")
        assert counted([claim]) == "Claims: 1 without a difference that matters."
        assert "A difference larger than 2.0 points is excluded." in claim.summary

    def test_one_training_run_decides_no_claim_and_says_so(self, study: ResolvedStudy) -> None:
        judged = ledger({"rise": CLAIM}, study, Measured(one_run(RAISED)))
        assert set(judged["verdict"]) == {"inconclusive"}
        (claim,) = ledger_view(judged, study)
        assert claim.because == "one training run"
        assert claim.rows[0].verdict == "so in one run"
        assert claim.rows[1].over == "41 problems, 1 run"
        unclear = RAISED.assign(value=0.001, by_run=[[0.001] * 3] * 4, p=0.8)
        (claim,) = ledger_view(ledger({"rise": CLAIM}, study, Measured(one_run(unclear))), study)
        assert claim.because == "one training run"
        assert "detectable" not in claim.found

    def test_p_of_a_margin_is_about_the_margin(self, study: ResolvedStudy) -> None:
        test = PassAtK.model_validate(pass_test(1, direction="not up", margin=0.2))
        (mean, *_), _ = findings(test, study, Measured(RAISED))
        # 0.13 below it, standard error sqrt(0.02^2 + 0.03^2) / 2 = 0.018
        assert mean.p < 1e-6
        assert of_finding(test, mean, mean.p) == "supported"
        claim = CLAIM.model_copy(update={"primary": test, "secondary": []})
        (seen,) = ledger_view(ledger({"bounded": claim}, study, Measured(RAISED)), study)
        assert "The contrast is significant, and as claimed." in seen.summary

    def test_what_was_not_measured_says_why(self, study: ResolvedStudy) -> None:
        frame = ledger({"rise": CLAIM}, study, Measured())
        assert frame["verdict"].tolist() == ["not run", "not run"]
        assert set(frame["reason"]) == {"there are no comparisons yet"}
        elsewhere = CLAIM.primary.model_copy(update={"exhibit": "table4"})
        assert findings(elsewhere, study, Measured(comparisons=RAISED)) == (
            [],
            "the study has no table4",
        )

    def test_the_frame_survives_parquet_and_is_shown_as_text(
        self, study: ResolvedStudy, tmp_path: Path
    ) -> None:
        wide = RAISED.assign(var_below=0.01, var_above=0.01, var_problems=0.01, p=0.5)
        frame = ledger({"rise": CLAIM, "none": CLAIM}, study, Measured(comparisons=wide))
        frame.to_parquet(tmp_path / "claims.parquet", index=False)
        (claim, _) = ledger_view(pd.read_parquet(tmp_path / "claims.parquet"), study)
        assert (claim.text, claim.verdict) == ("It rises.", "inconclusive")
        first, second = claim.rows[:2]
        assert (first.says, second.says) == ("pass@2: Branch > GRPO", "")
        assert (first.place, first.effect) == ("Average", "+6.0")
        assert first.interval == "\u22128.3 to +20.3"
        assert first.over == "82 problems, 3 runs"
        # 14.3 (1 + 0.846 / 1.990), Student's t with 80 degrees of freedom
        assert first.detectable == "20.4 points"
        assert claim.summary == (
            "Primary contrast: pass@2: Branch > GRPO, mean over 2 benchmarks. Found: +6.0 points "
            "(95 % interval \u22128.3 to +20.3), 82 problems, 3 runs.",
            "Inconclusive: a study of this size finds a difference of 20.4 points in 80 % of "
            "cases, and smaller ones less often.",
            "No secondary finding is decided.",
        )

    def test_all_contrasts_are_drawn_with_the_margin_behind_the_primary(
        self, study: ResolvedStudy
    ) -> None:
        judged = ledger({"rise": CLAIM}, study, Measured(RAISED))
        (axes,) = contrasts_figure(judged, study).axes
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels[:3] == ["pass@2: Branch > GRPO, Average", "Easy", "Hard"]
        (band,) = axes.patches
        assert (band.get_x(), band.get_width()) == pytest.approx((-2.0, 4.0))
        ends = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
        drawn = [100 * judged.loc[0, name] for name in ("low", "high")]
        assert any(list(end) == pytest.approx(drawn) for end in ends)
        nothing = contrasts_figure(ledger({"rise": CLAIM}, study, Measured()), study)
        assert nothing.axes[0].texts[0].get_text() == "No contrast has been measured yet."

    def test_every_test_of_the_paper_can_be_said(self) -> None:
        mini = load_study("mini", ROOT / "config")
        claims = load_claims(ROOT / "config/claims.yaml").values()
        texts = [says(test, mini) for c in claims for test in (c.primary, *c.secondary)]
        assert all(": " in text for text in texts)
        time = "time to learn from the same completions"
        assert f"{time}: GRPO + Branch ≤ GRPO + 5\u202f%" in texts
        assert "pass@1: GRPO + Forward KL ≤ GRPO + 1.0 points" in texts
        assert "pass@64: GRPO + Branch > GRPO" in texts
        assert "grad norm, second third: GRPO w/o KL < GRPO" in texts


def test_a_claim_about_a_guide_says_how_strongly_it_acted() -> None:
    study = a_study()
    rising = [row | {"amplified_share": 0.3, "log_q": 0.5} for row in history(3)]
    rising[2] |= {"amplified_share": 0.1, "log_q": -0.25}
    runs = {("tiny", "branch", seed): rising for seed in (1, 2)}
    beta = study.model("tiny").rl.kl_coefficient
    assert beta == 0.05
    text = strength_text(study, "tiny", ["grpo", "branch"], runs)
    assert text == (
        f"{row_title(study, 'branch')} (2 runs; first and last third of training): q > 1 on 30.0 "
        "and 10.0 % of tokens; mean log q of a completion 0.5 and \u22120.25 nats, times β 0.025 "
        "and \u22120.0125, where a correct answer is worth 1."
    )
    assert strength_text(study, "tiny", ["grpo", "base"], runs) == ""
    short = {("tiny", "branch", 1): rising[:2]}
    assert strength_text(study, "tiny", ["branch"], short) == ""
