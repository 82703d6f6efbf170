"""The report's other tables: readings, ablations, measures and settings, from numbers by hand."""

import math
from pathlib import Path

import pytest
from report_frames import METRICS, ROOT, Given, a_study, changed, heads, pass_at_k, shown, table_of
from table_frames import MeasuredFrames

from sage.exhibits import kind_of, load_study
from sage.exhibits.accuracy import reading_table
from sage.exhibits.perplexity_of_responses import tail_table
from sage.exhibits.settings import rl_settings, sft_settings
from sage.exhibits.theory import toy_caption
from sage.rendering.documents import latex_table
from sage.rendering.forest import Line, forest
from sage.rendering.numbers import (
    NONE,
    duration,
    ends,
    grouped,
    interval,
    interval_of_points,
    number_text,
    p_text,
    percent,
    points,
    size_of,
)
from sage.rendering.table import TableDocument
from sage.theory.toy import toy_example


class TestReading(MeasuredFrames):
    def document(self) -> TableDocument:
        frames = {"pass_at_k": pass_at_k(METRICS), "paper_reading": self.READ}
        return reading_table(Given(a_study(), "table1", Path(), Path(), frames))

    def test_both_readings_of_a_run_stand_in_one_row(self) -> None:
        rows = self.document().frame.set_index(["benchmark", "algorithm", "k"])
        base = rows.loc[("easy", "base", 1)]
        parts = ["value", "low", "high", "reading", "std"]
        assert base[parts].tolist() == [0.30, 0.20, 0.40, 0.25, 0.10]
        assert base["n_eval_seeds"] == 5
        assert rows.loc[("easy", "grpo", 1), "reading"] == 0.55  # the pooled row, not a run's

    def test_what_was_not_read_is_nan(self) -> None:
        rows = self.document().frame.set_index(["benchmark", "algorithm", "k"])
        assert math.isnan(rows.loc[("easy", "branch", 4), "reading"])
        assert rows.loc[("easy", "branch", 4), "n_eval_seeds"] == 0

    def test_a_spread_is_shown_only_where_there_is_one(self) -> None:
        document = self.document()
        assert shown(document, "Base") == ["30.0", "25.0", NONE, NONE, "70.0", "70.0"]
        assert shown(document, "Base", small=True)[:4] == ["20.0–40.0", "± 10.0", "", ""]
        assert shown(document, "GRPO", group=1) == ["12.0", "15.0", "22.0", NONE, NONE, NONE]
        assert [group.title for group in document.table.groups] == ["Easy", "Hard"]
        assert "nan" not in latex_table(document.table, "")


class TestAblation:
    METRICS = pass_at_k(
        [
            ("branch", "easy", 1, 0.50, 0.40, 0.60),
            ("branch", "easy", 4, 0.80, 0.70, 0.90),
            ("branch-threshold0.8-ratio0.3", "easy", 1, 0.45, 0.35, 0.55),
            ("branch-threshold0.8-ratio0.3", "easy", 4, 0.85, 0.75, 0.95),
            ("branch-threshold1.2-ratio0.5", "easy", 1, 0.40, 0.30, 0.50),
            ("branch-threshold1.2-ratio0.5", "easy", 4, 0.75, 0.65, 0.85),
        ]
    )

    def document(self) -> TableDocument:
        return table_of(a_study(), "table6", pass_at_k=self.METRICS)

    def test_every_cell_has_a_row_per_k_and_the_own_settings_are_the_algorithm_itself(self) -> None:
        table = self.document().frame
        columns = ["threshold", "ratio", "algorithm", "own", "k", "value", "low", "high"]
        assert table.columns.tolist() == columns
        assert table[["threshold", "ratio", "k"]].to_numpy().tolist() == [
            [threshold, ratio, k]
            for threshold in (0.8, 1.2)
            for ratio in (0.3, 0.5)
            for k in (1, 4)
        ]
        own = table[table["own"]]
        assert own["algorithm"].tolist() == ["branch", "branch"]
        assert own["value"].tolist() == [0.50, 0.80]

    def test_a_cell_without_a_run_is_nan(self) -> None:
        table = self.document().frame
        cell = table[(table["threshold"] == 0.8) & (table["ratio"] == 0.5)]
        assert cell["value"].isna().all()

    def test_it_is_a_grid_of_pairs_with_the_own_cell_marked(self) -> None:
        document = self.document()
        pairs = ("pass@1", "pass@4")
        assert heads(document) == [("ratio 0.3", *pairs), ("ratio 0.5", *pairs)]
        assert shown(document, "0.8") == ["45.0", "85.0", "not run", "not run"]
        assert shown(document, "1.2") == ["50.0", "80.0", "40.0", "75.0"]
        assert [cell.mark for cell in document.table.groups[0].rows[1].cells][:3] == [
            *["own"] * 2,
            "",
        ]
        assert shown(document, "1.2", small=True)[:2] == ["40.0–60.0", "70.0–90.0"]


class TestMeasures(MeasuredFrames):
    def test_patterns_keep_the_exhibits_rows_in_their_order(self) -> None:
        document = table_of(a_study(), "table2", patterns=self.PATTERNS)
        table = document.frame
        assert table["algorithm"].tolist() == ["base", "base", "branch", "branch"]
        assert table["title"].tolist() == ["Base", "Base", "Branch", "Branch"]
        assert table["pattern_title"].tolist() == ["Proof", "Set & up", "Proof", "Set & up"]
        assert shown(document, "Base") == ["0.0", "0.0", "10.0", "15.0", "20"]
        below = ["", "0.0–100.0", "5.0–20.0", "0.0–100.0", ""]
        assert shown(document, "Base", small=True) == below
        assert heads(document)[:2] == [
            (name, "all", "per problem") for name in ("Proof", "Set & up")
        ]

    def test_gradients_show_ranges_only_over_several_runs(self) -> None:
        document = table_of(a_study(), "table5", stages=self.GRADIENTS)
        table = document.frame
        assert table["algorithm"].tolist() == ["grpo"] * 2 + ["branch"] * 3
        assert heads(document) == [("", "Early", "Mid", "Late")]
        assert shown(document, "GRPO") == ["0.056", NONE, "0.053"]
        assert not any(shown(document, "GRPO", small=True))
        assert shown(document, "Branch") == ["0.040", "0.030", "0.050"]
        assert shown(document, "Branch", small=True)[:2] == ["0.030–0.050", "0.020–0.040"]
        assert "probability 0.5 " in document.caption
        seeds = self.GRADIENTS["algorithm"].map({"branch": 5, "grpo": 1})
        stages = self.GRADIENTS.assign(n_seeds=seeds, coverage=1.0 - 2.0 ** (1 - seeds))
        caption = table_of(a_study(), "table5", stages=stages).caption
        assert "0.9375 with 5 runs" in caption

    def test_tails_are_of_each_problem_and_against_the_base(self) -> None:
        found = tail_table(self.PERPLEXITIES)
        document = table_of(a_study(), "figure7", tails=found)
        table = document.frame
        assert table["problem_id"].tolist() == ["p2", "p2", "p1", "p1"]
        assert table["algorithm"].tolist() == ["base", "grpo"] * 2
        # The base's 95th percentile on p2 is 1.2 + 0.85 * 0.2; one of four lies above it.
        assert table["upper"].tolist()[0] == pytest.approx(1.37)
        assert table["tail_share"].tolist() == [0.25, 0.25, 0.0, 0.5]
        assert shown(document, "Base") == ["1.15", "1.37", "25.0", "4"]
        titles = [group.title for group in document.table.groups]
        assert titles == ["Problem 1 (p2)", "Problem 2 (p1)"]

    def test_a_measure_of_other_rows_is_an_error_that_names_them(self) -> None:
        others = self.PATTERNS[self.PATTERNS["algorithm"] == "other"]
        with pytest.raises(ValueError, match="table2: rows base, grpo, branch are asked for, but"):
            table_of(a_study(), "table2", patterns=others)

    def test_the_papers_patterns_are_compared_as_means_over_problems(self) -> None:
        study = a_study()
        display = Given(study, "table2", (), Path(), {"patterns": self.PATTERNS})
        values = kind_of(study, "table2").as_in_paper(display)
        of_branch = values[values["algorithm"] == "branch"].set_index("quantity")["value"]
        assert of_branch.to_dict() == {"proof": 0.30, "setup": 0.55}


class TestSettings:
    def test_sft_is_shown_for_the_models_that_have_it(self) -> None:
        table = sft_settings(load_study("smoke", ROOT / "config")).set_index("parameter")
        assert table.loc["Learning rate", "tiny"] == "0.001"
        choices = ["May take half of it", "Longer than the maximum", "Loss on", "Chat template"]
        paper = sft_settings(load_study("paper", ROOT / "config")).set_index("parameter")
        chosen = ["the conversation", "leave out", "the whole text", "Unsloth's"]
        assert paper.loc[choices, "qwen_math_7b"].tolist() == chosen
        assert table.loc["LoRA", "tiny"].startswith("LoRA, rank 8, alpha 16")
        assert set(table["tiny_long"].drop("Base model")) == {NONE}
        assert table.loc["Base model", "tiny_long"] == "that of Tiny Qwen2 (0.03 M)"

    def test_rl_names_the_algorithms_that_differ_and_no_cell_of_an_ablation(self) -> None:
        table = rl_settings(load_study("smoke", ROOT / "config")).set_index("parameter")
        assert table.loc["RL steps", "tiny"] == "4"
        assert table.loc["Trained weights", "tiny_full"] == "all"
        assert table.loc["Top-k", "tiny"] == "off"
        assert table.loc["Max completion length (tokens)"].tolist() == ["24", "32", "24"]
        assert table.loc["Clipping ε, high", "tiny"] == "0.2; 0.28 (DAPO (no KL), DAPO + Branch)"
        assert table.loc["Guide branch: threshold", "tiny"] == "1.2"
        study = load_study("smoke", ROOT / "config")
        row = study.algorithms["bnpo_branch"]
        guide = row.guide.model_copy(update={"settings": {**row.guide.settings, "threshold": 0.8}})
        other = changed(study, {"bnpo_branch": row.model_copy(update={"guide": guide})})
        named = rl_settings(other).set_index("parameter")
        assert named.loc["Guide branch: threshold", "tiny"] == f"1.2; 0.8 ({row.title})"
        assert table.loc["Learning rate", "tiny"] == "0.001"
        model = study.model("tiny").model_copy(update={"learning_rates": {"bnpo_branch": 3e-3}})
        own = changed(study, models=study.study.models | {"tiny": model})
        rates = rl_settings(own).set_index("parameter")
        assert rates.loc["Learning rate", "tiny"] == f"0.001; 0.003 ({row.title})"
        assert table.loc["Guide random: periods", "tiny"] == "8"
        assert table.loc["Guide random: decay", "tiny"] == "0.9"  # a default
        assert table.loc["Guide random: periods", "tiny_long"] == NONE
        assert table.loc["Random seed", "tiny"] == "3407"


def test_the_toy_table_holds_the_numbers_of_the_example() -> None:
    example = toy_example()
    table = example.numbers.set_index("quantity")
    # 0.9 * 0.96 and 0.04 * 0.2; the second token after the branch is uniform over five.
    assert table.loc["probability, reference"].tolist() == pytest.approx([0.864, 0.008])
    assert table.loc["entropy before token 2 (nats)", "rare"] == pytest.approx(math.log(5))
    assert table.loc["guide q(y)", "frequent"] == 1.0
    ratio = table.loc["guide ratio q(y) / E[q]", "rare"]
    assert ratio == pytest.approx(table.loc["guide q(y)", "rare"] / example.expected_guide)
    assert ratio > table.loc["guide ratio required by Theorem 4.3", "rare"]
    assert table.loc["probability, SAGE", "rare"] > 0.01 > table.loc["probability, RLVR", "rare"]
    assert "is met for the rare completion, which rises above the threshold" in toy_caption(example)


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (0.004, ["−0.2", "0", "+0.2", "+0.4"]),
        (0.2, ["−10", "0", "+10", "+20"]),
        (0.0, ["−0.2", "−0.1", "0"]),
    ],
)
def test_ticks_of_a_forest_have_their_signs(high: float, ticks: list[str]) -> None:
    drawn = forest([Line("a", "b", high / 2, -high / 2 or -0.002, high)])
    assert drawn is not None
    assert [text for _, text in drawn.ticks] == ticks


def test_numbers_and_times_are_readable() -> None:
    assert grouped(1234567) == "1\u202f234\u202f567"
    assert [duration(t) for t in (None, 9.6, 61, 3725)] == ["–", "10 s", "1 min 01 s", "1 h 02 min"]
    ps = (0.0001, 0.0312, 0.31, math.nan)
    assert [p_text(p) for p in ps] == ["< 0.001", "0.031", "0.31", "–"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (points(0.0512), "+5.1"),
        (points(-0.0512), "−5.1"),
        (points(-0.0002), "−0.02"),
        (points(0.000004), "+0.0004"),
        (points(0.0), "+0.0"),
        (points(-1e-17), "+0.0"),
        (size_of(-0.0001), "0.01"),
        (percent(0.0004), "0.04"),
        (percent(0.99996), "99.996"),
        (percent(1.0), "100.0"),
        (percent(0.0), "0.0"),
        (interval(0.0001, 0.5), "0.01–50.0"),
        (interval_of_points(-0.006, -0.0002), "−0.6 to −0.02"),
        (number_text(-0.0004, "+.2f"), "−0.0004"),
        (number_text(0.3, "+.0f"), "+0.3"),
        (ends(-0.4, 3.0, "+.0f"), "−0.4 to +3"),
        (p_text(0.0499), "0.0499"),
        (p_text(0.0504), "0.0504"),
        (p_text(0.05), "0.050"),
    ],
)
def test_no_number_reads_as_a_limit_that_it_is_not_at(text: str, said: str) -> None:
    assert text == said
