"""docs/findings.md: its numbers are those of the committed file, and are computed as it says."""

import json
from pathlib import Path

import pytest
from report_frames import ROOT

from benchmarks import findings
from benchmarks.findings import merged_adapters, paper_differences, paper_means

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


def test_the_papers_means_are_computed_from_its_tables() -> None:
    assert paper_means() == FOUND["paper_means"]
    shown = [row for row in FOUND["paper_means"] if row["quantity"] == "pass@256"]
    assert len(shown) == 11
    for row in shown:
        number, points = (
            row["table"].removeprefix("table"),
            f"{row['points']:+.1f}".replace("-", "−"),
        )
        p = "below .001" if row["p"] < 0.001 else f"{row['p']:.3f}".removeprefix("0")
        end = f"| {points} | {p} |"
        lines = [line for line in TEXT.splitlines() if line.startswith(f"| {number} |")]
        assert any(line.endswith(end) for line in lines), row


def test_a_mean_of_two_benchmarks_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Differences 0.02 and 0.04, all deviations 0.01: SE sqrt(4 x 0.01^2 / 5) / 2, 16 df."""
    rows = [
        f"{benchmark},{row},pass@256,{value},0.01"
        for benchmark, ours in (("aime", 0.52), ("amc23", 0.54))
        for row, value in (("grpo", 0.5), ("base", ours))
    ]
    (tmp_path / "reports/paper").mkdir(parents=True)
    text = "\n".join(["benchmark,algorithm,quantity,value,std", *rows])
    (tmp_path / "reports/paper/table9.csv").write_text(text)
    monkeypatch.setattr(findings, "ROOT", tmp_path)
    monkeypatch.setattr(findings, "MEANS", {"table9": (("base", "grpo"),)})
    (row,) = paper_means()
    assert (row["points"], row["benchmarks"]) == (3.0, 2)
    assert row["t"] == pytest.approx(0.03 / ((4 * 0.0001 / 5) ** 0.5 / 2), abs=0.01)  # 6.71
    assert row["p"] == pytest.approx(5.03e-6, rel=0.01)


def test_what_is_said_of_routes_is_in_the_file() -> None:
    path = ROOT / "benchmarks/route_rules.json"
    (model,) = json.loads(path.read_text(encoding="utf-8"))["models"].values()
    base, runs = model["base"], model["grpo"]
    for title, value in (
        ("pass@1 (%)", lambda row: row["pass@1"]["all"]),
        ("pass@16 (%)", lambda row: row["pass@k"]["all"]),
        ("distinct correct routes in 64 samples", lambda row: row["distinct_correct_routes"]),
        ("entropy at forks (nats)", lambda row: row["entropy_at_forks"]),
    ):
        values = [value(run) for run in runs]
        assert f"| {title} | {value(base)} | {min(values)} to {max(values)} |" in TEXT
    gains = model["grpo_minus_base"]["pass@k"]["all"]
    assert f"by {min(gains)} to {max(gains)} points" in TEXT
    assert sum(model["rules"].values()) == 6
    assert len(model["rules"]) == 7


def test_what_is_said_of_sums_is_in_the_file() -> None:
    path = ROOT / "benchmarks/sums_rules.json"
    worlds = json.loads(path.read_text(encoding="utf-8"))["models"]
    losses = []
    for name, world in worlds.items():
        cells = [f"`{name}`"]
        for key in ("pass@1", "pass@k", "pass@k_with_correct_working"):
            base, runs = world["base"][key]["all"], [run[key]["all"] for run in world["grpo"]]
            cells += [str(base), f"{min(runs)} to {max(runs)}"]
            losses += [base - run for run in runs if key == "pass@k"]
        assert f"| {' | '.join(cells)} |" in TEXT
        assert sum(world["rules"].values()) == (5 if name == "plus" else 6)
    assert len(losses) == 20
    assert (round(min(losses), 1), round(max(losses), 1)) == (6.6, 18.6)


def test_young_adapters_are_rounded_away() -> None:
    for now, then in zip(merged_adapters(), FOUND["merged_adapters"], strict=True):
        assert now == pytest.approx(then, rel=1e-3)
