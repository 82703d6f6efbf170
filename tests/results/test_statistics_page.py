"""docs/statistics.md: its tables are those of the kept calibration."""

from __future__ import annotations

import json

from report_frames import ROOT

from benchmarks.calibration import COVERED
from benchmarks.calibration_page import END, START, markdown, page_with

TEXT = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
TABLES = json.loads((ROOT / "benchmarks/calibration.json").read_text(encoding="utf-8"))["tables"]


def test_few_claims_get_a_false_verdict_in_a_world_that_the_rules_are_made_for() -> None:
    """At most 5 %, give or take three standard errors of that many studies."""
    rows = [row for row in TABLES["false verdicts"] if row["world"] in COVERED]
    claims = [row for row in rows if row["claim"] != "any"]
    assert {row["world"] for row in claims} <= {*COVERED}
    for row in claims:
        assert row["false"] <= 0.05 + 3 * (0.05 * 0.95 / row["studies"]) ** 0.5, row


def test_the_page_has_the_tables_of_the_file() -> None:
    assert page_with(TEXT, TABLES) == TEXT
    for name in TABLES:
        assert TEXT.count(START.format(name)) == 1


def test_a_table_is_put_in_its_place() -> None:
    rows = [{"of": "x", "runs": runs, "covered": 0.95} for runs in (1, 3)]
    text = f"a {START.format('coverage')} old {END} b"
    table = "| of | 1 run | 3 runs |\n|---|---|---|\n| x | 0.950 | 0.950 |"
    assert markdown({"coverage": rows}) == {"coverage": table}
    assert page_with(text, {"coverage": rows}) == (
        f"a {START.format('coverage')}\n\n{table}\n\n{END} b"
    )
