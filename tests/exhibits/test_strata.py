"""pass@k by stratum over training: numbers worked by hand, and what the page shows of them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT
from report_frames import figure_of, table_of

from sage.evaluation import snapshots
from sage.evaluation.snapshots import by_step
from sage.exhibits import kind_of, load_study
from sage.report.opening import findings_of
from sage.study import StudyError

STEPS = {"base": 0, "step-50": 50, "grpo": 100}


def counts_of(right: dict[str, list[list[int]]]) -> pd.DataFrame:
    """Right samples of 4, by method and run, of two problems where RL trains and two elsewhere."""
    rows = [
        {"algorithm": name, "train_seed": seed, "problem_id": f"p{place}", "correct": count}
        | {"stratum": "plain" if place < 2 else "raise", "worked": count, "chance": [0.0] * 3}
        for name, runs in right.items()
        for seed, run in enumerate(runs, int(name != "base"))
        for place, count in enumerate(run)
    ]
    same = {"model": "sums", "benchmark": "sheets", "cluster": "", "n_samples": 4}
    return pd.DataFrame(rows).assign(**same)


COUNTS = counts_of(
    {
        "base": [[2, 1, 2, 1]],
        "grpo": [[4, 4, 0, 0], [4, 2, 1, 0]],
        "step-50": [[3, 3, 2, 0], [3, 3, 0, 2]],
    }
)


def test_parts_are_the_strata_that_rl_trains_on_and_the_others() -> None:
    """One of 4 right: pass@2 is 1 - C(3, 2) / C(4, 2) = 1/2; two right: 5/6; three right: 1."""
    frame = by_step(COUNTS, STEPS, ["plain", "turn"], 2, 200)
    assert frame["step"].tolist() == [0, 0, 50, 50, 100, 100] * 3
    shown = frame.set_index(["part", "step", "k"])
    sizes = shown["problems"].groupby("part").first().to_dict()
    assert sizes == {"all": 4, "others": 2, "trained": 2}
    values, changes = shown["value"], shown["change"]
    assert values["trained", 0, 2] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert values["trained", 50, 1] == pytest.approx(3 / 4)
    assert values["trained", 100, 1] == pytest.approx((1 + 1 + 1 + 1 / 2) / 4)
    assert values["others", 50, 2] == pytest.approx((5 / 6 + 0 + 0 + 5 / 6) / 4)
    assert changes["others", 100, 2] == pytest.approx((1 / 2) / 4 - 2 / 3)
    assert changes["all", 50, 1] == pytest.approx((3 / 4 + 1 / 4) / 2 - 3 / 8)
    assert shown["change"].isna().groupby("step").all().tolist() == [True, False, False]
    ends = shown.loc[shown["change"].notna(), ["change_low", "change", "change_high"]]
    assert (ends["change_low"] <= ends["change"]).all()
    assert (ends["change"] <= ends["change_high"]).all()
    assert shown.xs(50, level="step")["runs"].unique().tolist() == [2]


def test_problems_of_no_other_stratum_are_one_part() -> None:
    for trained in ([], ["plain", "raise"]):
        assert by_step(COUNTS, STEPS, trained, 2, 100)["part"].unique().tolist() == ["all"]


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(ValueError, match="no counts of the base"):
        by_step(COUNTS[COUNTS["algorithm"] != "base"], STEPS, [], 2, 100)
    with pytest.raises(ValueError, match=r"pass@8 of 4 samples; it is known for \[1, 2, 4\]"):
        by_step(COUNTS, STEPS, [], 8, 100)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("evaluation.primary_k=1", "exhibits.strata.kind: shows pass@1 and pass@k, but"),
        ("exhibits.strata.samples=8", "exhibits.strata.samples: 8 must be at least"),
    ],
)
def test_a_k_that_says_nothing_more_is_refused_before_the_first_job(
    setting: str, said: str
) -> None:
    with pytest.raises(StudyError, match=said):
        load_study("mini", ROOT / "config", [setting])


def test_moments_are_drawn_before_the_end_and_joined_with_the_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = load_study("mini", ROOT / "config")
    kind, written, asked = kind_of(study, "strata"), dict[str, Any](), list[Any]()
    settings = kind.settings(study, "strata")
    assert settings["trained"] == ["plain", "turn"]
    assert (settings["k"], settings["steps"], settings["evaluation"]["samples"]) == (16, 100, 16)
    assert study.snapshots("sums", "grpo") == 5
    drawn = COUNTS[COUNTS["algorithm"] == "step-50"]
    monkeypatch.setattr(snapshots, "rival_counts", lambda *a: asked.append(a) or (drawn, 7))
    job: Any = SimpleNamespace(
        settings=settings | {"k": 2, "bootstrap": 100},
        files={"policies": [Path("seed1")]},
        snapshot_sampler=lambda model, benchmark: (model, benchmark),
        counts_of_samples=lambda: COUNTS[COUNTS["algorithm"] != "step-50"],
        write=lambda **frames: written.update(frames),
        write_manifest=asked.append,
    )
    kind.measure(job)  # type: ignore[attr-defined]
    assert asked == [(("sums", "sheets"), [Path("seed1")], 5, []), 7]
    assert written["by_step"].equals(by_step(COUNTS, STEPS, ["plain", "turn"], 2, 100))
    assert written["drawn"].equals(drawn)


def test_it_opens_the_page_of_the_default_study() -> None:
    study, frame = load_study("mini", ROOT / "config"), by_step(COUNTS, STEPS, ["plain"], 2, 100)
    assert next(iter(study.study.exhibits)) == "strata"
    assert kind_of(study, "strata").leads
    (found,) = findings_of(study, {"strata": frame})
    (said,) = found.sentences
    numbers = re.findall(r"[+−]?\d+\.\d+", said.partition(": ")[2])
    assert [*numbers[:3], *numbers[5:8]] == ["66.7", "95.8", "+29.2", "66.7", "12.5", "−54.2"]
    alone = frame.assign(change_low=float("nan"), change_high=float("nan"))  # one problem
    (found,) = findings_of(study, {"strata": alone})
    assert "(+29.2 points) on" in found.sentences[0]
    (none,) = findings_of(study, {"strata": frame[frame["part"] == "all"]})
    assert none.sentences == ()
    table = table_of(study, "strata", by_step=frame).table
    assert [row.title for row in table.groups[0].rows] == ["0", "50", "100"]
    assert [cell.text for cell in table.groups[0].rows[0].cells][-2:] == ["–", "–"]
    panels = figure_of(study, "strata", by_step=frame).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["pass@1", "pass@2"]
    assert [len(axes.lines) for axes in panels] == [3, 3]
