"""Claims: the file that states them, and every verdict from numbers alone."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from report_frames import ROOT

from sage.claims.evidence import Finding
from sage.claims.ledger import says
from sage.claims.tests import Claim, PassAtK, first_compared, load_claims, read_claims
from sage.claims.verdicts import APART, Seen, adjusted, far_share, of_claim, of_finding
from sage.exhibits import load_study
from sage.study import StudyError
from sage.study.written import read_study


def a_test(direction: str = "up", margin: float | None = None) -> PassAtK:
    return PassAtK.model_validate(
        {
            "test": "pass_at_k",
            "k": 1,
            "exhibit": "table1",
            "method": "branch",
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


def of_secondary(pairs: list[tuple[PassAtK, Finding]]) -> list[Seen]:
    """The verdict of each finding, p adjusted together."""
    p, _ = adjusted([finding for _, finding in pairs])
    return [of_finding(test, finding, at) for (test, finding), at in zip(pairs, p, strict=True)]


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
            ("up", 0.02, found(0.001, 0.015, 0.03), "smaller than matters"),
            ("down", 0.02, found(0.001, 0.015, 0.03), "smaller than matters"),
            ("up", 0.02, found(0.001, 0.035, 0.03), "supported"),  # 90 %: up to 0.0316
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

    def test_means_alone_do_not_show_that_methods_are_alike(self) -> None:
        """Of nine runs of which none is far, up to 1 - 0.05^(1/9) = 28.3 % may be; of five 45 %."""
        near, test = found(-0.01, 0.01, 0.9), a_test("up", 0.02)
        runs = {n: replace(near, by_run=(0.0,) * n) for n in (5, 9, 14)}
        shares = {n: far_share(test, finding) for n, finding in runs.items()}
        assert shares == pytest.approx({n: 1 - 0.05 ** (1 / n) for n in runs})
        seen = {n: of_finding(test, finding, 0.9, True) for n, finding in runs.items()}
        assert seen == {5: "inconclusive", 9: "no difference", 14: "no difference"}
        one_far = replace(near, by_run=(*(0.0,) * 8, -0.061))  # beyond three margins
        assert of_finding(test, one_far, 0.9, True) == "inconclusive"
        assert of_finding(test, replace(one_far, by_run=(*(0.0,) * 8, -0.059)), 0.9, True) == (
            "no difference"
        )
        assert far_share(test, replace(near, by_run=(0.1,) * 3)) == 1.0

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
        other = found(0.01, 0.05, 0.02)
        assert adjusted([pair[1], other, pair[1]]) == ([0.04, 0.04, 0.04], 2)

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
        for verdict in ("no difference", "smaller than matters"):
            assert of_claim(verdict, ["supported", "contradicted"]) == apart


class TestLoader:
    def test_the_ledger_of_the_paper_loads_and_names_rows_that_exist(self) -> None:
        claims = load_claims(ROOT / "config/claims.yaml")
        paper, runs = (load_study(name, ROOT / "config") for name in ("paper", "paper_runs"))
        assert [name for name, claim in claims.items() if claim.source == "Eq. 4"] == [
            "anchor_in_reward"  # the paper has no such row
        ]
        for name, claim in claims.items():
            study = runs if name == "anchor_in_reward" else paper
            for test in (claim.primary, *claim.secondary):
                assert test.exhibit in study.study.exhibits
                rows = set(study.methods_of(test.exhibit)) | {"base"}
                assert {test.method, test.other} <= rows, test

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{test: pass_at_k, method: a, other: b, k: 1, direction: up}",
             ".primary.exhibit: missing"),
            ("{test: pass_at_k, exhibit: t, method: a, other: b, k: 0, direction: up}",
             ".primary.k: .*allowed: primary"),
            ("{test: pass_at_k, exhibit: t, method: a, other: b, k: 1, direction: more}",
             ".primary.direction: 'more' is not"),
            ("{test: pass_at_k, exhibit: t, method: a, other: b, k: 1, direction: up, "
             "benchmarks: [x, x]}", r".primary.benchmarks\[1\]: 'x' occurs twice"),
            ("{test: tail, exhibit: t, method: a, other: b, direction: not up}",
             ".primary: .*needs a margin"),
            ("{test: tail, exhibit: t, method: a, other: b, direction: up}",
             ": .*primary test needs a margin"),
            ("{test: tail, exhibit: t, method: a, other: b, direction: up, verdict: yes}",
             ".primary.verdict: unknown key"),
            ("{test: taste, exhibit: t, method: a, other: b, direction: up}",
             ".primary.test: 'taste' is not .*tail"),
        ],
    )  # fmt: skip
    def test_a_faulty_test_is_an_error_that_names_file_and_fault(
        self, tmp_path: Path, line: str, message: str
    ) -> None:
        path = tmp_path / "claims.yaml"
        path.write_text(f"one:\n  claim: c\n  source: s\n  primary: {line}\n")
        with pytest.raises(ValueError, match=rf"(?s)claims.yaml: \d faults?\n  one{message}"):
            load_claims(path)

    def test_a_name_that_occurs_twice_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "claims.yaml"
        path.write_text("one: {claim: c}\none: {claim: d}\n")
        with pytest.raises(ValueError, match=r"claims.yaml, line 2, .*'one' occurs twice"):
            load_claims(path)

    def test_at_most_three_claims_open_the_report(self, tmp_path: Path) -> None:
        path = tmp_path / "claims.yaml"
        line = "{test: tail, exhibit: t, method: a, other: b, direction: up, margin: 0.1}"
        claim = f"  claim: c\n  source: s\n  headline: true\n  primary: {line}\n"
        path.write_text("".join(f"c{n}:\n{claim}" for n in range(3)))
        assert all(one.headline for one in load_claims(path).values())
        path.write_text("".join(f"c{n}:\n{claim}" for n in range(4)))
        with pytest.raises(ValueError, match="c0, c1, c2, c3 have headline: true; at most 3"):
            load_claims(path)


class TestWords:
    def test_every_test_of_the_paper_can_be_said(self) -> None:
        mini = load_study("mini", ROOT / "config")
        claims = load_claims(ROOT / "config/claims.yaml").values()
        texts = [says(test, mini) for c in claims for test in (c.primary, *c.secondary)]
        assert all(": " in text for text in texts)
        assert "pass@1: GRPO + Forward KL (sampled value) ≤ GRPO + 0.2 points" in texts
        assert "pass@16: GRPO + Branch > GRPO" in texts
        assert "grad norm, second third: GRPO w/o KL < GRPO" in texts

    def test_primary_is_the_k_of_the_model_that_the_exhibit_is_about(self) -> None:
        paper = load_study("paper", ROOT / "config")
        test = a_test().model_copy(update={"k": "primary"})
        assert test.k_in(paper) == 256
        on_r1 = test.model_copy(update={"exhibit": "table4"})
        assert on_r1.k_in(paper) == 64


class TestClaimsOfAStudy:
    CLAIM = "claims:\n  ours:\n    claim: A is above B.\n    source: here\n"
    CLAIM += "    primary: {test: pass_at_k, exhibit: table1, method: grpo, other: base, k: 1, "

    def read(self, file: Path, text: str) -> dict[str, Claim]:
        file.write_text(text, encoding="utf-8")
        study = load_study(str(file), ROOT / "config")
        return read_claims(study.study.claims, read_study(str(file), ROOT / "config"))

    def test_they_replace_those_below_one_by_one(self, tmp_path: Path) -> None:
        below = self.read(tmp_path / "below.yaml", "extends: mini\n")
        text = f"extends: mini\n{self.CLAIM}direction: up, margin: 0.1}}\n"
        more = self.read(tmp_path / "more.yaml", text)
        assert [*more] == [*below, "ours"]
        assert {name: more[name] for name in below} == below
        again = text.replace("ours", "accuracy_and_coverage")
        replaced = self.read(tmp_path / "again.yaml", again)["accuracy_and_coverage"]
        assert below["accuracy_and_coverage"].headline
        assert not replaced.headline
        assert replaced == more["ours"]
        alone = text.replace("claims:\n", "claims:\n  others: null\n")
        assert [*self.read(tmp_path / "alone.yaml", alone)] == ["ours"]
        first = text.replace("extends: mini", "extends: smoke")
        assert [*self.read(tmp_path / "first.yaml", first)] == ["ours"]  # smoke has a file
        none = first.replace("claims:\n", "claims:\n  others: null\n")
        assert [*self.read(tmp_path / "none.yaml", none)] == ["ours"]
        papers = self.read(tmp_path / "papers.yaml", "extends: mini\nclaims: null\n")
        assert papers == load_claims(ROOT / "config/claims.yaml")

    def test_a_fault_has_its_place(self, tmp_path: Path) -> None:
        text = f"extends: mini\n{self.CLAIM}direction: upp}}\n"
        with pytest.raises(StudyError, match=r"claims\.ours\.primary\.direction: .* \(line 6\)"):
            self.read(tmp_path / "own.yaml", text)


@pytest.mark.parametrize(
    ("name", "methods", "seed"),
    [
        ("mini", ["base", "grpo", "grpo_branch_strong_k1_reward", "grpo_k1_reward"], 1),
        ("smoke", ["base", "grpo", "grpo_branch"], 3407),
    ],
)
def test_the_first_page_needs_one_run_of_what_headlines_compare(
    name: str, methods: list[str], seed: int
) -> None:
    study = load_study(name, ROOT / "config")
    pairs = first_compared(study, read_claims(study.study.claims or {}))
    assert sorted(run.algorithm for run, _ in pairs) == methods
    assert {run.seed for run, _ in pairs if run.algorithm != "base"} == {seed}
    assert len({benchmark for _, benchmark in pairs}) == 1
