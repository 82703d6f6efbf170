"""The paper's numbers beside measured ones."""

import math
from pathlib import Path

import pandas as pd
import pytest
from pages import a_table
from report_frames import ROOT, a_study, changed

from sage.exhibits import PAPER, load_study, tables_of, write_piece
from sage.exhibits.paper_values import COLUMNS as PAPER_COLUMNS
from sage.exhibits.paper_values import compared, paper_values, read_mapping
from sage.rendering.documents import read_document
from sage.results import Results


class TestPaper:
    def test_the_papers_numbers_are_found_by_model_and_benchmark(self) -> None:
        study = load_study("paper", ROOT / "config")
        values = paper_values(ROOT / "reports/paper", study)
        assert {*values["benchmark"]} <= {"", *study.study.problems}
        assert not values[["algorithm", "quantity", "value"]].isna().any(axis=None)
        found = values.set_index(["kind", "model", "benchmark", "algorithm", "quantity"])["value"]
        model = "qwen_math_7b"
        assert found["accuracy", model, "minerva", "grpo", "pass@256"] == 0.477
        assert found["accuracy", "r1_distill_7b", "amc23", "base", "pass@64"] == 0.955
        assert found["patterns", model, "aime", "grpo_branch", "proof_by_contradiction"] == 0.033
        assert found["gradient_norms", model, "", "grpo_no_kl", "mid"] == 0.010
        cell = "grpo_branch-threshold2-ratio0.3"
        assert found["ablation", model, "amc23", cell, "pass@256"] == 0.983
        assert found["ablation", model, "amc23", "grpo_branch", "pass@1"] == 0.433

    def test_other_studies_have_no_numbers_of_the_paper(self) -> None:
        assert paper_values(ROOT / "reports/paper", a_study()).empty

    def test_the_papers_value_is_inside_if_noise_alone_could_part_them(self) -> None:
        """Five seeds with deviations 0.01 and 0.02: a standard error of 0.01 at 5.88 degrees of
        freedom, so 2.459 times that to each side."""
        paper = pd.DataFrame(
            [("accuracy", "m", "b", row, "pass@1", 0.30, 0.01, 5) for row in ("x", "y", "z")],
            columns=PAPER_COLUMNS,
        )
        measured = pd.DataFrame(
            [("x", 0.35, 0.02, 5), ("y", 0.32, 0.02, 5), ("z", 0.35, None, 1)],
            columns=["algorithm", "value", "measured_std", "measured_seeds"],
        ).assign(quantity="pass@1")
        both = compared(paper, measured, ["algorithm", "quantity"])
        assert both["difference"].tolist() == pytest.approx([0.05, 0.02, 0.05])
        assert both["low"].tolist()[:2] == pytest.approx([0.05 - 0.02459, 0.02 - 0.02459], abs=1e-5)
        assert both["high"].tolist()[0] == pytest.approx(0.05 + 0.02459, abs=1e-5)
        assert both["low"].isna().tolist() == [False, False, True]
        assert both["inside"].tolist() == [False, True, None]
        # Ten seeds of two runs, with a deviation of sqrt(2) as much: the same standard error, at
        # 1e-4**2 / (0.2e-4**2 / 4 + 0.8e-4**2 / 8) = 11.11 degrees of freedom.
        more = measured.assign(measured_std=0.02 * 2**0.5, measured_seeds=10, measured_runs=2)
        twice = compared(paper, more, ["algorithm", "quantity"])
        assert twice["high"][0] == pytest.approx(0.05 + 0.01 * 2.1983, abs=1e-5)

    def test_a_value_without_deviations_has_a_difference_and_no_more(self) -> None:
        known = [("gradient_norms", "m", "", "x", "mid", 0.30, None, None)]
        paper = pd.DataFrame(known, columns=PAPER_COLUMNS)
        measured = pd.DataFrame([("x", "mid", 0.4)], columns=["algorithm", "quantity", "value"])
        (row,) = compared(paper, measured, ["algorithm", "quantity"]).to_dict("records")
        assert row["difference"] == pytest.approx(0.1)
        assert math.isnan(row["low"])
        assert row["inside"] is None

    def test_a_model_of_the_paper_has_its_numbers_beside(self, tmp_path: Path) -> None:
        """An exhibit of a model that the mapping names gets a table of its own for it."""
        study, results = a_study(), Results(tmp_path / "results")
        evaluation = study.study.evaluation.model_copy(update={"seeds": [0, 1, 2, 3, 4]})
        study = changed(study, evaluation=evaluation)
        paper = tmp_path / "reports/paper"
        paper.mkdir(parents=True)
        (paper / "mapping.yaml").write_text("tiny:\n  - {file: t.csv, kind: accuracy, seeds: 5}\n")
        (paper / "t.csv").write_text(
            "benchmark,algorithm,quantity,value,std\neasy,grpo,pass@1,0.55,0.01\n"
        )
        a_table(study, "table1", tmp_path)
        reading = pd.DataFrame(
            [("grpo", -1, "easy", 1, 0.62, 0.02, 5)],
            columns=["algorithm", "train_seed", "benchmark", "k", "value", "std", "n_eval_seeds"],
        ).assign(model="tiny", metric="pass@k")
        reading.to_parquet(tmp_path / "measured/paper_reading.parquet")
        csv = results.table("table1_paper")
        write_piece(study, "table1", PAPER, [tmp_path / "measured"], paper, csv)
        (row,) = pd.read_csv(csv).to_dict("records")
        assert (row["value"], row["measured"], row["difference"]) == pytest.approx(
            (0.55, 0.62, 0.07)  # by the paper's estimator; the unbiased one gives 0.6
        )
        cells = read_document(csv.with_suffix(".json")).table.groups[0].rows[0].cells
        assert [cell.text for cell in cells] == ["55.0", "62.0", "+7.0", "no"]
        assert [*tables_of(study, "table1", paper)] == ["table1", "table1_reading", "table1_paper"]
        assert [*tables_of(study, "table5", paper)] == ["table5"]

    def test_a_faulty_mapping_is_an_error_that_names_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "mapping.yaml").write_text("m:\n  - {file: a.csv, kind: tale}\n")
        with pytest.raises(ValueError, match=r"mapping.yaml: .*\n.*kind"):
            read_mapping(tmp_path)
