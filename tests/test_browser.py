"""The completions that the page's browser holds."""

import json
from pathlib import Path

import pandas as pd
import pytest
from pages import HOSTILE, a_problem, sample_rows, some_excerpts, write_samples

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

    def test_what_can_never_fit_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(browser, "BUDGET", 100)
        with pytest.raises(ValueError, match="do not fit 100 bytes"):
            some_excerpts(tmp_path)

    def test_long_texts_are_cut_and_marked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(browser, "LONGEST", 5)
        data = json.loads(some_excerpts(tmp_path))
        shown = data["runs"][0]["cells"]["0"]["shown"][0]
        assert (shown[1], shown[7]) == ("try 0", 1)
