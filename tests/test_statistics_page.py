"""docs/statistics.md: its tables are those of the kept calibration."""

from __future__ import annotations

import json
import math

import pytest
from report_frames import ROOT

TEXT = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
TABLES = json.loads((ROOT / "benchmarks/calibration.json").read_text(encoding="utf-8"))["tables"]


def by_runs(rows: list[dict], key: str) -> dict[int, float]:
    return {row["runs"]: row[key] for row in rows}


def test_no_claim_gets_a_false_verdict_in_more_than_five_percent() -> None:
    rows = TABLES["false verdicts"]
    assert {row["runs"] for row in rows} == {3, 5, 8}
    assert all(row["false"] <= 0.05 for row in rows)


@pytest.mark.parametrize("claim", sorted({row["claim"] for row in TABLES["false verdicts"]}))
def test_false_verdicts_are_those_of_the_file(claim: str) -> None:
    rows = [row for row in TABLES["false verdicts"] if row["claim"] == claim]
    rows = [row for row in rows if row["world"] == "no effect"]
    seen = by_runs(rows, "false")
    cells = [f"{seen[runs]:.3f}" if runs in seen else "–" for runs in (3, 5, 8)]
    assert f"| {claim} | {' | '.join(cells)} | {rows[0]['studies']} |" in TEXT


@pytest.mark.parametrize(("verdict", "said"), [("contradicted", "14 %"), ("false", "25 to 26 %")])
def test_any_false_verdict_is_what_independent_claims_make_of_the_file(
    verdict: str, said: str
) -> None:
    rows = [row for row in TABLES["false verdicts"] if row["world"] == "no effect"]
    shares = {
        round(100 * (1 - math.prod(1 - row[verdict] for row in rows if row["runs"] == runs)))
        for runs in (3, 5, 8)
    }
    assert said == " to ".join(str(share) for share in sorted(shares)) + " %"
    assert f"{said} " in TEXT


def test_coverage_is_that_of_the_file() -> None:
    for name in {row["of"] for row in TABLES["coverage"]}:
        seen = by_runs([row for row in TABLES["coverage"] if row["of"] == name], "covered")
        assert f"| {name} | {' | '.join(f'{seen[n]:.3f}' for n in sorted(seen))} |" in TEXT
