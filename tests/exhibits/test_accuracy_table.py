"""The accuracy tables: numbers worked by hand, marks from comparisons, captions that fit them."""

import math
from pathlib import Path

import pandas as pd
import pytest
from report_frames import (
    COMPARISONS,
    METRICS,
    a_study,
    comparisons,
    pass_at_k,
    retitled,
    shown,
    table_of,
)
from table_frames import accuracies

from sage.exhibits.accuracy import column_groups
from sage.exhibits.pooled_pass_at_k import PARTS
from sage.rendering.documents import latex_table, write_document


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

    def test_no_k_above_the_primary_one_is_shown(self) -> None:
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
        assert marks(table, "hard", 1) == ["tie", "", "tie"]  # p = 0.05 after Holm

    def test_what_was_not_compared_is_not_told_apart(self) -> None:
        assert marks(table1(), "hard", 2) == ["", "tie", "tie"]
        assert marks(accuracies(compared=comparisons([])).frame, "easy", 1) == ["tie", "tie", "tie"]

    def test_differences_are_from_the_first_method_in_points(self) -> None:
        """GRPO minus base is 0.3 in the comparisons, so base minus GRPO is -0.3."""
        table = table1()
        ends = [f"easy pass@1 delta{end}" for end in ("", " low", " high")]
        assert table[ends].iloc[0].tolist() == pytest.approx([-0.3, -0.4, -0.2])
        assert table[ends].iloc[1].isna().all()
        assert table[ends].iloc[2].tolist() == pytest.approx([0.3, 0.2, 0.4])
        cells = accuracies().table.groups[0].rows[2].cells
        assert (cells[1].text, cells[1].small) == ("+30.0", "+20.0 to +40.0")
        assert cells[5].text == "+8.0"  # hard
        assert cells[9].text == "+19.0"  # the mean of both

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
        assert "(BCa bootstrap)" in caption
        assert "2.5 points (40 problems" in caption
        unequal = pass_at_k(METRICS)
        unequal["n_problems"] = [1 if name == "easy" else 60 for name in unequal["benchmark"]]
        caption = accuracies(unequal).caption
        assert all(said in caption for said in ("100 points on Easy", "1.7 points on Hard"))
        # three pairs of methods on two benchmarks
        assert "there are 6)" in caption

    def test_caption_speaks_of_the_runs_that_the_table_has(self) -> None:
        """Not of those that the study has elsewhere, or will have."""
        two = accuracies(pass_at_k(METRICS, seeds=(1, 2)), seeds=(1, 2)).caption
        assert "of training runs added. " in two
        assert "Methods are pooled" in two
        once = accuracies(seeds=(1, 2)).caption
        assert "trained once" in once
        assert "training runs added" not in once
        mixed = pass_at_k(METRICS, seeds=(1, 2))
        for place in mixed.index[mixed["algorithm"] == "branch"]:
            mixed.at[place, "train_seeds"] = [1]
            mixed.at[place, "by_run"] = [mixed.at[place, "value"]]
        caption = accuracies(mixed, seeds=(1, 2)).caption
        assert "1 to 2 of them" in caption
        assert caption.count("problems alone") == 2

    def test_csv_comes_back_as_the_same_frame(self, tmp_path: Path) -> None:
        document = accuracies(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        table, csv = document.frame, tmp_path / "t.csv"
        table.loc[1, "title"] = "NA"
        write_document(document, csv)
        ends = " value", " low", " high", " delta"
        numbers = [name for name in table if name.endswith(ends)]
        back = pd.read_csv(csv, na_values={name: [""] for name in numbers}, keep_default_na=False)
        pd.testing.assert_frame_equal(back, table, check_exact=True)
        assert csv.read_text().startswith(
            "algorithm,title,easy pass@1 value,easy pass@1 low,easy pass@1 high,easy pass@1 mark,"
            "easy pass@1 delta,easy pass@1 delta low,easy pass@1 delta high,"
        )

    def test_latex_escapes_text_and_marks_best_and_ties(self) -> None:
        study = retitled(a_study(), grpo=r"A_1 & 50% \x")
        frames = {"pass_at_k": pass_at_k(METRICS), "comparisons": COMPARISONS}
        latex = latex_table(table_of(study, "table1", **frames).table, "100 % of it")
        assert r"\caption{100 \% of it}" in latex
        assert r"A\_1 \& 50\% \textbackslash{}x & 60.0" in latex
        assert latex.count(r"\textbf{90.0}") == latex.count(r"\textbf") == 1
        assert r"75.0\rlap{$^{\approx}$}" in latex
        assert latex.count(r"\approx") == 6  # two rows each: pass@4 easy, pass@1 and @2 hard
        assert r"{\scriptsize 85.0--95.0}" in latex
        assert r"\multicolumn{4}{c}{Easy}" in latex
        assert r"\cmidrule(lr){2-5} \cmidrule(lr){6-9} \cmidrule(lr){10-13}" in latex
        base, _, below = latex.partition(r"\addlinespace")
        assert "Base & 30.0" in base
        assert "Branch" in below  # the policy before RL is set apart from the rows below

    def test_a_run_that_is_missing_is_said_to_be_not_run(self) -> None:
        document = accuracies(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        assert shown(document, "GRPO") == ["60.0", "", "40.0", "", *["not run", ""] * 4]

    def test_cells_whose_interval_has_no_width_are_named(self) -> None:
        rows = [(*row[:4], row[3], row[3]) if row[1:3] == ("easy", 1) else row for row in METRICS]
        rows = [(*row[:4], 0.4, 0.4) if row[:3] == ("grpo", "easy", 4) else row for row in rows]
        flat = accuracies(pass_at_k(rows)).flat
        assert flat == "Accuracy: Easy at k = 1 (every method), Easy at k = 4 (GRPO)"
