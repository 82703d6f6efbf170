"""What opens a page: its first sentences, with numbers before and after, and the forest."""

import numpy as np
import pandas as pd
import pytest
from report_frames import COMPARISONS, METRICS, a_study, changed, comparisons, pass_at_k

from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.metrics import pass_at_k_table
from sage.exhibits.kind import Findings
from sage.rendering.forest import Line
from sage.rendering.table import Table
from sage.report.opening import TOLD, opening
from sage.study import ResolvedStudy
from sage.study.choices import Reward

OVERLONG = Reward(kind="overlong", settings={"margin_tokens": 4})


def with_a_control(study: ResolvedStudy, *names: str) -> ResolvedStudy:
    """The study with methods (`no_kl`) that are rewarded for tags alone."""
    tagged = {"rewards": [Reward(kind="tagged"), OVERLONG]}
    rows = {name: study.algorithms[name].model_copy(update=tagged) for name in names or ("no_kl",)}
    return changed(study, rows)


@pytest.mark.parametrize(
    ("branch", "p_branch", "control", "p_control", "said"),
    [
        (
            0.1,
            0.001,
            0.2,
            0.001,
            [
                "Branch has clearly more pass@1 than GRPO: +10.0 points (95 % interval ",
                "GRPO w/o KL, a control that is not rewarded for right answers, has more pass@1 "
                "than every method: +20.0 points (95 % interval +18.0 to +22.0) from GRPO; the "
                "base has −16.0.",
            ],
        ),
        (0.1, 0.001, 0.1, 0.2,
         ["Branch has clearly more pass@1", "from GRPO, which is not clear; the base has −16.0."]),
        (0.2, 0.001, 0.1, 0.001, ["Branch has clearly more pass@1 than GRPO: +20.0"]),
        (0.2, 0.300, 0.1, 0.001, ["Branch is not clearly better or worse than GRPO: +20.0"]),
        (-0.1, 0.001, 0.1, 0.001,
         ["Branch has clearly less pass@1 than GRPO: −10.0", "has more pass@1 than every"]),
        (-0.1, 0.001, 0.0, 1.000, ["Branch has clearly less pass@1"]),
    ],
)  # fmt: skip
def test_a_control_is_not_named_as_the_method_that_gains(
    branch: float, p_branch: float, control: float, p_control: float, said: list[str]
) -> None:
    study = with_a_control(a_study(algorithms=("grpo", "no_kl", "branch"), primary_k=1))
    compared = comparisons(
        [("grpo", "base", name, 1, gain, 0.001) for name, gain in (("easy", 0.3), ("hard", 0.02))]
        + [("branch", "grpo", name, 1, branch, p_branch) for name in ("easy", "hard")]
        + [("no_kl", "grpo", name, 1, control, p_control) for name in ("easy", "hard")]
    )
    variance = compared["p"].map(lambda p: 0.0002 if p < 0.05 else 0.05)
    ends = dict.fromkeys(("var_problems", "var_below", "var_above"), variance)
    compared = compared.assign(**ends)
    shifted = [
        (name, benchmark, k, value + gain, low, high)
        for name, gain in (("branch", branch), ("no_kl", control))
        for row, benchmark, k, value, low, high in METRICS
        if row == "grpo"
    ]
    rows = [row for row in METRICS if row[0] != "branch"] + shifted
    opened = opening(study, compared, pass_at_k(rows), [], 0)
    others = opened.sentences[1:-1]
    assert len(others) == len(said)
    for sentence, part in zip(others, said, strict=True):
        assert part in sentence
    assert rows_of(opened.summary) == {
        "": ["Base", "GRPO", "Branch"],
        "Controls, not rewarded for right answers": ["GRPO w/o KL"],
    }


def test_where_all_others_are_controls_the_page_calls_them_so() -> None:
    study = with_a_control(a_study(algorithms=("grpo", "no_kl", "branch")), "no_kl", "branch")
    rows = METRICS + [("no_kl", *row[1:]) for row in METRICS if row[0] == "branch"]
    unclear = COMPARISONS.assign(var_problems=1.0, var_below=1.0, var_above=1.0)
    compared = pd.concat([unclear, unclear.replace({"branch": "no_kl"})])
    said = opening(study, compared, pass_at_k(rows), [], 0).sentences[1]
    assert said.startswith("No other control is clearly better or worse than GRPO. The largest ")
    assert said.endswith(" of pass@1, may be chance among 2 comparisons.")


def test_one_run_is_not_judged_where_others_have_several() -> None:
    study = a_study(algorithms=("grpo", "no_kl", "branch"), primary_k=1)
    compared = comparisons(
        [
            (row, other, name, 1, gain, 0.001)
            for row, other, gain in (
                ("grpo", "base", 0.2),
                ("branch", "grpo", 0.1),
                ("no_kl", "grpo", 0.3),
            )
            for name in ("easy", "hard")
        ]
    ).assign(var_problems=0.0002, var_below=0.0002, var_above=0.0002, n_seeds=3)
    compared["train_seeds"] = [[1, 2, 3]] * len(compared)
    compared["by_run"] = [3 * runs for runs in compared["by_run"]]
    assert second(study, compared).startswith(
        "GRPO w/o KL and Branch have clearly more pass@1 than GRPO: +30.0 points"
    )
    alone = compared["algorithm"] == "no_kl"
    compared["n_seeds"] = np.where(alone, 1, 3)
    for name in ("train_seeds", "by_run"):
        compared[name] = [
            runs[:1] if once else runs for runs, once in zip(compared[name], alone, strict=True)
        ]
    assert second(study, compared).startswith("Branch has clearly more pass@1 than GRPO: +10.0")
    opened = opening(study, compared, with_no_kl(), [], 0)
    assert verdicts_of(opened.summary)["GRPO w/o KL"] == "one run, not judged"


def test_a_claim_about_two_other_methods_is_told_behind_the_first_sentence() -> None:
    lines = [
        Line("Strong − Plain", "pass@4, Easy", 0.045, 0.033, 0.057, measure="pass@4"),
        Line("Branch − GRPO", "pass@4, Easy", 0.1, 0.05, 0.15, measure="pass@4"),  # in the summary
        Line("Weak − Plain", "pass@4, Easy", 0.1, 0.05, 0.15, "", "not-testable"),
        Line("Late − Plain", "pass@4, mean of 2 sets; why", -0.01, -0.03, 0.01, measure="pass@4"),
    ]
    unsure = Line("A − B", "pass@4, Easy", -0.1, -0.15, -0.05, "", "inconclusive", measure="pass@4")
    (said,) = opening(a_study(), COMPARISONS, pass_at_k(METRICS), [unsure], 0).sentences[1:2]
    assert said == (
        "A has 10.0 points less pass@4 than B on Easy (95 % interval −15.0 to −5.0); the claim is "
        "inconclusive."
    )
    first, *told = opening(a_study(), COMPARISONS, pass_at_k(METRICS), lines, 0).sentences[:3]
    assert first.startswith("GRPO gains ")
    assert told == [
        "Strong has 4.5 points more pass@4 than Plain on Easy (95 % interval +3.3 to +5.7).",
        "Late does not clearly differ from Plain in pass@4 on the mean of 2 sets: "
        "−1.0 points (95 % interval −3.0 to +1.0); why.",
    ]


def with_no_kl() -> pd.DataFrame:
    return pass_at_k(METRICS + [("no_kl", *row[1:]) for row in METRICS if row[0] == "grpo"])


def second(study: ResolvedStudy, compared: pd.DataFrame) -> str:
    return opening(study, compared, with_no_kl(), [], 0).sentences[1]


def rows_of(table: Table) -> dict[str, list[str]]:
    return {group.title: [row.title for row in group.rows] for group in table.groups}


def verdicts_of(table: Table) -> dict[str, str]:
    return {row.title: row.cells[-1].text for group in table.groups for row in group.rows}


def test_the_summary_has_a_row_for_each_method() -> None:
    """At k = 1 GRPO − base is +16 and Branch − GRPO +19; at k = 4 Hard was not measured."""
    opened = opening(a_study(), COMPARISONS, pass_at_k(METRICS), [], 0)
    heads = [(head.title, head.columns) for head in opened.summary.heads]
    assert heads[:2] == [("", ("pass@1", "pass@4")), ("Difference from GRPO", ("pass@1", "pass@4"))]
    base, grpo, branch = opened.summary.groups[0].rows
    assert [cell.text for cell in base.cells] == ["20.0", "70.0", "−16.0", "–", "starting point"]
    assert [cell.text for cell in grpo.cells] == ["36.0", "40.0", "–", "–", "reference"]
    assert [cell.text for cell in branch.cells] == ["55.0", "75.0", "+19.0", "–", "more pass@1"]
    assert branch.cells[2].small == "+11.8 to +26.2"
    assert "Holm" not in opened.summary_caption
    twice = pd.concat([COMPARISONS, COMPARISONS.replace({"branch": "no_kl"})])
    study = a_study(algorithms=("grpo", "branch", "no_kl"))
    for variance, verdict in ((1.0, "no clear difference"), (0.0164, "may be chance")):
        ends = dict.fromkeys(("var_problems", "var_below", "var_above"), variance)
        both = opening(study, twice.assign(**ends), with_no_kl(), [], 0)
        assert verdicts_of(both.summary)["Branch"] == verdict
        assert "Clear: p < 0.05 after Holm over all 2. " in both.summary_caption


def test_the_summary_tells_answers_from_correct_working_where_both_are_known() -> None:
    chance = pd.DataFrame(
        [
            ("tiny", name, seed, "easy", "", k, worked)
            for name, seed, worked in (("base", -1, 0.6), ("grpo", -1, 0.3), ("grpo", 1, 0.9))
            for k in (1, 4)
        ],
        columns=["model", "algorithm", "train_seed", "benchmark", "stratum", "k", "worked"],
    )
    table = opening(a_study(), COMPARISONS, pass_at_k(METRICS), [], 0, (), chance).summary
    assert table.heads[1].title == "Difference from GRPO by answers"
    assert table.heads[0].columns[-1] == "pass@4, correct working"
    assert [row.cells[2].text for row in table.groups[0].rows] == ["60.0", "30.0", "–"]


@pytest.mark.parametrize(
    ("shares", "said", "note"),
    [
        ({"branch": 0.25}, "SAGE’s guides are not tested here: the dose is 4 times too small in",
         "; dose 4 times too small"),
        ({"branch": 0.99}, "the dose is just too small in Branch.", "; dose just too small"),
        ({"branch": 0.0}, "the dose is 0 in Branch.", "; dose 0"),
        ({"grpo": 0.5}, "Too weak to be tested here: ", ""),
    ],
)  # fmt: skip
def test_a_guide_that_acted_too_weakly_is_judged_with_a_note(
    shares: dict[str, float], said: str, note: str
) -> None:
    opened = opening(a_study(), COMPARISONS, pass_at_k(METRICS), [], 0, (), untested=shares)
    assert said in opened.sentences[1]
    verdict = verdicts_of(opened.summary)["Branch"]
    assert verdict.startswith("more pass")
    assert verdict.endswith(note)
    assert any(sentence.startswith("Branch ") for sentence in opened.sentences)


def test_what_correct_working_changes_is_said() -> None:
    worked = COMPARISONS.assign(metric="worked@k", p=0.001)
    apart = worked["by_run"].map(lambda runs: [value - 0.2 for value in runs])
    both = pd.concat([COMPARISONS, worked.assign(value=worked["value"] - 0.2, by_run=apart)])
    said = opening(a_study(), both, pass_at_k(METRICS), [], 0).sentences[1]
    assert said.startswith("With correct working as well it does not clearly change pass@1 (−4.0")
    alike = pd.concat([COMPARISONS, COMPARISONS.assign(metric="worked@k")])
    for compared in (alike, COMPARISONS):
        sentences = opening(a_study(), compared, pass_at_k(METRICS), [], 0).sentences
        assert not any("working" in sentence for sentence in sentences)


def test_a_base_that_nothing_was_trained_from_opens_with_its_own_numbers() -> None:
    rows = pass_at_k([row for row in METRICS if row[0] == "base"])
    opened = opening(a_study(), COMPARISONS.iloc[:0], rows, [], 0)
    assert opened.sentences == (
        "Tiny reaches pass@1 of 30.0 % (95 % interval 20.0–40.0) and pass@4 of 70.0 % "
        "(95 % interval 60.0–80.0) on Easy.",
    )


def test_the_model_is_named_where_another_has_the_same_benchmarks() -> None:
    study = a_study()
    tiny = study.model("tiny")
    models = {"tiny": tiny, "twin": tiny.model_copy(update={"title": "Twin"})}
    both = changed(study, models=models)
    alone, beside = (
        opening(each, COMPARISONS, pass_at_k(METRICS), [], 0) for each in (study, both)
    )
    assert alone.sentences[0].endswith(", mean of 2 benchmarks.")
    assert beside.sentences[0].endswith(", mean of 2 benchmarks, model Tiny.")
    assert beside.summary_caption.startswith("Mean of 2 benchmarks, model Tiny, in percent. ")


def test_a_page_opens_with_a_few_findings_of_exhibits_alone() -> None:
    findings = [Findings([f"Finding {n}."]) for n in range(TOLD + 2)]
    sentences = opening(a_study(), None, None, [], 0, findings).sentences
    assert sentences[:-1] == tuple(f"Finding {n}." for n in range(TOLD))
    assert sentences[-1] == "The sections below have 2 more findings of this kind."
    few = opening(a_study(), None, None, [], 0, findings[:TOLD]).sentences
    assert len(few) == TOLD


def test_a_level_before_is_that_of_the_runs_in_common() -> None:
    """GRPO has run 1, the other method runs 1 to 3, of which only the first is compared."""
    rows = [
        {"model": "tiny", "algorithm": row, "train_seed": seed, "benchmark": name}
        | {"problem_id": f"p{at}", "cluster": "", "stratum": "", "n_samples": 8}
        | {"correct": min(8, right + at % 2), "worked": np.nan, "chance": [np.nan] * 4}
        for row, seed, right in [
            ("base", 0, 2), ("grpo", 1, 5), ("branch", 1, 1), ("branch", 2, 7), ("branch", 3, 7)
        ]
        for name in ("easy", "hard")
        for at in range(40)
    ]  # fmt: skip
    counts = pd.DataFrame(rows)
    tables = comparisons_table(counts, 200), pass_at_k_table(counts, 200)
    study = a_study(algorithms=("grpo", "branch"), primary_k=1)
    model = study.study.models["tiny"].model_copy(update={"seeds": {"branch": [1, 2, 3]}})
    study = changed(study, models={"tiny": model})
    opened = opening(study, *tables, [], 0)
    assert "Branch has clearly less pass@1 than GRPO: −50.0 points" in " ".join(opened.sentences)
    assert opened.sentences[-1].startswith("Only one run is common to these methods")
    *_, branch = opened.summary.groups[0].rows
    texts = [cell.text for cell in branch.cells]
    assert texts == ["68.8", "−50.0", "3", "less pass@1"]  # of three runs; the difference of one


@pytest.mark.parametrize(("untold", "said"), [(0, ""), (1, "1 more claim has "), (2, "2 more cl")])
def test_claims_that_cannot_be_drawn_are_counted(untold: int, said: str) -> None:
    lines = [Line("Strong − Plain", "pass@4, Easy", 0.045, 0.033, 0.057, measure="pass@4")]
    assert opening(a_study(), None, None, lines, untold).note.startswith(said)
