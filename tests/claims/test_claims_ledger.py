"""The ledger of claims: its rows, verdicts, text and figure, and how strongly a guide acted."""

from pathlib import Path

import pandas as pd
import pytest
from claim_frames import RAISED, compared
from report_frames import ROOT, a_study, changed, history, retitled

from sage.claims.evidence import Measured
from sage.claims.figure import contrasts_figure
from sage.claims.ledger import COLUMNS, dose_of, findings, ledger, strength_text, too_weak
from sage.claims.tests import Claim, PassAtK
from sage.claims.verdicts import APART, of_finding
from sage.claims.view import LedgerClaim, counted, ledger_view, primary_lines, untested_guides
from sage.evaluation.curves import WORKING
from sage.exhibits import load_study
from sage.rendering.labels import method_title
from sage.study import ResolvedStudy


def one_run(frame: pd.DataFrame) -> pd.DataFrame:
    by_run = [[value] for value in frame["value"]]
    return frame.assign(n_seeds=1, train_seeds=[[1]] * len(frame), by_run=by_run)


def of_bases(study: ResolvedStudy) -> ResolvedStudy:
    models = dict.fromkeys(("tiny", "second"), study.model("tiny"))
    return changed(study, models=models, bases={"group": ["second", "tiny"]})


def small(effect: float, variance: float, p: float, runs: int = 10) -> pd.DataFrame:
    """Equal effects everywhere, in every one of `runs` runs, with so much variance of problems."""
    frame = RAISED.assign(value=effect, by_run=[[effect] * runs] * 4, p=p, n_seeds=runs)
    frame = frame.assign(train_seeds=[list(range(runs))] * 4)
    return frame.assign(var_below=variance, var_above=variance, var_problems=variance)


def pass_test(k: int | str, **more: object) -> dict[str, object]:
    names = {"test": "pass_at_k", "exhibit": "table1", "method": "branch", "other": "grpo"}
    return {**names, "k": k, "direction": "up", **more}


CLAIM = Claim.model_validate(
    {
        "claim": "It rises.",
        "source": "Table 1",
        "primary": pass_test("primary", margin=0.02),
        "secondary": [pass_test(1)],
    }
)


def told(study: ResolvedStudy, found: pd.DataFrame | Measured, claim: Claim = CLAIM) -> LedgerClaim:
    """The claim as the page tells it, of comparisons or of all that was measured."""
    measured = found if isinstance(found, Measured) else Measured(found)
    (one,) = ledger_view(ledger({"rise": claim}, study, measured), study)
    return one


class TestLedger:
    @pytest.fixture
    def study(self) -> ResolvedStudy:
        return a_study(primary_k=2)

    def test_a_row_per_place_and_one_verdict_for_the_claim(self, study: ResolvedStudy) -> None:
        frame = ledger({"rise": CLAIM}, study, Measured(comparisons=RAISED))
        assert list(frame.columns) == COLUMNS
        assert frame["place"].tolist() == ["average", "easy", "hard"] * 2
        assert frame["role"].tolist() == ["primary", "place", "place", *["secondary"] * 3]
        assert frame["test_verdict"].tolist() == ["supported"] * 6
        assert set(frame["verdict"]) == {"supported"}
        # 0.002 and 0.06 at k = 2, 0.001 and 0.2 at k = 1, and the mean there: five tests
        assert frame["place_verdict"].tolist()[1:3] == ["supported", "inconclusive"]

    def test_correct_working_is_told_beside_answers_and_may_be_what_counts(
        self, study: ResolvedStudy
    ) -> None:
        worked = RAISED.assign(metric="worked@k", value=-RAISED["value"])
        worked["by_run"] = [[value] * 3 for value in worked["value"]]
        measured = Measured(comparisons=pd.concat([RAISED, worked]))
        frame = ledger({"rise": CLAIM}, study, measured)
        assert frame["worked"].notna().tolist() == [True] + [False] * 5
        assert frame["worked"][0] == pytest.approx(-0.06)
        (claim,) = ledger_view(frame, study)
        assert claim.verdict == "supported"
        said = "with correct working \u22126.0 (\u22128.9 to \u22123.1), contradicted"
        assert claim.summary[-1] == f"The verdict counts answers. W{said[1:]}."
        first = primary_lines(frame, study, [claim])[0]
        assert first.note == f"pass@2 by answers, mean of 2 benchmarks; {said}"
        primary = pass_test("primary", margin=0.02, count="working")
        of_working = Claim.model_validate(CLAIM.model_dump() | {"primary": primary})
        judged = ledger({"rise": of_working}, study, measured)
        assert set(judged["verdict"]) == {"contradicted"}
        assert judged["says"][0] == "pass@2 with correct working: Branch > GRPO"
        assert judged["worked"].isna().all()
        lost = told(study, RAISED, of_working)
        assert lost.verdict == "not run"
        assert "or the working cannot be checked, on every benchmark" in lost.summary[0]

    def test_where_both_counts_agree_the_first_screen_is_silent(self, study: ResolvedStudy) -> None:
        both = pd.concat([RAISED, RAISED.assign(metric="worked@k")])
        frame = ledger({"rise": CLAIM}, study, Measured(comparisons=both))
        (claim,) = ledger_view(frame, study)
        said = "The verdict counts answers. With correct working +6.0 "
        assert claim.summary[-1].startswith(said)
        assert primary_lines(frame, study, [claim])[0].note == "pass@2, mean of 2 benchmarks"

    def test_opposite_effects_on_two_benchmarks_are_no_support(self, study: ResolvedStudy) -> None:
        pairs = [(on, k, d) for on, d in (("easy", 0.3), ("hard", -0.1)) for k in (1, 2)]
        frame = compared([("branch", "grpo", *pair, 0.01, 0.001) for pair in pairs])
        judged = ledger({"rise": CLAIM}, study, Measured(frame))
        assert judged["place_verdict"].tolist()[:3] == ["supported", "supported", "contradicted"]
        assert set(judged["verdict"]) == {"inconclusive"}
        assert set(judged["because"]) == {APART}

    @pytest.mark.parametrize(
        ("found", "verdict", "said"),
        [
            (RAISED, "supported",
             "This is shown for this base alone. Up to 63 % of runs may be in a state that none of "
             "these 3 was in."),  # 1 - 0.05^(1 / 3)
            (small(0.018, 1e-5, 1e-4), "supported",
             "Whether it reaches 2.0 points, which would matter, is not shown."),
            (small(0.004, 1e-7, 1e-4), "smaller than matters",
             "The contrast is significant, and smaller than 2.0 points."),
            (small(0.001, 1e-5, 0.8), "no difference",
             "A difference larger than 2.0 points is excluded."),
            (small(0.001, 1e-5, 0.8), "no difference",
             "Fewer than 26 % of runs differ by more than 3 times that (95 % confidence)."),
            (small(0.001, 1e-5, 0.8, runs=5), "inconclusive",
             "Inconclusive: the mean lies within 2.0 points, but up to 45 % of runs may differ by "
             "more than 6.0 points; below 30 % it would be no difference."),
            (small(0.06, 0.5, 0.5), "inconclusive",
             "Inconclusive: runs or problems differ so much that a study of this size finds no "
             "difference in 80 % of cases, however large it is."),
            (small(-0.148, 1e-6, 1e-6, 5).assign(by_run=[[-0.30, 0.08, -0.31, 0.08, -0.29]] * 4),
             "inconclusive",
             "Inconclusive: training runs fall into two states, 3 at −30.0 points and 2 at +8.0 "
             "points, and their mean is that of none."),
        ],
    )  # fmt: skip
    def test_what_was_found_is_told_in_words(
        self, study: ResolvedStudy, found: pd.DataFrame, verdict: str, said: str
    ) -> None:
        claim = told(study, found)
        assert claim.verdict == verdict
        assert said in claim.summary
        assert any("would matter" in one for one in claim.summary) == ("would matter" in said)

    def test_no_difference_is_told_with_its_margin(self, study: ResolvedStudy) -> None:
        claim = told(study, small(0.001, 1e-5, 0.8))
        assert claim.verdict_text == "no difference larger than 2.0 points"
        assert counted([claim]) == "1 exploratory claim: 1 without a difference that matters."

    def test_a_claim_of_two_parts_says_which_part_holds(self, study: ResolvedStudy) -> None:
        part = CLAIM.secondary[0].model_copy(update={"part": True})
        claim = CLAIM.model_copy(update={"secondary": [part]})

        def judged(at_one: float, error: float) -> LedgerClaim:
            ends = ((1, at_one, error), (2, 0.08, 0.01))
            pairs = [(on, *end) for on in ("easy", "hard") for end in ends]
            said = told(study, compared([("branch", "grpo", *at, 0.001) for at in pairs]), claim)
            assert {row.role for row in said.rows} == {"primary", "place", "part"}
            return said

        says = "The claim says more: pass@1: Branch > GRPO: "
        both, lost, unclear = judged(0.1, 0.01), judged(-0.1, 0.01), judged(0.0, 0.05)
        assert [one.verdict for one in (both, lost, unclear)] == ["supported"] * 3
        assert both.verdict_text == "supported"
        assert {one.verdict_text for one in (lost, unclear)} == {"supported in part"}
        for one, held in ((both, "holds."), (lost, "does not hold."), (unclear, "is open.")):
            assert f"{says}{held}" in one.summary

    def test_a_claim_about_luck_is_not_testable(self, study: ResolvedStudy) -> None:
        """Above 5 % of pass@k on one benchmark of either method; other k do not matter."""
        keys = {"model": "tiny", "train_seed": -1, "value": 0.8, "stratum": ""}
        low = [
            {**keys, "algorithm": row, "benchmark": name, "k": k, "chance": 0.03 if k == 2 else 0.7}
            for row in ("grpo", "branch")
            for name in ("easy", "hard")
            for k in (1, 2)
        ]
        assert told(study, Measured(RAISED, chance=pd.DataFrame(low))).verdict == "supported"
        high = [row | {"chance": 0.05} if row["k"] == 2 else row for row in low[:2]] + low[2:]
        claim = told(study, Measured(RAISED, chance=pd.DataFrame(high)))
        assert claim.verdict == "not testable"
        said = "against the answers of other problems GRPO has pass@2 5.0 %, against their own 80"
        assert any(said in sentence for sentence in claim.summary)
        assert counted([claim]) == "1 exploratory claim: 1 not testable."
        counted_so = CLAIM.primary.model_copy(update={"count": "working"})
        working = CLAIM.model_copy(update={"primary": counted_so})
        both = pd.concat([RAISED, RAISED.assign(metric=WORKING)])
        unguessed = Measured(both, chance=pd.DataFrame(high))
        assert told(study, unguessed, working).verdict == "supported"

    @pytest.mark.parametrize(
        ("frame", "doses", "verdict", "note", "significant"),
        [
            (small(0.001, 1e-6, 0.8), (), "no difference", "", False),  # no dose was recorded
            (small(0.001, 1e-6, 0.8), (0.04, 0.06), "no difference", "", False),
            (small(0.001, 1e-6, 0.8), (0.01, 0.03), "no difference", "2.5 times", False),
            (RAISED, (0.01,), "supported", "5 times", True),
            (RAISED, (0.06,), "supported", "", False),
        ],
    )
    def test_a_dose_that_is_too_small_stands_beside_the_verdict(
        self,
        study: ResolvedStudy,
        frame: pd.DataFrame,
        doses: tuple[float, ...],
        verdict: str,
        note: str,
        significant: bool,
    ) -> None:
        """A mean dose of (0.01 + 0.03) / 2 = 0.02 is 2.5 times below 0.05."""
        runs = enumerate(doses, start=1)
        histories = {("tiny", "branch", seed): [{"guide_dose": dose}] for seed, dose in runs}
        claim = told(study, Measured(frame, histories=histories))
        said = [one for one in claim.summary if f"{note} too small" in one and note]
        assert claim.verdict == verdict
        assert claim.verdict_text.endswith(f", dose {note} too small") == bool(note)
        assert len(said) == bool(note)
        assert any("p < 0.001" in one or "p = " in one for one in said) == significant

    def test_a_secondary_test_at_a_dose_that_is_too_small_names_its_guide(
        self, study: ResolvedStudy
    ) -> None:
        """The claim keeps its verdict: the paper's dose is asked beside one that acts."""
        contrast = CLAIM.primary.model_copy(update={"method": "strong"})
        claim = CLAIM.model_copy(update={"primary": contrast, "secondary": [CLAIM.primary]})
        strong = study.algorithms["branch"].model_copy(update={"title": "strong"})
        study = changed(study, {"strong": strong})
        frame = pd.concat([RAISED, RAISED.assign(algorithm="strong")])
        doses = {"branch": 0.001, "strong": 0.06}
        histories = {("tiny", row, 1): [{"guide_dose": dose}] for row, dose in doses.items()}
        judged = ledger({"rise": claim}, study, Measured(frame, histories=histories))
        assert set(judged["verdict"]) == {"supported"}
        assert untested_guides(judged) == {"branch": pytest.approx(0.02)}
        assert set(judged.loc[judged["role"] == "primary", "weak_guide"].isna()) == {True}

    def test_the_dose_counts_where_a_guide_alone_is_compared(self) -> None:
        study, weak = a_study(), {("tiny", "branch", 1): [{"guide_dose": 0.0}]}
        none = too_weak(study, ["tiny"], "branch", "grpo", weak)
        assert (none.method, none.share) == ("branch", 0.0)
        assert none.because.endswith("advantages, below 0.05")
        assert too_weak(study, ["tiny"], "grpo", "branch", weak)
        assert not too_weak(study, ["tiny"], "branch", "base", weak)
        assert not too_weak(study, ["tiny"], "branch", "branch", weak)
        runs, model = load_study("paper_runs", ROOT / "config"), "qwen_math_7b"
        pair = "grpo_branch_k1_reward", "grpo_k1_reward"  # with the KL term in the reward
        assert too_weak(runs, [model], *pair, {(model, pair[0], 1): [{"guide_dose": 0.01}]})
        assert not too_weak(runs, [model], *pair, {(model, pair[0], 1): [{"guide_dose": 0.06}]})
        free = study.algorithms["grpo"].model_copy(update={"kl": "none", "estimator": None})
        without = changed(study, {"grpo": free})
        assert without.kl_coefficient("tiny", "grpo") == 0.0 < study.kl_coefficient("tiny", "grpo")
        assert not too_weak(without, ["tiny"], "branch", "grpo", weak)

    def test_the_dose_is_that_of_the_place_of_the_kl_term_over_all_bases(self) -> None:
        """In the loss (branch has k3) `loss_dose` counts; bases count alike."""
        study = a_study()
        both = {("tiny", "branch", 1): [{"guide_dose": 0.3, "loss_dose": 0.002}]}
        said = too_weak(study, ["tiny"], "branch", "grpo", both)
        assert said.share == pytest.approx(0.04)
        assert said.because == (
            "the dose of Branch in the loss is 0.002 standard deviations of the advantages, below "
            "0.05, 25 times too small"
        )
        runs, pair = load_study("paper_runs", ROOT / "config"), ("grpo_branch_k1_reward", "grpo")
        model = "qwen_math_7b"
        in_reward = {(model, pair[0], 1): [{"guide_dose": 0.3, "loss_dose": 0.002}]}
        assert not too_weak(runs, [model], *pair, in_reward)
        doses = {("tiny", "branch", seed): [{"loss_dose": 0.01}] for seed in (1, 2, 3)}
        doses["second", "branch", 1] = [{"loss_dose": 0.2}]
        assert too_weak(study, ["tiny"], "branch", "grpo", doses)
        study = of_bases(study)
        dose = dose_of(study, ["tiny", "second"], "branch", doses)
        assert dose == (pytest.approx(0.105), "the loss")
        assert not too_weak(study, ["tiny", "second"], "branch", "grpo", doses)

    def test_few_bases_are_not_called_runs(self, study: ResolvedStudy) -> None:
        few, many = (
            told(of_bases(study), small(0.001, 1e-5, 0.8, n).assign(model="group", n_bases=n))
            for n in (5, 12)
        )
        assert "up to 45 % of bases may differ by more than 6.0 points" in few.because
        assert any("of bases differ by more than 3 times that" in one for one in many.summary)

    def test_a_sign_in_a_title_turns_no_contrast(self, study: ResolvedStudy) -> None:
        study = retitled(study, branch="Branch > 1.2", grpo="A < B")
        test = {**pass_test("primary", margin=0.02), "direction": "down"}
        claim = Claim.model_validate(CLAIM.model_dump() | {"primary": test})
        frame = ledger({"fall": claim}, study, Measured(RAISED))
        (line,) = primary_lines(frame, study, ledger_view(frame, study))
        assert (line.title, line.claimed) == ("Branch > 1.2 − A < B", "down")

    def test_what_was_not_run_is_named(self, study: ResolvedStudy) -> None:
        elsewhere = PassAtK.model_validate({**pass_test(1), "exhibit": "table4"})
        claim = CLAIM.model_copy(update={"secondary": [elsewhere]})
        seen = told(study, RAISED, claim)
        assert seen.verdict == "supported"
        assert "Not run: pass@1: Branch > GRPO." in seen.summary
        part = claim.model_copy(update={"secondary": [elsewhere.model_copy(update={"part": True})]})
        seen = told(study, RAISED, part)
        assert seen.verdict_text == "supported in part"
        assert "The claim says more: pass@1: Branch > GRPO: is open." in seen.summary

    def test_one_training_run_decides_no_claim_and_says_so(self, study: ResolvedStudy) -> None:
        claim = told(study, one_run(RAISED))
        assert claim.verdict == "inconclusive"
        assert claim.because == "one training run"
        assert claim.rows[0].verdict == "so in one run"
        assert claim.rows[1].over == "41 problems, 1 run"
        unclear = one_run(RAISED.assign(value=0.001, p=0.8))
        assert told(study, unclear).because == "one training run"

    def test_a_claim_about_a_model_of_several_bases_is_about_all(
        self, study: ResolvedStudy
    ) -> None:
        study = of_bases(study)
        claim = told(study, RAISED.assign(model="group", n_bases=2, n_seeds=6))
        assert claim.verdict == "supported"
        assert claim.rows[0].over == "82 problems, 2 bases, 6 runs"
        assert not any("this base" in sentence for sentence in claim.summary)
        assert "Up to 78 % of bases may be in a state that none of these 2 was in." in claim.summary
        assert told(study, RAISED).verdict == "not run"

    def test_p_of_a_margin_is_about_the_margin(self, study: ResolvedStudy) -> None:
        test = PassAtK.model_validate(pass_test(1, direction="not up", margin=0.2))
        (mean, *_), _ = findings(test, study, Measured(RAISED))
        # 0.13 below it, standard error sqrt(0.02^2 + 0.03^2) / 2 = 0.018
        assert mean.p < 1e-6
        assert of_finding(test, mean, mean.p) == "supported"
        claim = CLAIM.model_copy(update={"primary": test, "secondary": []})
        seen = told(study, RAISED, claim)
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
        # 14.3 (1 + 0.850 / 2.020), Student's t with 40 degrees of freedom
        assert first.detectable == "20.3 points"
        assert claim.summary == (
            "Primary contrast: pass@2: Branch > GRPO, mean over 2 benchmarks. Found: +6.0 points "
            "(95 % interval \u22128.3 to +20.3), 82 problems, 3 runs.",
            "Inconclusive: a study of this size finds a difference of 20.3 points in 80 % of "
            "cases, and smaller ones less often.",
            "All but the primary contrast: p adjusted after Holm over 4 tests.",
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


def test_a_claim_about_a_guide_says_how_strongly_it_acted() -> None:
    study = a_study()
    rising = [row | {"amplified_share": 0.3, "log_q": 0.5} for row in history(3)]
    rising[2] |= {"amplified_share": 0.1, "log_q": -0.25, "guide_dose": 0.012}
    runs = {("tiny", "branch", seed): rising for seed in (1, 2)}
    beta = study.model("tiny").rl.kl_coefficient
    assert beta == 0.05
    text = strength_text(study, ["tiny"], ["grpo", "branch"], runs)
    assert text == (
        f"{method_title(study, 'branch')} (2 runs; first and last third of training): q > 1 on "
        "30.0 and 10.0 % of tokens; mean log q of a completion 0.5 and \u22120.25 nats, times β "
        "0.025 and \u22120.0125; dose in the reward 0.012. The dose in the reward is the "
        "standard deviation of β log q among completions of a prompt, in units of that of their "
        "advantages; below 0.05 a guide is not tested."
    )
    assert strength_text(study, ["tiny"], ["grpo", "base"], runs) == ""
    short = {("tiny", "branch", 1): rising[:2]}
    assert strength_text(study, ["tiny"], ["branch"], short) == ""
