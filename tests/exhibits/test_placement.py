"""Labels of marks: beside them where there is room, never on a mark or on each other."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from report_frames import ROOT

from sage.evaluation.comparisons import comparisons_table
from sage.exhibits import load_study
from sage.exhibits.kind import Display
from sage.rendering.placement import RADIUS, placed, touching
from sage.rendering.style import STYLE

ROOM, NOTHING = np.array([200.0, 200.0]), np.empty((0, 4))
SIZE = np.array([60.0, 10.0])


def overlapping(boxes: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of boxes that share some area."""
    meet = (boxes[:, None, :2] < boxes[None, :, 2:]) & (boxes[None, :, :2] < boxes[:, None, 2:])
    return [(one, two) for one, two in np.argwhere(meet.all(axis=2)) if one < two]


class TestPlaced:
    def test_a_mark_alone_has_its_label_beside_it(self) -> None:
        marks = np.array([[100.0, 100.0]])
        boxes = placed(marks, SIZE[None], ROOM, NOTHING)
        assert touching(marks, boxes).tolist() == [True]
        assert boxes[0, 2:] - boxes[0, :2] == pytest.approx(SIZE)

    def test_labels_of_a_crowd_cover_neither_marks_nor_each_other(self) -> None:
        marks = 100 + np.random.default_rng(0).normal(0, 8, (12, 2))
        boxes = placed(marks, np.tile(SIZE, (12, 1)), ROOM, NOTHING)
        assert overlapping(boxes) == []
        ends = np.concatenate([marks - RADIUS, marks + RADIUS], axis=1)
        both = overlapping(np.concatenate([boxes, ends]))
        assert [pair for pair in both if pair[0] < 12] == []
        assert (boxes >= 0).all()
        assert (boxes <= 200).all()
        assert not touching(marks, boxes).all()  # some have a line
        assert np.array_equal(boxes, placed(marks, np.tile(SIZE, (12, 1)), ROOM, NOTHING))

    def test_a_label_leaves_a_line_free_where_it_can(self) -> None:
        marks = np.array([[100.0, 100.0]])
        axis = np.array([[100.0, 100.0, 200.0, 100.0], [100.0, 0.0, 100.0, 200.0]])
        (box,) = placed(marks, SIZE[None], ROOM, axis)
        assert overlapping(np.concatenate([box[None], axis])) == []


@pytest.mark.parametrize(("name", "inches"), [("mini", 4.4), ("rivals", 4.8)])
def test_no_labels_of_kept_runs_overlap(
    name: str, inches: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a figure that is no wider than a phone's page, so that its type stays legible there."""
    folder, study = tmp_path_factory.mktemp(name), load_study(name, ROOT / "config")
    exhibit = study.study.exhibits["tradeoff"]
    counts = pd.read_parquet(ROOT / f"reports/{name}/{name}/counts.parquet")
    counts = counts[
        (counts["model"] == exhibit.model) & counts["benchmark"].isin(exhibit.benchmarks_of(study))
    ]
    others = set(counts["algorithm"]) - {"grpo"}
    compared = [
        comparisons_table(counts[counts["algorithm"].isin({"grpo", other})], 10)
        for other in sorted(others)
    ]
    pd.concat(compared).to_parquet(folder / "comparisons.parquet")
    kept = pd.read_csv(ROOT / f"reports/{name}/{name}/pass_at_k.csv")
    kept.to_parquet(folder / "pass_at_k.parquet")
    counts.to_parquet(folder / "counts.parquet")
    with rc_context(STYLE):
        figure = exhibit.figure(Display(study, "tradeoff", [folder], ROOT / "reports/paper"))
        figure.draw_without_rendering()
        assert figure.get_figwidth() == inches
        (axes,) = figure.axes
        assert axes.get_xlabel() == "Δ pass@1 where RL trains (points)"
        texts = [text for text in axes.texts if text.get_text()]
        boxes = np.array([text.get_window_extent().extents for text in texts])
        room = axes.get_window_extent().extents
    assert len(texts) == len(others) + 1
    assert overlapping(boxes) == []
    assert (boxes[:, :2] >= room[:2] - 2).all()
    assert (boxes[:, 2:] <= room[2:] + 2).all()
