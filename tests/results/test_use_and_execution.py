"""Use and execution of strategies, counted by hand; the pages hold to what was found."""

from __future__ import annotations

import json

import pandas as pd
from conftest import ROOT

from benchmarks import use_and_execution
from benchmarks.use_and_execution import shares, short

RIGHT = "P a4+4=3+5=8 b2+6=1+7=8 c3+3=4+2=6<end_working_out><SOLUTION>886</SOLUTION>"
SLIPPED = "P a4+4=3+5=8 b2+6=1+7=8 c3+3=4+1=5<end_working_out><SOLUTION>885</SOLUTION>"
TURNED = "T a4+4=3+5=8 b6+2=1+7=8 c3+3=4+2=6<end_working_out><SOLUTION>886</SOLUTION>"


def test_shares_are_of_draws_and_of_uses() -> None:
    """Four draws on a plain sheet: three are plain, one of them is right; other text is none."""
    written = [RIGHT, SLIPPED, SLIPPED, TURNED, "what?", TURNED]
    samples = pd.DataFrame({"problem_id": ["p"] * 4 + ["q"] * 2, "completion": written})
    sheet = "Add a4+4 b2+6 c3+3"
    found = shares(samples, {"p": (sheet, "plain"), "q": (sheet, "turn")})
    assert found == {
        "plain": {"used": 0.75, "right": 0.333},
        "turn": {"used": 0.5, "right": 1.0},
    }


def test_in_short_uses_weigh_what_is_right() -> None:
    """Used 60 and 20 %, right in half and in all of these: in 50 of 80."""
    rare = {"used": 0.1, "right": 0.3}
    found = {"plain": {"used": 0.6, "right": 0.5}, "turn": {"used": 0.2, "right": 1.0}}
    table = short({"m": {"base": {**found, "raise": rare, "lower": rare}}})
    assert "| m | `base` | 40.0 | 62.5 | 10.0 | 30.0 |" in table


def test_the_page_holds_the_tables() -> None:
    content = json.loads(use_and_execution.FILE.read_text(encoding="utf-8"))
    page = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    assert use_and_execution.table(content["dose_more"]) in page
    assert short(content["sizes"]) in page


def test_the_form_is_read_from_the_sums_and_not_from_the_mark() -> None:
    said = "T a5+2=3+4=7 b4+2=3+3=6<end_working_out><SOLUTION>76</SOLUTION>"
    assert use_and_execution.form_of("Add a5+2 b4+2", said) == "plain"
    assert use_and_execution.form_of("Add a2+5 b2+4", said) == "turn"
    assert (
        use_and_execution.form_of("Add a5+2 b4+2", "P a5+2=3+4=7 b2+4=3+3=6<end_working_out>") == ""
    )
