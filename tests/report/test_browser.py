"""The completions that the page's browser holds."""

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT
from pages import HOSTILE, a_problem, sample_rows, some_excerpts, write_samples

from sage.exhibits import load_study
from sage.problems.record import write_problems
from sage.report import browser


class TestBrowser:
    def test_the_first_of_each_status_are_chosen(self) -> None:
        choice = browser.choose(browser.candidates(sample_rows()), ["p0", "p2"], (1, 2, 1))
        assert choice.index.tolist() == [0, 1, 3, 4, 12, 13, 15, 16]
        assert {*zip(choice["correct"], choice["drawn"], strict=True)} == {(2, 6)}

    def test_only_the_chosen_texts_are_read(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path)[0]
        texts = browser.read_texts(path, pd.Index([0, 5, 17]))
        assert [text.split(" <")[0] for text, _ in texts] == [
            f"try {index} of p{problem} {HOSTILE}".split(" <")[0]
            for index, problem in ((0, 0), (5, 0), (5, 2))
        ]

    def test_problems_are_spread_over_the_benchmark(self) -> None:
        problems = [a_problem(str(place)) for place in range(10)]
        assert [p.problem_id for p in browser.spread(problems, 4)] == ["0", "3", "6", "9"]
        assert browser.spread(problems, 10) == problems

    def test_what_does_not_fit_is_left_out_evenly(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = len(some_excerpts(tmp_path / "whole").encode())
        monkeypatch.setattr(browser, "BUDGET", whole // 2)
        text = some_excerpts(tmp_path / "half")
        data = json.loads(text)
        assert len(text.encode()) <= whole // 2
        assert all(run["cells"] for run in data["runs"])  # every row still has something

    @pytest.mark.slow
    def test_a_study_of_400_files_of_long_completions_still_has_a_page(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = sample_rows(1).assign(completion="long " * 4_000, n_tokens=10_000)
        paths = write_samples(tmp_path, tuple(f"row{n}" for n in range(400)), rows)
        problems = {"easy": tmp_path / "easy.jsonl"}
        write_problems([a_problem("p0")], problems["easy"])
        for budget, longest, left_out in ((browser.BUDGET, 500, 0), (100_000, 250, 300)):
            monkeypatch.setattr(browser, "BUDGET", budget)
            browser.write_excerpts(paths, problems, tmp_path / "samples.json")
            text = (tmp_path / "samples.json").read_text()
            data = json.loads(text)
            assert len(text.encode()) <= budget
            assert len(data["runs"]) == 400 - left_out
            assert len(data["runs"][0]["cells"]["0"]["shown"][0][1]) == longest
            assert f"Texts end after {longest} characters." in data["note"]
            assert ("300 runs on a benchmark are left out." in data["note"]) is (left_out > 0)
        monkeypatch.setattr(browser, "BUDGET", 200)
        browser.write_excerpts(paths, problems, tmp_path / "samples.json")
        assert json.loads((tmp_path / "samples.json").read_text())["runs"] == []

    def test_the_plan_says_what_may_be_left_out(self) -> None:
        assert browser.expected_note(load_study("smoke", ROOT / "config")) == ""
        note = browser.expected_note(load_study("paper_runs", ROOT / "config"))
        assert note.startswith("Page: completions of ")

    def test_long_texts_are_cut_and_marked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(browser, "LONGEST", 5)
        data = json.loads(some_excerpts(tmp_path))
        shown = data["runs"][0]["cells"]["0"]["shown"][0]
        assert (shown[1], shown[7]) == ("try 0", 1)
