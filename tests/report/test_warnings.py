"""What the page warns of."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pages import GRPO, MANIFEST, RATES, a_content, with_a_case
from report_frames import a_study

from sage.exhibits.every_report import grading_table
from sage.report.warnings import (
    commit_notices,
    grading_notices,
    spread_notices,
    twin_notices,
    warnings,
    working_notices,
)
from sage.runtime.records import differ
from sage.tasks.data import FileSet


class TestWarnings:
    def test_missing_runs_are_named(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        content = replace(a_content(study, tmp_path), policies={GRPO: MANIFEST})
        untrained, unseen = warnings(study, content)[:2]
        assert untrained.text == "Not trained yet: 4 runs."  # branch and three cells
        assert "Branch, seed 1" in untrained.lines[0]
        assert unseen.lines[0].startswith("Tiny, Easy: Base, GRPO, seed 1")

    def test_other_settings_than_the_studys_are_named(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        rl = study.model("tiny").rl.model_dump(mode="json")
        then = {
            "rl": rl | {"steps": 7, "checkpoint_every": 9},  # the latter changes no result
            "algorithm": study.algorithms["grpo"].model_dump(mode="json") | {"title": "Old"},
        }
        manifest = MANIFEST | {"settings": then}
        content = replace(a_content(study, tmp_path), policies={GRPO: manifest})
        found = warnings(study, content)
        (stale,) = [one for one in found if "settings that differ" in one.text]
        assert stale.lines == [f"tiny/grpo/seed1: rl.steps 7 → {rl['steps']}"]

    def test_problems_that_an_own_set_has_twice_are_counted(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("problem,answer\n1+1,2\n2+2,4\n1+1,2\n1+1,2\n")
        own = FileSet(source="file", title="Mine", file=str(tmp_path / "a.csv"))
        study = with_a_case(a_study())
        study.study.problems["mine"] = own
        content = replace(a_content(study, tmp_path), problems={"mine": own.problems("mine")})
        (said,) = [one.text for one in warnings(study, content) if "repeat" in one.text]
        assert said.startswith("Mine: 2 of 4 problems repeat another, such as '1+1'; each counts")

    def test_changes_are_found_at_any_depth(self) -> None:
        then = {"a": {"b": 1, "c": [1, 2]}, "gone": 1}
        now = {"a": {"b": 2, "c": [1, 2]}, "new": None}
        assert differ(then, now) == ["a.b 1 → 2", "gone 1 → none"]

    def test_shares_above_the_limits_are_warned_of(self) -> None:
        study = a_study(seeds=(1, 2))
        table = grading_table(RATES)
        assert table.set_index("algorithm").loc["grpo", "correct"] == pytest.approx(0.5)
        found = grading_notices(table, study, "tiny")
        assert [notice.lines for notice in found] == [
            ["Easy: GRPO 6.0\u202f%"],
            ["Easy: Base 30.0\u202f%"],
        ]

    def test_a_single_training_seed_is_warned_of(self, tmp_path: Path) -> None:
        for seeds, said in (((1,), True), ((1, 2), False)):
            study = with_a_case(a_study(seeds=seeds))
            content = a_content(study, tmp_path / str(len(seeds)))
            texts = [one.text for one in warnings(study, content)]
            assert any("trained once" in text for text in texts) is said

    def test_rows_that_are_one_computation_are_named(self) -> None:
        rows = [
            (row, 1, "easy", problem, count)
            for row, correct in {
                "grpo": (2, 3),
                "bnpo": (2, 3),
                "branch": (3, 2),  # the same pass@k, of other problems
            }.items()
            for problem, count in zip("ab", correct, strict=True)
        ]
        columns = ["algorithm", "train_seed", "benchmark", "problem_id", "correct"]
        frame = pd.DataFrame(rows, columns=columns).assign(model="tiny", n_samples=4)
        study = a_study(algorithms=("grpo", "bnpo", "branch"))
        (notice,) = twin_notices(frame, study)
        assert notice.lines == ["Tiny: GRPO = BNPO"]
        apart = frame.assign(
            correct=frame["correct"].where(frame["problem_id"] != "b", frame.index)
        )
        assert twin_notices(apart, study) == []
        nothing = frame.assign(correct=0)  # where none solves anything, no wonder
        assert twin_notices(nothing, study) == []

    def test_runs_of_a_method_that_end_far_apart_are_named(self) -> None:
        rows = [
            (row, seed, "easy", k, value)
            for row, values in {"grpo": (0.25, 0.5), "branch": (0.25, 0.45)}.items()
            for seed, value in ((1, values[0]), (2, values[1]), (-1, 0.9))
            for k in (1, 4)
        ]
        columns = ["algorithm", "train_seed", "benchmark", "k", "value"]
        frame = pd.DataFrame(rows, columns=columns).assign(model="tiny", metric="pass@k")
        (notice,) = spread_notices(frame, a_study(seeds=(1, 2), primary_k=4))
        assert notice.lines == ["Tiny, Easy, pass@4: GRPO 25.0 to 50.0\u202f% in 2 runs"]
        assert "more than 20 points" in notice.text
        assert spread_notices(frame.assign(metric="worked@k"), a_study()) == []

    def test_right_answers_with_wrong_working_are_warned_of(self) -> None:
        study = a_study(primary_k=4)
        rows = [
            ("base", 0, "", 4, 0.50, 0.40),
            ("base", -1, "", 4, 0.50, 0.40),
            ("grpo", -1, "", 4, 0.60, 0.30),
            ("grpo", -1, "", 1, 0.60, 0.10),  # another k
            ("grpo", 1, "", 4, 0.60, 0.10),  # a single run
            ("grpo", -1, "hard", 4, 0.60, 0.10),  # a stratum
            ("branch", -1, "", 4, 0.60, 0.55),  # within a tenth
            ("no_kl", -1, "", 4, 0.60, float("nan")),  # working is not checked
        ]
        columns = ["algorithm", "train_seed", "stratum", "k", "value", "worked"]
        chance = pd.DataFrame(rows, columns=columns).assign(model="tiny", benchmark="easy")
        (notice,) = working_notices(chance, study)
        assert "more than 10\u202f% of their pass@k is lost" in notice.text
        lost = "Base 50.0 → 40.0\u202f%, GRPO 60.0 → 30.0\u202f%"
        assert notice.lines == [f"Tiny, Easy, pass@4: {lost}"]
        assert working_notices(chance[chance["algorithm"] == "branch"], study) == []

    def test_commits_that_differ_and_changes_are_named(self) -> None:
        one, two = {"git_commit": "aaa"}, {"git_commit": "bbb+changes"}
        differ, changed = commit_notices({"x": one, "y": two})
        assert differ.lines == ["aaa, bbb"]
        assert changed.lines == ["y"]
