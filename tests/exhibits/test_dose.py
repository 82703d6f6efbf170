"""The dose exhibit: cells and controls, effects and slopes by hand, its table and figure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from counted import counts_of

from reports.dose.dose_effects import Cell, dose_tables
from reports.dose.dose_grid import DoseFigure
from sage.exhibits import kind_of, load_study
from sage.exhibits.kind import Display
from sage.rendering.table import Table
from sage.report.opening import findings_of, opening
from sage.study import ResolvedStudy, StudyError


def history(dose: float, steps: int = 6) -> list[dict[str, Any]]:
    """A run whose guide's dose is the same at every step."""
    return [
        {"step": s, "guide_dose": dose, "kl_dose": 0.5, "kl": 0.1 * s, "truncated_share": 0.0}
        for s in range(1, steps + 1)
    ]


CELLS = [Cell("k1_reward", 0.05, ratio, f"strong{ratio:g}", "plain") for ratio in (1.0, 10.0)]


def test_effects_and_slopes_by_hand() -> None:
    """Twice 2 of 8 more right is +25 points; at ten times the dose +50: the slope is 25 points."""
    counts = counts_of(
        plain=[[0, 2, 4], [0, 2, 4]],
        strong1=[[2, 4, 6], [2, 4, 6]],
        strong10=[[4, 6, 8], [4, 6, 8]],
    )
    histories = {("plain", seed): history(0.0) for seed in (1, 2)}
    histories |= {("strong1", seed): history(0.02) for seed in (1, 2)}
    histories |= {("strong10", seed): history(0.2) for seed in (1, 2)}
    effects, slopes = dose_tables(counts, histories, CELLS, [1], draws=200)
    assert effects["value"].tolist() == pytest.approx([0.25, 0.5])
    assert effects["without"].tolist() == pytest.approx([0.25, 0.25])
    assert effects["guide_dose"].tolist() == pytest.approx([0.02, 0.2])
    assert effects["kl"].tolist() == pytest.approx([0.55, 0.55])  # of the last two steps
    (slope,) = slopes.to_dict("records")
    assert slope["value"] == pytest.approx(0.25)
    assert (slope["n_cells"], slope["n_seeds"]) == (2, 2)


def test_cells_without_a_common_seed_are_refused() -> None:
    counts = counts_of(plain=[[1, 2]], strong1=[[1, 2]])
    counts.loc[counts["algorithm"] == "plain", "train_seed"] = 7
    with pytest.raises(ValueError, match="no training seed in common"):
        dose_tables(counts, {("strong1", 1): history(0.1)}, CELLS[:1], [1], draws=100)


def test_a_cell_of_each_strength_and_a_control_of_each_weight() -> None:
    study = load_study("dose", ROOT / "config")
    exhibit = study.study.exhibits["dose_minus"]
    assert isinstance(exhibit, DoseFigure)
    rows = exhibit.methods_of(study)
    assert len(rows) == 8
    control = study.algorithms["grpo_branch_k1_reward-kl0.2-unguided"]
    strong = study.algorithms["grpo_branch_k1_reward-kl0.2-ratio3"]
    assert control.guide is None
    assert strong.guide is not None
    assert (strong.guide.settings["ratio"], strong.guide.clamp) == (3.0, [0.25, 4.0])
    assert {control.kl_coefficient, strong.kl_coefficient} == {0.2}
    assert control.estimator == strong.estimator


def shown(study: ResolvedStudy, name: str, folder: Path, dose: float) -> Display:
    """An exhibit of doses with counts drawn at random; each method has `dose` more than the last.

    Both frames are in `folder`.
    """
    cells = [Cell(**cell) for cell in kind_of(study, name).settings(study, name)["cells"]]
    rng = np.random.default_rng(0)
    names = sorted({name for cell in cells for name in (cell.guided, cell.plain)})
    counts = counts_of(**{name: rng.integers(0, 9, (2, 5)).tolist() for name in names})
    histories = {
        (name, seed): history(dose * place)
        for place, name in enumerate(names, 1)
        for seed in (1, 2)
    }
    effects, slopes = dose_tables(counts, histories, cells, [1, 8], draws=200)
    effects.to_parquet(folder / "effects.parquet")
    slopes.to_parquet(folder / "slopes.parquet")
    return Display(study, name, [folder], ROOT / "reports/paper")


def test_the_table_and_the_figure_show_every_cell(tmp_path: Path) -> None:
    study = load_study("dose", ROOT / "config")
    exhibit = study.study.exhibits["dose_plus"]
    assert isinstance(exhibit, DoseFigure)
    display = shown(study, "dose_plus", tmp_path, 0.01)
    document = exhibit.table(display)
    assert [len(group.rows) for group in document.table.groups] == [6]
    assert len(exhibit.slopes(display).table.groups[0].rows) == 2  # pass@1 and pass@8
    frames = display.frame("slopes"), display.frame("effects")
    assert exhibit.findings(study, *frames).lines[0].title == "Needed strategies choose"
    figure = exhibit.figure(display)
    assert len(figure.axes) == 2  # pass@1 and pass@8
    assert all(len(axes.containers) == 6 for axes in figure.axes)
    figure.canvas.draw()
    ticks = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert ticks
    assert all(float(text) > 0 for text in ticks)  # plain numbers, no markup


@pytest.mark.parametrize("dose", [0.0, np.nan])
def test_a_guide_without_a_dose_has_empty_panels(dose: float, tmp_path: Path) -> None:
    study = load_study("dose", ROOT / "config")
    exhibit, display = kind_of(study, "dose_plus"), shown(study, "dose_plus", tmp_path, dose)
    axes = exhibit.figures()[""](display).axes
    assert [len(each.containers) for each in axes] == [0, 0]


def test_methods_of_one_estimator_have_rows_of_their_own(tmp_path: Path) -> None:
    own = ["exhibits.dose_plus.algorithms=[grpo_branch_k1_reward, grpo_branch_strong_k1_reward]"]
    study = load_study("dose", ROOT / "config", own)
    (group,) = table_of(shown(study, "dose_plus", tmp_path, 0.01)).groups
    titles = [row.title for row in group.rows]
    assert len({*titles}) == len(titles) == 12
    assert titles[0] == study.algorithms["grpo_branch_k1_reward-kl0.05-ratio0.3"].title


def table_of(display: Display) -> Table:
    return kind_of(display.study, display.name).tables()[""](display).table


@pytest.mark.parametrize(
    ("study", "setting", "said"),
    [
        ("dose", "dose_plus.values=[1.0, 1.0]", "values: 1 occurs twice"),
        ("dose", "dose_plus.kl_coefficients=[0.2, 0.2]", "kl_coefficients: 0.2 occurs twice"),
        ("dose", "dose_plus.values=[-1.0]", "values: ratio: must be at least 0.0, not -1.0"),
        ("dose", "dose_plus.clamp=[4.0, 0.25]", r"clamp: must be \[lowest, highest\]"),
        ("smoke", "table6.grid={ratio: [0.3, 0.30000001]}", "grid.ratio: 0.3 occurs twice"),
        ("smoke", "table6.grid={ratio: [-0.3]}", "grid: ratio: must be at least 0.0, not -0.3"),
    ],
)
def test_cells_that_cannot_be_trained_or_told_apart_are_refused(
    study: str, setting: str, said: str
) -> None:
    with pytest.raises(StudyError, match=said):
        load_study(study, ROOT / "config", [f"exhibits.{setting}"])


def test_the_page_opens_with_the_slopes_of_a_kept_run() -> None:
    """The primary contrast of each world, pass@k of its largest dose, and one forest of both."""
    study, kept = load_study("dose", ROOT / "config"), ROOT / "reports/dose/dose"
    told = {
        f"{name}{suffix}": pd.read_csv(kept / f"{name}{suffix}.csv")
        for name in ("dose_plus", "dose_minus")
        for suffix in DoseFigure.tells
    }
    opened = opening(study, None, None, [], 0, findings_of(study, told))
    numbers = [re.findall(r"[+−]?\d+\.\d+", sentence) for sentence in opened.sentences]
    assert numbers == [
        ["11.6", "+2.5", "+20.8", "1.05", "74.8", "57.3"],
        ["9.1", "−11.0", "−7.2", "0.50", "41.7", "53.6"],
    ]
    assert opened.forest is not None
    assert [line.kind for line in opened.forest.lines] == ["higher", "lower"]
    unclear = told["dose_plus_slopes"].assign(low=-0.01)
    (said,) = findings_of(study, told | {"dose_plus_slopes": unclear})[0].sentences
    assert "does not change pass@16" in said
    assert "(+11.6 points, 95 %" in said
    weak = told["dose_plus"].assign(guide_dose=told["dose_plus"]["guide_dose"] / 100)
    (said,) = findings_of(study, told | {"dose_plus": weak})[0].sentences
    assert said.endswith("guide was hardly tested.")
    assert findings_of(study, {"dose_plus": told["dose_plus"]}) == []  # a table is missing


def test_a_slope_is_over_the_training_seeds_that_all_cells_have() -> None:
    """The effect depends on the seed alone, so there is no slope over the seeds in common."""
    counts = counts_of(
        plain=[[0, 2, 4]] * 4,
        strong1=[[0, 2, 4], [2, 4, 6], [4, 6, 8], [0, 2, 4]],
        strong10=[[0, 2, 4], [2, 4, 6], [4, 6, 8], [0, 2, 4]],
    )
    without = {"strong1": 4, "strong10": 1}  # runs 1 to 3, and 2 to 4
    for name, seed in without.items():
        counts = counts[(counts["algorithm"] != name) | (counts["train_seed"] != seed)]
    doses = {"plain": 0.0, "strong1": 0.02, "strong10": 0.2}
    histories = {(name, s): history(dose) for name, dose in doses.items() for s in range(1, 5)}
    _, slopes = dose_tables(counts, histories, CELLS, [1], draws=200)
    (slope,) = slopes.to_dict("records")
    assert slope["value"] == pytest.approx(0)
    assert slope["n_seeds"] == 2
