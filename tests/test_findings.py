"""docs/findings.md: its numbers are those of the committed file, and are computed as it says."""

import json

import pytest
from report_frames import ROOT

from benchmarks.findings import merged_adapters, paper_differences

TEXT = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
FOUND = json.loads((ROOT / "benchmarks/findings.json").read_text(encoding="utf-8"))


def test_the_numbers_of_the_text_are_those_of_the_file() -> None:
    for table in FOUND["paper_differences"]:
        number, clear = table["table"].removeprefix("table"), len(table["after_holm"])
        row = f"| {number} | {table['tests']} | {table['below_0.05']} | {clear} |"
        assert row in TEXT
    for row in FOUND["merged_adapters"]:
        assert f"{row['cosine']:.2f} | {100 * row['share_changed']:.0f} % |" in TEXT
    for row in FOUND["released_grader"]:
        assert row["ours"] == row["answers"]
        assert f"{row['released']}" in TEXT


def test_the_papers_differences_are_computed_from_its_tables() -> None:
    assert paper_differences() == FOUND["paper_differences"]
    assert sum(table["tests"] for table in FOUND["paper_differences"]) == 50


def test_young_adapters_are_rounded_away() -> None:
    for now, then in zip(merged_adapters(), FOUND["merged_adapters"], strict=True):
        assert now == pytest.approx(then, rel=1e-3)
