"""The tables of docs/findings.md on small studies are those of the kept files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import small_studies
from benchmarks.small_studies import BRANCH, TRADE, cell, contrast, primary_k, tables

FINDINGS = Path(__file__).resolve().parents[1] / "docs/findings.md"


def test_the_page_has_the_tables_of_the_kept_files() -> None:
    text = FINDINGS.read_text(encoding="utf-8")
    for table in tables():
        assert table in text
        assert len(table.splitlines()) > 5


def test_a_contrast_is_read_from_comparisons_or_else_from_claims() -> None:
    assert cell(contrast("bases", "tiny_second", *TRADE[0])) == "+12.2 (+9.8 to +14.8)"
    assert cell(contrast("mini", "tiny", *BRANCH[0])) == "−1.1 (−2.5 to +0.2)"
    assert contrast("mini", "tiny", "grpo_no_kl", "grpo", None) is None
    assert cell(None) == "–"
    assert (primary_k("mini"), primary_k("bases")) == (64, 128)


def test_a_contrast_that_no_file_has_leaves_its_cell_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_studies, "BASES", {("mini", "tiny"): "`mini`"})
    trade, *_ = tables()
    assert trade.splitlines()[2].endswith("| – |")
