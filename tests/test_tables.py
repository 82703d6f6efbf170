"""The report's tables: numbers worked by hand, marks from comparisons, LaTeX that compiles."""

import math
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pandas as pd
import pytest
from docutils.core import publish_parts
from report_frames import (
    COMPARISONS,
    METRICS,
    ROOT,
    Given,
    a_study,
    comparisons,
    pass_at_k,
    table_of,
)

from sage.analysis.tails import tail_table
from sage.exhibits import KINDS, PAPER, STANDING, kind_class, load_study, shows, tables_of
from sage.exhibits.accuracy import column_groups
from sage.exhibits.making import write_table
from sage.exhibits.paper_reading import reading_table
from sage.exhibits.pass_at_k import PARTS
from sage.exhibits.settings import rl_settings, sft_settings
from sage.exhibits.theory import toy_caption, toy_table
from sage.rendering.latex import escape, latex_table
from sage.rendering.numbers import NONE
from sage.rendering.table import (
    Cell,
    Group,
    Head,
    Row,
    Table,
    TableDocument,
    read_document,
    write_document,
)
from sage.study import ResolvedStudy
from sage.theory.toy import toy_example
from sage.training.stopwatch import COLUMNS as STEP_TIMES


def accuracies(
    metrics: pd.DataFrame | None = None,
    compared: pd.DataFrame = COMPARISONS,
    name: str = "table1",
    seeds: tuple[int, ...] = (1,),
) -> TableDocument:
    metrics = pass_at_k(METRICS) if metrics is None else metrics
    return table_of(a_study(seeds=seeds), name, pass_at_k=metrics, comparisons=compared)


def table1(metrics: pd.DataFrame | None = None) -> pd.DataFrame:
    return accuracies(metrics).frame


def estimate(table: pd.DataFrame, row: int, benchmark: str, k: int) -> tuple[float, ...]:
    """(value, low, high) of a row at a place."""
    return tuple(float(table[f"{benchmark} pass@{k} {part}"].iloc[row]) for part in PARTS)


def marks(table: pd.DataFrame, benchmark: str, k: int) -> list[str]:
    """The mark of each row at a place."""
    return [str(mark) for mark in table[f"{benchmark} pass@{k} mark"]]


class TestAccuracy:
    def test_base_is_first_then_the_algorithms_in_the_order_of_the_study(self) -> None:
        table = table1()
        assert table["algorithm"].tolist() == ["base", "grpo", "branch"]
        assert table["title"].tolist() == ["Base", "GRPO", "Branch"]
        assert column_groups(table) == {"easy": [1, 4], "hard": [1, 2], "average": [1, 2]}
        assert estimate(table, 1, "easy", 4) == (0.40, 0.30, 0.50)

    def test_an_exhibit_shows_its_own_rows_and_benchmarks(self) -> None:
        table = accuracies(name="table9").frame
        assert table["algorithm"].tolist() == ["base", "branch"]
        assert column_groups(table) == {"hard": [1, 2]}

    def test_the_largest_k_is_one_that_every_row_of_the_benchmark_has(self) -> None:
        metrics = pass_at_k(row for row in METRICS if row[:3] != ("grpo", "easy", 4))
        assert column_groups(table1(metrics))["easy"] == [1, 2]

    def test_the_largest_k_is_what_one_evaluation_seed_samples(self) -> None:
        more = [(row[0], "easy", 8, 0.9, 0.8, 1.0) for row in METRICS[::5]]
        assert {row[0] for row in more} == {"base", "grpo", "branch"}
        assert column_groups(table1(pass_at_k([*METRICS, *more])))["easy"] == [1, 4]

    def test_average_adds_independent_half_widths_in_squares(self) -> None:
        value, low, high = estimate(table1(), 1, "average", 1)
        half = math.sqrt(0.10**2 + 0.06**2) / 2
        assert (value, low, high) == pytest.approx((0.36, 0.36 - half, 0.36 + half))

    def test_average_pairs_training_runs(self) -> None:
        """By run 0.5 and 0.7 on one benchmark, 0.22 and 0.02 on the other: 0.36 in both runs."""
        metrics = pass_at_k(METRICS, seeds=(1, 2))
        for benchmark, values in (("easy", [0.5, 0.7]), ("hard", [0.22, 0.02])):
            where = (metrics["benchmark"] == benchmark) & (metrics["train_seed"] == -1)
            for place in metrics.index[where & (metrics["algorithm"] == "grpo")]:
                metrics.at[place, "by_run"] = values
        table = accuracies(metrics, seeds=(1, 2)).frame
        value, low, high = estimate(table, 1, "average", 1)
        half = math.sqrt(0.10**2 + 0.06**2) / 2  # nothing is left of the runs
        assert (value, low, high) == pytest.approx((0.36, 0.36 - half, 0.36 + half))
        for place in metrics.index[where & (metrics["algorithm"] == "grpo")]:
            metrics.at[place, "by_run"] = [0.02, 0.22]
        table = accuracies(metrics, seeds=(1, 2)).frame
        value, low, high = estimate(table, 1, "average", 1)
        assert value == pytest.approx(0.36)  # 0.26 and 0.46: Student's t with one df
        assert (low, high) == pytest.approx((0.0, 1.0), abs=0.1)

    def test_a_missing_run_is_nan_and_so_is_its_average(self) -> None:
        table = table1(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        assert math.isnan(estimate(table, 1, "hard", 1)[0])
        assert math.isnan(estimate(table, 1, "average", 1)[0])
        assert estimate(table, 1, "easy", 1)[0] == 0.60

    def test_best_is_only_what_the_comparisons_put_above_every_other_row(self) -> None:
        assert marks(table1(), "easy", 1) == ["", "", "best"]

    def test_rows_that_are_not_told_from_the_highest_are_tied_with_it(self) -> None:
        table = table1()
        assert marks(table, "easy", 4) == ["tie", "", "tie"]
        assert marks(table, "hard", 1) == ["tie", "", "tie"]  # p = 0.05 is not below it

    def test_what_was_not_compared_is_not_told_apart(self) -> None:
        assert marks(table1(), "hard", 2) == ["", "tie", "tie"]
        assert marks(accuracies(compared=comparisons([])).frame, "easy", 1) == ["tie", "tie", "tie"]

    def test_averages_have_no_marks(self) -> None:
        assert marks(table1(), "average", 1) == ["", "", ""]

    def test_base_may_stand_under_seed_zero_only(self) -> None:
        metrics = pass_at_k(METRICS)
        metrics = metrics[(metrics["algorithm"] != "base") | (metrics["train_seed"] == 0)]
        assert estimate(table1(metrics), 0, "easy", 1)[0] == 0.30

    def test_rows_that_were_not_pooled_are_an_error_that_names_them(self) -> None:
        metrics = pass_at_k(METRICS)
        metrics = metrics[(metrics["algorithm"] != "grpo") | (metrics["train_seed"] != -1)]
        with pytest.raises(ValueError, match=r"table1: no pooled rows .* for grpo"):
            table1(metrics)

    def test_caption_says_what_the_intervals_are_and_what_a_problem_is_worth(self) -> None:
        caption = accuracies().caption
        assert "95 % interval over problems (BCa bootstrap)." in caption
        assert "One problem is worth 2.5 points (40 problems per benchmark)" in caption
        unequal = pass_at_k(METRICS)
        unequal.loc[unequal["benchmark"] == "hard", "n_problems"] = 60
        caption = accuracies(unequal).caption
        assert "2.5 points on Easy (40 problems) and 1.7 points on Hard (60 problems)" in caption
        assert "all comparisons of this table at that k" in caption

    def test_caption_speaks_of_the_runs_that_the_table_has(self) -> None:
        """Not of those that the study has elsewhere, or will have."""
        two = accuracies(pass_at_k(METRICS, seeds=(1, 2)), seeds=(1, 2)).caption
        assert "the variances of problems and of training runs added. Methods are pooled" in two
        once = accuracies(seeds=(1, 2)).caption
        assert "Each method was trained once" in once
        assert "training runs added" not in once
        mixed = pass_at_k(METRICS, seeds=(1, 2))
        for place in mixed.index[mixed["algorithm"] == "branch"]:
            mixed.at[place, "train_seeds"] = [1]
            mixed.at[place, "by_run"] = [mixed.at[place, "value"]]
        caption = accuracies(mixed, seeds=(1, 2)).caption
        assert "added; of problems alone where there is one run. " in caption
        assert "1 to 2 of them; where there is one, the intervals do not cover" in caption
        assert "(over problems alone where one of the two was trained once)" in caption

    def test_csv_comes_back_as_the_same_frame(self, tmp_path: Path) -> None:
        document = accuracies(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        table, csv = document.frame, tmp_path / "t.csv"
        table.loc[1, "title"] = "NA"
        write_document(document, csv)
        numbers = [name for name in table if name.endswith((" value", " low", " high"))]
        back = pd.read_csv(
            csv,
            na_values={name: [""] for name in numbers},
            keep_default_na=False,
        )
        pd.testing.assert_frame_equal(back, table, check_exact=True)
        assert csv.read_text().startswith(
            "algorithm,title,easy pass@1 value,easy pass@1 low,easy pass@1 high,easy pass@1 mark,"
        )

    def test_latex_escapes_text_and_marks_best_and_ties(self) -> None:
        study = a_study()
        renamed = study.algorithms["grpo"].model_copy(update={"title": r"A_1 & 50% \x"})
        study = study.model_copy(update={"algorithms": study.algorithms | {"grpo": renamed}})
        frames = {"pass_at_k": pass_at_k(METRICS), "comparisons": COMPARISONS}
        latex = latex_table(table_of(study, "table1", **frames).table, "100 % of it")
        assert r"\caption{100 \% of it}" in latex
        assert r"A\_1 \& 50\% \textbackslash{}x & 60.0" in latex
        assert latex.count(r"\textbf{90.0}") == latex.count(r"\textbf") == 1
        assert r"75.0\rlap{$^{\approx}$}" in latex
        assert latex.count(r"\approx") == 6  # two rows each: pass@4 easy, pass@1 and @2 hard
        assert r"{\scriptsize 85.0--95.0}" in latex
        assert r" & \multicolumn{2}{c}{Easy} & \multicolumn{2}{c}{Hard} &" in latex
        assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5} \cmidrule(lr){6-7}" in latex
        base, _, below = latex.partition(r"\addlinespace")
        assert "Base & 30.0" in base
        assert "Branch" in below  # the policy before RL is set apart from the rows below

    def test_a_run_that_is_missing_is_said_to_be_not_run(self) -> None:
        document = accuracies(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        latex = latex_table(document.table, "It")
        assert r"GRPO & 60.0 & 40.0 & not run & not run & not run & not run \\[-2pt]" in latex

    def test_cells_whose_interval_has_no_width_are_named(self) -> None:
        rows = [(*row[:4], row[3], row[3]) if row[1:3] == ("easy", 1) else row for row in METRICS]
        rows = [(*row[:4], 0.4, 0.4) if row[:3] == ("grpo", "easy", 4) else row for row in rows]
        flat = accuracies(pass_at_k(rows)).flat
        assert flat == "Accuracy: Easy at k = 1 (every row), Easy at k = 4 (GRPO)"


class TestReading:
    READ = pd.DataFrame(
        [
            ("base", 0, "easy", 1, 0.25, 0.10),
            ("base", 0, "easy", 4, 0.70, 0.05),
            ("grpo", 1, "easy", 1, 0.99, 0.00),
            ("grpo", -1, "easy", 1, 0.55, 0.02),
            ("grpo", -1, "hard", 1, 0.15, math.nan),
        ],
        columns=["algorithm", "train_seed", "benchmark", "k", "value", "std"],
    ).assign(model="tiny", metric="pass@k", n_eval_seeds=5, n_problems=40)

    def document(self) -> TableDocument:
        frames = {"pass_at_k": pass_at_k(METRICS), "paper_reading": self.READ}
        return reading_table(Given(a_study(), "table1", Path(), Path(), frames))

    def test_both_readings_of_a_run_stand_in_one_row(self) -> None:
        rows = self.document().frame.set_index(["benchmark", "algorithm", "k"])
        base = rows.loc[("easy", "base", 1)]
        assert base[["value", "low", "high", "reading", "std"]].tolist() == [
            0.30,
            0.20,
            0.40,
            0.25,
            0.10,
        ]
        assert base["n_eval_seeds"] == 5
        assert rows.loc[("easy", "grpo", 1), "reading"] == 0.55  # the pooled row, not a run's

    def test_what_was_not_read_is_nan(self) -> None:
        rows = self.document().frame.set_index(["benchmark", "algorithm", "k"])
        assert math.isnan(rows.loc[("easy", "branch", 4), "reading"])
        assert rows.loc[("easy", "branch", 4), "n_eval_seeds"] == 0

    def test_latex_has_a_spread_only_where_there_is_one(self) -> None:
        latex = latex_table(self.document().table, "")
        assert r"Base & 30.0 & 25.0 & -- & -- & 70.0 & 70.0 \\[-2pt]" in latex
        assert r"{\scriptsize 20.0--40.0} & {\scriptsize $\pm$ 10.0} &  &  & {\scriptsize" in latex
        assert r"GRPO & 12.0 & 15.0 & 22.0 & -- & -- & -- \\[-2pt]" in latex  # hard
        assert "nan" not in latex
        assert r"{\scriptsize 6.0--18.0} &  &" in latex
        assert latex.index(r"\emph{Easy}") < latex.index(r"\emph{Hard}")


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

    def test_latex_is_a_grid_of_pairs_with_the_own_cell_underlined(self) -> None:
        document = self.document()
        assert "Branch on Easy: pass@1 / pass@4 in percent" in document.caption
        latex = latex_table(document.table, document.caption)
        assert r" & \multicolumn{2}{c}{ratio 0.3} & \multicolumn{2}{c}{ratio 0.5} \\" in latex
        assert r"Threshold & pass@1 & pass@4 & pass@1 & pass@4 \\" in latex
        assert r"0.8 & 45.0 & 85.0 & not run & not run \\[-2pt]" in latex
        assert r"1.2 & \underline{50.0} & \underline{80.0} & 40.0 & 75.0 \\[-2pt]" in latex
        assert latex.count(r"\underline") == 2
        assert r"{\scriptsize 40.0--60.0} & {\scriptsize 70.0--90.0}" in latex


class TestMeasures:
    PATTERNS = pd.DataFrame(
        [
            ("branch", "proof", "Proof", 0.25, 0.30, 0.10, 0.40),
            ("branch", "setup", "Set & up", 0.50, 0.55, 0.40, 0.60),
            ("base", "proof", "Proof", 0.00, 0.00, math.nan, math.nan),
            ("base", "setup", "Set & up", 0.10, 0.15, 0.05, 0.20),
            ("other", "setup", "Set & up", 0.9, 0.9, 0.9, 0.9),
        ],
        columns=["algorithm", "pattern", "title", "pooled", "per_problem", "low", "high"],
    ).assign(per_problem_low=0.0, per_problem_high=1.0, n_correct=20, n_problems=5)
    GRADIENTS = pd.DataFrame(
        [
            ("branch", "early", 0.04, 0.03, 0.05),
            ("branch", "mid", 0.03, 0.02, 0.04),
            ("branch", "late", 0.05, 0.04, 0.06),
            ("grpo", "early", 0.0561, math.nan, math.nan),
            ("grpo", "late", 0.0534, math.nan, math.nan),
        ],
        columns=["algorithm", "stage", "value", "low", "high"],
    ).assign(coverage=0.5, n_seeds=2, steps=30)
    TIMES = pd.DataFrame(
        [("branch", turn, 1.01 + 0.02 * (turn % 2), 8, 64) for turn in range(8)]
        + [("grpo", turn, 1.0, 8, 64) for turn in range(8)],
        columns=STEP_TIMES,
    )
    PERPLEXITIES = pd.DataFrame(
        [
            (problem, algorithm, value)
            for problem, algorithm, values in (
                ("p2", "base", (1.0, 1.1, 1.2, 1.4)),
                ("p2", "grpo", (1.0, 1.0, 1.0, 3.0)),
                ("p1", "base", (2.0, 2.0, 2.0, 2.0)),
                ("p1", "grpo", (1.0, 3.0, 3.0, 1.0)),
            )
            for value in values
        ],
        columns=["problem_id", "algorithm", "perplexity"],
    )

    def test_patterns_keep_the_exhibits_rows_in_their_order(self) -> None:
        document = table_of(a_study(), "table2", patterns=self.PATTERNS)
        table = document.frame
        assert table["algorithm"].tolist() == ["base", "base", "branch", "branch"]
        assert table["title"].tolist() == ["Base", "Base", "Branch", "Branch"]
        assert table["pattern_title"].tolist() == ["Proof", "Set & up", "Proof", "Set & up"]
        latex = latex_table(document.table, document.caption)
        assert r"Base & 0.0 & 0.0 & 10.0 & 15.0 & 20 \\[-2pt]" in latex
        assert (
            r" &  & {\scriptsize 0.0--100.0} & {\scriptsize 5.0--20.0} & "
            r"{\scriptsize 0.0--100.0} &  \\[3pt]"
        ) in latex
        assert r"\multicolumn{2}{c}{Proof} & \multicolumn{2}{c}{Set \& up} &" in latex
        assert r"Algorithm & all & per problem & all & per problem & Correct solutions" in latex

    def test_gradients_show_ranges_only_over_several_runs(self) -> None:
        document = table_of(a_study(), "table5", stages=self.GRADIENTS)
        table = document.frame
        assert table["algorithm"].tolist() == ["grpo"] * 2 + ["branch"] * 3
        latex = latex_table(document.table, document.caption)
        assert r"Algorithm & Early & Mid & Late \\" in latex
        assert "GRPO & 0.056 & -- & 0.053 \\\\\n" in latex  # no line of intervals beneath
        assert r"Branch & 0.040 & 0.030 & 0.050 \\[-2pt]" in latex
        assert r" & {\scriptsize 0.030--0.050} & {\scriptsize 0.020--0.040} &" in latex
        assert "with probability 0.5 with 2 runs." in latex
        seeds = self.GRADIENTS["algorithm"].map({"branch": 5, "grpo": 1})
        stages = self.GRADIENTS.assign(n_seeds=seeds, coverage=1.0 - 2.0 ** (1 - seeds))
        caption = table_of(a_study(), "table5", stages=stages).caption
        assert "0.9375 with 5 runs. Methods trained once have no range." in caption

    def test_costs_are_over_the_first_row(self) -> None:
        document = table_of(a_study(), "overhead", times=self.TIMES)
        table = document.frame
        assert table["title"].tolist() == ["GRPO", "Branch"]
        assert table["seconds"].tolist() == [1.0, pytest.approx(1.02)]
        assert math.isnan(table["excess"][0])
        assert table["excess"][1] == pytest.approx(0.02)
        latex = latex_table(document.table, document.caption)
        assert r"Algorithm & Seconds & Overhead (\%) \\" in latex
        assert r"GRPO & 1.000 & -- \\" in latex
        assert r"Branch & 1.020 & +2.0 \\[-2pt]" in latex
        assert r"{\scriptsize +1.0 to +3.0}" in latex
        assert "8 rounds on one machine" in latex

    def test_tails_are_of_each_problem_and_against_the_base(self) -> None:
        found = tail_table(self.PERPLEXITIES)
        document = table_of(a_study(), "figure7", tails=found)
        table = document.frame
        assert table[["problem_id", "algorithm"]].to_numpy().tolist() == [
            ["p2", "base"],
            ["p2", "grpo"],
            ["p1", "base"],
            ["p1", "grpo"],
        ]
        # The base's 95th percentile on p2 is 1.2 + 0.85 * 0.2; one of four lies above it.
        assert table["upper"].tolist()[0] == pytest.approx(1.37)
        assert table["tail_share"].tolist() == [0.25, 0.25, 0.0, 0.5]
        latex = latex_table(document.table, document.caption)
        assert r"Base & 1.15 & 1.37 & 25.0 & 4 \\" in latex
        assert latex.index(r"\emph{Problem 1 (p2)}") < latex.index(r"\emph{Problem 2 (p1)}")

    def test_a_measure_of_other_rows_is_an_error_that_names_them(self) -> None:
        others = self.PATTERNS[self.PATTERNS["algorithm"] == "other"]
        with pytest.raises(ValueError, match="table2: rows base, grpo, branch are asked for, but"):
            table_of(a_study(), "table2", patterns=others)


class TestSettings:
    def test_sft_is_shown_for_the_models_that_have_it(self) -> None:
        table = sft_settings(load_study("smoke", ROOT / "config")).set_index("parameter")
        assert table.loc["Learning rate", "tiny"] == "0.001"
        choices = ["May take half of it", "Longer than the maximum", "Loss on", "Chat template"]
        paper = sft_settings(load_study("paper", ROOT / "config")).set_index("parameter")
        assert paper.loc[choices, "qwen_math_7b"].tolist() == [
            "the conversation",
            "leave out",
            "the whole text",
            "Unsloth's",
        ]
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
        other = {**study.algorithms, "bnpo_branch": row.model_copy(update={"guide": guide})}
        named = rl_settings(study.model_copy(update={"algorithms": other})).set_index("parameter")
        assert named.loc["Guide branch: threshold", "tiny"] == f"1.2; 0.8 ({row.title})"
        assert table.loc["Guide random: periods", "tiny"] == "8"
        assert table.loc["Guide random: periods", "tiny_long"] == NONE
        assert table.loc["Random seed", "tiny"] == "3407"


def test_the_toy_table_holds_the_numbers_of_the_example() -> None:
    example = toy_example()
    table = toy_table(example).set_index("quantity")
    # 0.9 * 0.96 and 0.04 * 0.2; the second token after the branch is uniform over five.
    assert table.loc["probability, reference"].tolist() == pytest.approx([0.864, 0.008])
    assert table.loc["entropy before token 2 (nats)", "rare"] == pytest.approx(math.log(5))
    assert table.loc["guide q(y)", "frequent"] == 1.0
    ratio = table.loc["guide ratio q(y) / E[q]", "rare"]
    assert ratio == pytest.approx(table.loc["guide q(y)", "rare"] / example.expected_guide)
    assert ratio > table.loc["guide ratio required by Theorem 4.3", "rare"]
    assert table.loc["probability, SAGE", "rare"] > 0.01 > table.loc["probability, RLVR", "rare"]
    assert "is met for the rare completion, which rises above the threshold" in toy_caption(example)


def test_text_is_escaped_for_latex() -> None:
    assert escape(r"50 % & {a_1} \x ~^<>") == (
        r"50 \% \& \{a\_1\} \textbackslash{}x \textasciitilde{}\textasciicircum{}"
        r"\textless{}\textgreater{}"
    )


CASE = Table(
    "Name_1",
    (Head("A & B", ("x", "y")), Head("", ("50 %",))),
    (
        Group(
            "First {group}",
            (
                Row("Base", (Cell("1.0", "0.5–1.5"), Cell("–", mark="nil"), Cell("a")), base=True),
                Row("Ours", (Cell("2.0", mark="best"), Cell("3.0", "± 0.1", "tie"), Cell("b"))),
            ),
        ),
        Group("Second", (Row("Ours", (Cell("−1.0", mark="own"), Cell(""), Cell("c_d"))),)),
    ),
)


def test_one_renderer_lays_out_heads_groups_marks_and_what_stands_beneath() -> None:
    assert (
        latex_table(CASE, "50 % of A_1")
        == r"""\begin{table}
\centering\small
\setlength{\tabcolsep}{4pt}
\caption{50 \% of A\_1}
\begin{tabular}{@{}lccc@{}}
\toprule
 & \multicolumn{2}{c}{A \& B} & \multicolumn{1}{c}{} \\
\cmidrule(lr){2-3}
Name\_1 & x & y & 50 \% \\
\midrule
\multicolumn{4}{l}{\emph{First \{group\}}} \\
Base & 1.0 & -- & a \\[-2pt]
 & {\scriptsize 0.5--1.5} &  &  \\[3pt]
\addlinespace
Ours & \textbf{2.0} & 3.0\rlap{$^{\approx}$} & b \\[-2pt]
 &  & {\scriptsize $\pm$ 0.1} &  \\[3pt]
\addlinespace
\multicolumn{4}{l}{\emph{Second}} \\
Ours & \underline{$-$1.0} &  & c\_d \\
\bottomrule
\end{tabular}
\end{table}
"""
    )


def test_columns_of_words_may_break_their_lines() -> None:
    table = Table("S", (Head("", ("a", "b")),), (Group("", (Row("r", (Cell("x"),) * 2),)),), True)
    assert latex_table(table, "").count(r">{\raggedright\arraybackslash}p{0.31\linewidth}") == 2


def test_the_page_reads_back_what_was_written(tmp_path: Path) -> None:
    for table in (CASE, accuracies().table):
        frame = pd.DataFrame({"x": [0.1]})
        written = TableDocument(frame, table, "≈ 50 %", summary="More", flat="Easy")
        write_document(written, tmp_path / "t.csv")
        read = read_document(tmp_path / "t.json")
        assert (read.table, read.caption) == (table, "≈ 50 %")
        assert (read.summary, read.flat) == ("More", "Easy")


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"table": {"first": "x"}}', '{"table": 1'])
def test_a_file_that_is_no_table_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match=r"t\.json: not a table written by this project"):
        read_document(tmp_path / "t.json")


def write_frames(folder: Path, **frames: pd.DataFrame) -> None:
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet")


def write_every_table(study: ResolvedStudy, folder: Path) -> list[Path]:
    """The tables of every exhibit of the study and of every report, the paper's among them."""
    measures = TestMeasures()
    measured = pass_at_k(METRICS)
    cell = measured[measured["algorithm"] == "branch"]
    cell = cell.assign(algorithm="branch-threshold0.8-ratio0.3")
    measured = pd.concat([measured, cell], ignore_index=True)
    write_frames(
        folder,
        pass_at_k=measured,
        comparisons=COMPARISONS,
        paper_reading=TestReading.READ,
        patterns=measures.PATTERNS,
        stages=measures.GRADIENTS,
        times=measures.TIMES,
        tails=tail_table(measures.PERPLEXITIES),
    )
    (folder / "mapping.yaml").write_text("tiny: [{file: theirs.csv, kind: accuracy, seeds: 5}]")
    (folder / "theirs.csv").write_text(
        "benchmark,algorithm,quantity,value,std\neasy,grpo,pass@1,0.7,0.02\n"
    )
    written = []
    for exhibit in (*study.study.exhibits, *STANDING):
        paper = folder if exhibit == "table1" else None
        for name, suffix in tables_of(study, exhibit, paper).items():
            written.append(folder / f"{name}.csv")
            write_table(study, exhibit, suffix, folder, folder, written[-1])
    return written


def test_every_exhibit_has_its_tables_beside_each_other(tmp_path: Path) -> None:
    written = write_every_table(a_study(), tmp_path)
    assert {path.stem for path in written} == {
        *("table1", "table1_reading", f"table1{PAPER}", "table2", "table5", "table6"),
        *("table9", "table9_reading", "figure7", "overhead", "appendix_c", "table7", "table8"),
        *("estimators", "readings"),
    }
    for path in written:
        assert len(pd.read_csv(path)) > 0
        assert read_document(path.with_suffix(".json")).table.columns > 0
        latex = path.with_suffix(".tex").read_text()
        assert r"\bottomrule" in latex
        assert latex.isascii()  # LaTeX knows few other characters without further packages
    theirs = (tmp_path / f"table1{PAPER}.tex").read_text()
    # The paper's, ours by its estimator, the difference.
    assert r"GRPO & 70.0 & 55.0 & $-$15.0 &" in theirs


def test_every_table_compiles(tmp_path: Path) -> None:
    tool = shutil.which("pdflatex")
    if tool is None:
        pytest.skip("pdflatex is not installed")
    study = a_study(title="A_1")
    title = r"A_1 & 50% \x ~^ <{$#}> | ≈ ±"
    renamed = study.algorithms["grpo"].model_copy(update={"title": title})
    study = study.model_copy(update={"algorithms": study.algorithms | {"grpo": renamed}})
    tables = [path.with_suffix(".tex") for path in write_every_table(study, tmp_path)]
    texts = [path.read_text(encoding="utf-8") for path in tables]
    assert escape(title) in texts[0]
    packages = r"\documentclass{article}\usepackage{booktabs,array}\begin{document}"
    text = "\n\\clearpage\n".join([packages, *texts, latex_table(CASE, title), r"\end{document}"])
    (tmp_path / "tables.tex").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [tool, "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Missing character" not in (tmp_path / "tables.log").read_text(errors="replace")


def assert_valid(caption: str) -> None:
    """The caption is reStructuredText without a fault."""
    body = publish_parts(caption, writer="html", settings_overrides={"halt_level": 2})["body"]
    assert "<p>" in body
    assert "{" not in body


def caption_of(name: str, **params: str) -> str:
    text = (ROOT / f"reports/captions/{name}.rst").read_text()
    snakemake = SimpleNamespace(params=SimpleNamespace(**params))
    return jinja2.Template(text, undefined=jinja2.StrictUndefined).render(snakemake=snakemake)


@pytest.mark.parametrize("name", [*KINDS, *STANDING])
def test_captions_of_exhibits_are_valid(name: str) -> None:
    kind = kind_class(name) if name in KINDS else shows(a_study(), name)
    assert_valid(caption_of("exhibit", contents=kind.contents))


def test_captions_are_valid() -> None:
    names = {path.stem for path in (ROOT / "reports/captions").glob("*.rst")} - {"exhibit"}
    assert {"claims", "page"} <= names
    for name in names:
        assert_valid(caption_of(name))
