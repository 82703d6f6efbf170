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


def test_false_verdicts_are_summed_up_by_world() -> None:
    def row(claim: str, runs: int, false: float) -> dict[str, object]:
        return {"world": "w", "claim": claim, "runs": runs, "false": false, "studies": 2000}

    rows = [row("a", 3, 0.01), row("b", 5, 0.03), row("any", 3, 0.02), row("any", 5, 0.04)]
    table = markdown({"false verdicts": rows})["false verdicts"]
    assert table.splitlines()[2:] == ["| w | 2,000 | 0.030 (`b`, 5 runs) | 0.020 to 0.040 |"]
    assert "| 0.020 |" in markdown({"false verdicts": rows[:3]})["false verdicts"]


def test_a_table_is_put_in_its_place() -> None:
    rows = [{"of": "x", "runs": runs, "covered": 0.95 + runs / 1000} for runs in (1, 3)]
    text = f"a {START.format('coverage')} old {END} b"
    table = "| of | coverage |\n|---|---|\n| x | 0.951 to 0.953 |"
    assert markdown({"coverage": rows}) == {"coverage": table}
    assert page_with(text, {"coverage": rows}) == (
        f"a {START.format('coverage')}\n\n{table}\n\n{END} b"
    )
