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
from report_frames import COMPARISONS, METRICS, ROOT, a_study, comparisons, pass_at_k
from sage.reporting.ablation import ablation_caption, ablation_latex, ablation_table
from sage.reporting.accuracy import (
    accuracy_caption,
    accuracy_latex,
    accuracy_table,
    clear_best,
    column_groups,
    estimate,
    read_table,
    tied,
)
from sage.reporting.latex import escape, write_table
from sage.reporting.measures import (
    gradient_caption,
    gradient_latex,
    gradient_table,
    patterns_caption,
    patterns_latex,
    patterns_table,
    step_times_caption,
    step_times_latex,
    step_times_table,
    tails_caption,
    tails_latex,
    tails_table,
)
from sage.reporting.paper_reading import reading_caption, reading_latex, reading_table
from sage.reporting.pooled import pooled_pass_at_k
from sage.reporting.settings import (
    NONE,
    rl_caption,
    rl_settings_table,
    settings_latex,
    sft_caption,
    sft_settings_table,
)
from sage.reporting.toy import toy_caption, toy_latex, toy_table
from sage.reporting.wording import benchmark_titles

from sage.analysis.tails import tail_table
from sage.study import load_study
from sage.theory.toy import toy_example
from sage.training.stopwatch import COLUMNS as STEP_TIMES


def table1(metrics: pd.DataFrame | None = None) -> pd.DataFrame:
    metrics = pass_at_k(METRICS) if metrics is None else metrics
    return accuracy_table(metrics, COMPARISONS, a_study(), "table1")


class TestAccuracy:
    def test_base_is_first_then_the_algorithms_in_the_order_of_the_study(self) -> None:
        table = table1()
        assert table["algorithm"].tolist() == ["base", "grpo", "branch"]
        assert table["title"].tolist() == ["Base", "GRPO", "Branch"]
        assert column_groups(table) == {"easy": [1, 4], "hard": [1, 2], "average": [1, 2]}
        assert estimate(table, 1, "easy", 4) == (0.40, 0.30, 0.50)

    def test_an_exhibit_shows_its_own_rows_and_benchmarks(self) -> None:
        table = accuracy_table(pass_at_k(METRICS), COMPARISONS, a_study(), "table9")
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

    def test_average_adds_half_widths_as_they_are_where_training_seeds_are_shared(self) -> None:
        metrics = pass_at_k(METRICS, seeds=(1, 2))
        table = accuracy_table(metrics, COMPARISONS, a_study(seeds=(1, 2)), "table1")
        assert estimate(table, 1, "average", 1) == pytest.approx((0.36, 0.28, 0.44))
        half = math.sqrt(0.10**2 + 0.05**2) / 2
        assert estimate(table, 0, "average", 1)[1] == pytest.approx(0.20 - half)

    def test_a_missing_run_is_nan_and_so_is_its_average(self) -> None:
        table = table1(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        assert math.isnan(estimate(table, 1, "hard", 1)[0])
        assert math.isnan(estimate(table, 1, "average", 1)[0])
        assert estimate(table, 1, "easy", 1)[0] == 0.60

    def test_best_is_only_what_the_comparisons_put_above_every_other_row(self) -> None:
        table = table1()
        assert clear_best(table, "easy", 1) == 2
        assert tied(table, "easy", 1) == []

    def test_rows_that_are_not_told_from_the_highest_are_tied_with_it(self) -> None:
        table = table1()
        assert clear_best(table, "easy", 4) is None
        assert tied(table, "easy", 4) == [0, 2]
        assert tied(table, "hard", 1) == [0, 2]  # p = 0.05 is not below it

    def test_what_was_not_compared_is_not_told_apart(self) -> None:
        assert tied(table1(), "hard", 2) == [1, 2]
        nothing = comparisons([])
        table = accuracy_table(pass_at_k(METRICS), nothing, a_study(), "table1")
        assert tied(table, "easy", 1) == [0, 1, 2]

    def test_averages_have_no_marks(self) -> None:
        table = table1()
        assert clear_best(table, "average", 1) is None
        assert tied(table, "average", 1) == []

    def test_base_may_stand_under_seed_zero_only(self) -> None:
        metrics = pass_at_k(METRICS)
        metrics = metrics[(metrics["algorithm"] != "base") | (metrics["train_seed"] == 0)]
        assert estimate(table1(metrics), 0, "easy", 1)[0] == 0.30

    def test_rows_that_were_not_pooled_are_an_error_that_names_them(self) -> None:
        metrics = pass_at_k(METRICS)
        metrics = metrics[(metrics["algorithm"] != "grpo") | (metrics["train_seed"] != -1)]
        with pytest.raises(ValueError, match=r"table1: no pooled rows .* for grpo"):
            pooled_pass_at_k(metrics, a_study(), "table1")

    def test_a_lacking_column_is_an_error_that_names_it(self) -> None:
        with pytest.raises(ValueError, match="no column low; there are model"):
            table1(pass_at_k(METRICS).drop(columns="low"))
        faulty = COMPARISONS.drop(columns="p_holm")
        with pytest.raises(ValueError, match="comparisons: no column p_holm"):
            accuracy_table(pass_at_k(METRICS), faulty, a_study(), "table1")

    def test_caption_says_what_the_intervals_are_and_what_a_problem_is_worth(self) -> None:
        caption = accuracy_caption(pass_at_k(METRICS), a_study(), "table1")
        assert "95 % interval over problems (BCa bootstrap)." in caption
        assert "One problem is worth 2.5 points (40 problems per benchmark)" in caption
        unequal = pass_at_k(METRICS)
        unequal.loc[unequal["benchmark"] == "hard", "n_problems"] = 60
        caption = accuracy_caption(unequal, a_study(seeds=(1, 2)), "table1")
        assert "2.5 points on Easy (40 problems) and 1.7 points on Hard (60 problems)" in caption
        assert "BCa bootstrap over problems or Student’s t over runs, the wider" in caption

    def test_csv_comes_back_as_the_same_frame(self, tmp_path: Path) -> None:
        table = table1(pass_at_k(row for row in METRICS if row[:2] != ("grpo", "hard")))
        table.loc[1, "title"] = "NA"
        csv, tex = tmp_path / "t.csv", tmp_path / "t.tex"
        write_table(table, accuracy_latex(table, "100 % of it"), csv, tex)
        pd.testing.assert_frame_equal(read_table(csv), table, check_exact=True)
        assert csv.read_text().startswith(
            "algorithm,title,easy pass@1 value,easy pass@1 low,easy pass@1 high,easy pass@1 mark,"
        )

    def test_latex_escapes_text_and_marks_best_and_ties(self) -> None:
        table = table1()
        table.loc[1, "title"] = r"A_1 & 50% \x"
        latex = accuracy_latex(table, "100 % of it", benchmark_titles(a_study()))
        assert r"\caption{100 \% of it}" in latex
        assert r"A\_1 \& 50\% \textbackslash{}x & 60.0" in latex
        assert latex.count(r"\textbf{90.0}") == latex.count(r"\textbf") == 1
        assert r"75.0\rlap{$^{\approx}$}" in latex
        assert latex.count(r"\approx") == 6  # two rows each: pass@4 easy, pass@1 and @2 hard
        assert r"{\scriptsize 85.0--95.0}" in latex


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

    def table(self) -> pd.DataFrame:
        return reading_table(pass_at_k(METRICS), self.READ, a_study(), "table1")

    def test_both_readings_of_a_run_stand_in_one_row(self) -> None:
        rows = self.table().set_index(["benchmark", "algorithm", "k"])
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
        rows = self.table().set_index(["benchmark", "algorithm", "k"])
        assert math.isnan(rows.loc[("easy", "branch", 4), "reading"])
        assert rows.loc[("easy", "branch", 4), "n_eval_seeds"] == 0

    def test_latex_has_a_spread_only_where_there_is_one(self) -> None:
        latex = reading_latex(self.table(), reading_caption(a_study(), "table1"), a_study())
        assert r"Base & 30.0 & 25.0 $\pm$ 10.0 & 70.0 & 70.0 $\pm$ 5.0 \\" in latex
        assert r"GRPO & 12.0 & 15.0 & 22.0 & -- \\" in latex
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

    def table(self) -> pd.DataFrame:
        return ablation_table(self.METRICS, a_study(), "table6")

    def test_every_cell_has_a_row_per_k_and_the_own_settings_are_the_algorithm_itself(self) -> None:
        table = self.table()
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
        table = self.table()
        cell = table[(table["threshold"] == 0.8) & (table["ratio"] == 0.5)]
        assert cell["value"].isna().all()

    def test_latex_is_a_grid_of_pairs_with_the_own_cell_underlined(self) -> None:
        caption = ablation_caption(self.table(), a_study(), "table6")
        assert "Branch on Easy: pass@1 / pass@4 in percent" in caption
        latex = ablation_latex(self.table(), caption, a_study(), "table6")
        assert r"threshold & ratio 0.3 & ratio 0.5 \\" in latex
        assert r"0.8 & 45.0 / 85.0 & -- \\[-2pt]" in latex
        assert r"1.2 & \underline{50.0 / 80.0} & 40.0 / 75.0 \\[-2pt]" in latex

    def test_another_kind_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="table1 is of kind accuracy, not ablation"):
            ablation_table(self.METRICS, a_study(), "table1")


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
        table = patterns_table(self.PATTERNS, a_study(), "table2")
        assert table["algorithm"].tolist() == ["base", "base", "branch", "branch"]
        assert table["title"].tolist() == ["Base", "Base", "Branch", "Branch"]
        assert table["pattern_title"].tolist() == ["Proof", "Set & up", "Proof", "Set & up"]
        latex = patterns_latex(table, patterns_caption(table, a_study(), "table2"))
        assert r"Base & 0.0 & 10.0 & 20 \\[-2pt]" in latex
        assert r" &  & {\scriptsize 5.0--20.0} &  \\[3pt]" in latex
        assert r"Algorithm & Proof & Set \& up & Correct solutions \\" in latex

    def test_gradients_show_ranges_only_over_several_runs(self) -> None:
        table = gradient_table(self.GRADIENTS, a_study(), "table5")
        assert table["algorithm"].tolist() == ["grpo"] * 2 + ["branch"] * 3
        latex = gradient_latex(table, gradient_caption(table, a_study(), "table5"))
        assert r"GRPO & 0.056 & -- & 0.053 \\" in latex
        assert r"Branch & 0.040 (0.030--0.050) & 0.030 (0.020--0.040) &" in latex
        assert "range of 2 training runs" in latex
        assert "with probability 0.5" in latex

    def test_costs_are_over_the_first_row(self) -> None:
        table = step_times_table(self.TIMES, a_study(), "overhead")
        assert table["title"].tolist() == ["GRPO", "Branch"]
        assert table["seconds"].tolist() == [1.0, pytest.approx(1.02)]
        assert math.isnan(table["excess"][0])
        assert table["excess"][1] == pytest.approx(0.02)
        latex = step_times_latex(table, step_times_caption(table, a_study(), "overhead"))
        assert r"GRPO & 1.000 & -- \\" in latex
        assert r"Branch & 1.020 & $+2.0$ ($+1.0$ to $+3.0$) \\" in latex
        assert "8 rounds on one machine" in latex

    def test_tails_are_of_each_problem_and_against_the_base(self) -> None:
        found = tail_table(self.PERPLEXITIES)
        table = tails_table(found, a_study(), "figure7")
        assert table[["problem_id", "algorithm"]].to_numpy().tolist() == [
            ["p2", "base"],
            ["p2", "grpo"],
            ["p1", "base"],
            ["p1", "grpo"],
        ]
        # The base's 95th percentile on p2 is 1.2 + 0.85 * 0.2; one of four lies above it.
        assert table["upper"].tolist()[0] == pytest.approx(1.37)
        assert table["tail_share"].tolist() == [0.25, 0.25, 0.0, 0.5]
        latex = tails_latex(table, tails_caption(table, a_study(), "figure7"))
        assert r"Base & 1.15 & 1.37 & 25.0 \\" in latex

    def test_a_measure_of_other_rows_is_an_error_that_names_them(self) -> None:
        others = self.PATTERNS[self.PATTERNS["algorithm"] == "other"]
        with pytest.raises(ValueError, match="table2: rows base, grpo, branch are asked for, but"):
            patterns_table(others, a_study(), "table2")


class TestSettings:
    def test_sft_is_shown_for_the_models_that_have_it(self) -> None:
        table = sft_settings_table(load_study("smoke", ROOT / "config")).set_index("parameter")
        assert table.loc["Learning rate", "tiny"] == "0.001"
        assert table.loc["LoRA", "tiny"].startswith("LoRA, rank 8, alpha 16")
        assert set(table["tiny_long"].drop("Base model")) == {NONE}
        assert table.loc["Base model", "tiny_long"] == "that of Tiny Qwen2 (0.03 M)"

    def test_rl_names_the_algorithms_that_differ_and_no_cell_of_an_ablation(self) -> None:
        table = rl_settings_table(load_study("smoke", ROOT / "config")).set_index("parameter")
        assert table.loc["RL steps", "tiny"] == "4"
        assert table.loc["Trained weights", "tiny_full"] == "all"
        assert table.loc["Top-k", "tiny"] == "off"
        assert table.loc["Max completion length (tokens)"].tolist() == ["24", "32", "24"]
        assert table.loc["Clipping ε, high", "tiny"] == "0.2; 0.28 (DAPO (no KL), DAPO + Branch)"
        assert table.loc["Guide branch: threshold", "tiny"] == "1.2"
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


def test_every_table_compiles(tmp_path: Path) -> None:
    tool = shutil.which("pdflatex")
    if tool is None:
        pytest.skip("pdflatex is not installed")
    study, smoke = a_study(), load_study("smoke", ROOT / "config")
    table, cells = table1(), TestAblation().table()
    table.loc[1, "title"] = r"A_1 & 50% \x ~^ <{$#}> | ≈ ±"
    reading = TestReading().table()
    found = TestMeasures()
    patterns = patterns_table(found.PATTERNS, study, "table2")
    gradients = gradient_table(found.GRADIENTS, study, "table5")
    tails = tails_table(tail_table(found.PERPLEXITIES), study, "figure7")
    costs = step_times_table(found.TIMES, study, "overhead")
    sft, rl, example = sft_settings_table(smoke), rl_settings_table(smoke), toy_example()
    caption = accuracy_caption(pass_at_k(METRICS), study, "table1")
    tables = [
        accuracy_latex(table, caption, benchmark_titles(study)),
        reading_latex(reading, reading_caption(study, "table1"), study),
        ablation_latex(cells, ablation_caption(cells, study, "table6"), study, "table6"),
        patterns_latex(patterns, patterns_caption(patterns, study, "table2")),
        gradient_latex(gradients, gradient_caption(gradients, study, "table5")),
        tails_latex(tails, tails_caption(tails, study, "figure7")),
        step_times_latex(costs, step_times_caption(costs, study, "overhead")),
        settings_latex(sft, sft_caption(smoke), smoke),
        settings_latex(rl, rl_caption(smoke), smoke),
        toy_latex(toy_table(example), toy_caption(example)),
    ]
    packages = r"\documentclass{article}\usepackage{booktabs,array}\begin{document}"
    text = "\n".join([packages, *tables, r"\end{document}"])
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


CAPTIONS = sorted(path.stem for path in (ROOT / "reports/captions").glob("*.rst"))


@pytest.mark.parametrize("name", CAPTIONS)
@pytest.mark.parametrize("wildcards", [{}, {"exhibit": "table1"}, {"figure": "figure1"}])
def test_captions_are_valid(name: str, wildcards: dict[str, str]) -> None:
    text = (ROOT / f"reports/captions/{name}.rst").read_text()
    snakemake = SimpleNamespace(wildcards=wildcards)
    caption = jinja2.Template(text, undefined=jinja2.StrictUndefined).render(snakemake=snakemake)
    body = publish_parts(caption, writer="html", settings_overrides={"halt_level": 2})["body"]
    assert "<p>" in body
    assert "{" not in body
