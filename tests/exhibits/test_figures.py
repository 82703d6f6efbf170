"""The report's figures: drawn from the rows given, alike in every study, the same bytes twice."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from report_frames import (
    COMPARISONS,
    EXHIBITS,
    HISTORIES,
    METRICS,
    Given,
    a_study,
    changed,
    comparisons,
    figure_of,
    history,
    pass_at_k,
    table_of,
)

from sage.evaluation.histories import history_frame
from sage.exhibits import EVERY_REPORT, figures_of, kind_of, tables_of, write_piece
from sage.exhibits.curves import bands_from
from sage.exhibits.perplexity_of_responses import tail_table
from sage.exhibits.theory import anchors_figure, modes_figure
from sage.exhibits.tradeoff import TradeoffFigure, _far, _point_to
from sage.rendering.lines import LineStyle
from sage.rendering.markup import figure_html
from sage.rendering.style import STYLE, draw_figure
from sage.rendering.table import filled
from sage.study import ResolvedStudy
from sage.study.exhibit import Surroundings
from sage.theory.figures import guided_anchors, mode_fits

ACCURACIES = pd.DataFrame(
    [
        ("grpo", 1, 0, 0.30, 0.20, 0.40),
        ("grpo", 1, 10, 0.50, 0.40, 0.60),
        ("grpo", 1, 20, 0.60, 0.50, 0.70),
        ("branch", 1, 0, 0.30, 0.20, 0.40),
        ("branch", 1, 20, 0.70, 0.60, 0.80),
    ],
    columns=["algorithm", "train_seed", "step", "value", "low", "high"],
)
PERPLEXITIES = pd.DataFrame(
    [
        (problem, algorithm, "correct" if place % 2 else "wrong", factor * value)
        for problem, factor in (("p2", 1.0), ("p1", 10.0))
        for algorithm, values in (("base", (1.0, 2.0, 3.0, 4.0)), ("branch", (2.0, 4.0, 6.0, 8.0)))
        for place, value in enumerate(values)
    ],
    columns=["problem_id", "algorithm", "status", "perplexity"],
)

RESPONSES = {"perplexities": PERPLEXITIES, "tails": tail_table(PERPLEXITIES)}
RECORDED = history_frame(HISTORIES)


@pytest.mark.slow
def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    study = a_study()
    figures: dict[str, Callable[[], Figure]] = {
        "curves": lambda: figure_of(study, "figure3", pass_at_k=pass_at_k(METRICS)),
        "training": lambda: figure_of(study, "training", histories=RECORDED),
        "trajectory": lambda: figure_of(
            study, "figure2", histories=RECORDED, accuracies=ACCURACIES
        ),
        "perplexity": lambda: figure_of(study, "figure7", **RESPONSES),
        "anchors": lambda: anchors_figure(guided_anchors()),
        "modes": lambda: modes_figure(mode_fits(steps=200)),
    }
    for name, figure in figures.items():
        draw_figure(figure, tmp_path / "first.svg")
        draw_figure(figure, tmp_path / "second.svg")
        for end in ("svg", "pdf"):
            first = (tmp_path / f"first.{end}").read_bytes()
            assert first == (tmp_path / f"second.{end}").read_bytes(), f"{name}.{end}"
            assert len(first) > 5_000
    shutil.rmtree(tmp_path)


def test_pyplot_is_left_alone() -> None:
    before = dict(plt.rcParams)
    figure_of(a_study(), "training", histories=RECORDED)
    figure_of(a_study(), "figure7", **RESPONSES)
    assert plt.get_fignums() == []
    assert dict(plt.rcParams) == before


def test_figures_are_drawn_from_what_was_measured(tmp_path: Path) -> None:
    frames = {
        "pass_at_k": pass_at_k(METRICS),
        "histories": RECORDED,
        "accuracies": ACCURACIES,
        **RESPONSES,
    }
    for name, frame in frames.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    study = a_study()
    drawn = {name: figures_of(study, name) for name in (*study.study.exhibits, *EVERY_REPORT)}
    names = [figure for figures in drawn.values() for figure in figures]
    assert names == [
        *("figure2", "figure3", "figure3_apart", "figure7", "training"),
        *("figure1", "figure5"),
    ]
    methods = {"figure2": {"grpo", "branch"}, "figure7": {"base", "branch"}}
    methods |= {"figure3": {"base", "grpo", "branch"}, "training": {"grpo", "branch"}}
    for name, shown in methods.items():
        path = tmp_path / f"{name}.svg"
        write_piece(study, name, "", [tmp_path], tmp_path, path)
        assert "Branch" in path.read_text()
        assert {*re.findall(r'data-method="([^"]+)"', path.read_text())} == shown
        assert 'id="method' not in path.read_text()
        assert path.with_suffix(".pdf").exists()
    (tmp_path / "histories.parquet").unlink()
    with pytest.raises(FileNotFoundError, match="histories"):
        write_piece(study, "training", "", [tmp_path], tmp_path, tmp_path / "training.svg")


class TestCurves:
    def test_curves_are_drawn_from_the_pooled_rows(self) -> None:
        metrics = pass_at_k(METRICS)
        metrics.loc[metrics["train_seed"] != -1, "value"] = 0.0
        easy, hard = figure_of(a_study(), "figure3", pass_at_k=metrics).axes
        assert [axes.get_title(loc="left") for axes in (easy, hard)] == ["Easy", "Hard"]
        drawn = [line.get_ydata().tolist() for line in easy.lines]
        assert drawn == [[0.30, 0.50, 0.70], [0.60, 0.65, 0.40], [0.90, 0.92, 0.75]]
        assert easy.get_xscale() == "log"

    def test_the_page_knows_where_each_k_is_in_a_panel(self, tmp_path: Path) -> None:
        draw_figure(
            lambda: figure_of(a_study(), "figure3", pass_at_k=pass_at_k(METRICS)),
            tmp_path / "curves.svg",
        )
        svg = (tmp_path / "curves.svg").read_text()
        panel = next(g for g in ElementTree.fromstring(svg).iter() if g.get("data-x"))
        one, two, top, bottom = map(float, panel.get("data-x").split())
        marks = [use for use in panel.iter() if use.tag.endswith("use")]
        ticks = {float(mark.get("x")) for mark in marks if abs(float(mark.get("y")) - bottom) < 0.1}
        assert sorted(ticks) == pytest.approx([one, two, 2 * two - one], abs=0.1)
        assert top < bottom

    def test_a_model_alone_has_no_differences_and_no_papers_estimator(self) -> None:
        alone = changed(a_study(algorithms=()), exhibits=EXHIBITS, paper=None)
        assert [*figures_of(alone, "figure3")] == ["figure3"]
        assert [*figures_of(a_study(), "figure3")] == ["figure3", "figure3_apart"]
        assert [*tables_of(alone, "table1")] == ["table1"]
        base = pass_at_k([row for row in METRICS if row[0] == "base"])
        shown = table_of(alone, "table1", pass_at_k=base, comparisons=COMPARISONS.head(0))
        assert not re.search("Δ|Bold|≈", shown.caption)
        assert filled(shown.table).columns < shown.table.columns

    def test_each_of_several_runs_has_a_thin_line_behind_the_pooled_one(self) -> None:
        metrics = pass_at_k(METRICS, seeds=(1, 2))
        metrics.loc[metrics["train_seed"] == 2, "value"] += 0.01
        easy, _ = figure_of(a_study(seeds=(1, 2)), "figure3", pass_at_k=metrics).axes
        thin = [line.get_ydata()[0] for line in easy.lines if line.get_linewidth() < 1]
        assert sorted(thin) == pytest.approx([0.60, 0.61, 0.90, 0.91])  # the base has no runs
        assert len(easy.lines) == 4 + 3

    def test_many_methods_have_a_panel_each_with_the_difference_from_the_base(self) -> None:
        names = ("grpo", "no_kl", "bnpo", "branch", "more")
        study = a_study(algorithms=names[:4])
        curves = EXHIBITS["figure3"].model_copy(update={"algorithms": [*names]})
        more = {"more": study.algorithms["bnpo"]}
        study = changed(study, more, exhibits={"figure3": curves})
        metrics = pass_at_k(
            (name, "easy", k, 0.5, 0.4, 0.6) for name in ("base", *names) for k in (1, 2, 4)
        )
        apart = comparisons(
            [(name, "base", "easy", k, 0.1 * k, 0.01) for name in names for k in (1, 2, 4)]
        )
        axes = figure_of(study, "figure3", pass_at_k=metrics, comparisons=apart).axes
        assert len(axes) == len(names)
        assert axes[3].get_title(loc="left") == "Branch"
        assert axes[3].lines[-1].get_ydata().tolist() == pytest.approx([10, 20, 40])

    def test_bands_over_all_k_say_where_a_method_falls_below_the_first(self) -> None:
        """GRPO solves half of 40 problems with every sample; the base solves one of 8 of each, so
        pass@k is k / 8 and above 1 / 2 from k = 5 on; Branch is GRPO."""
        right = {"base": [1] * 40, "grpo": [8, 0] * 20, "branch": [8, 0] * 20}
        counts = pd.DataFrame(
            {"algorithm": name, "problem_id": f"p{place:02}", "correct": count, "worked": count}
            | {"train_seed": int(name != "base"), "chance": [0.0] * 4}
            for name, own in right.items()
            for place, count in enumerate(own)
        ).assign(model="tiny", benchmark="easy", cluster="", stratum="", n_samples=8)
        bands = bands_from(counts, "grpo", 500)
        assert [*bands] == [("easy", "base"), ("easy", "branch")]
        base = bands["easy", "base"]
        assert base.value.tolist() == pytest.approx([k / 8 - 0.5 for k in range(1, 9)])
        assert (base.first, base.turned().first) == (1, 5)
        with matplotlib.rc_context(STYLE):
            shown = Given(a_study(), "figure3", (), Path(), {"counts": counts})
            easy, hard = kind_of(a_study(), "figure3").figures()["_apart"](shown).axes
        words = [text.get_text() for text in easy.get_legend().get_texts()]
        assert words[0].startswith("Base: above from k")
        assert words[1] == "Branch: nowhere below"
        assert easy.lines[1].get_ydata()[-1] == pytest.approx(50.0)
        assert [text.get_text() for text in hard.texts] == ["not evaluated"]

    def test_a_benchmark_without_rows_says_so(self) -> None:
        metrics = pass_at_k(row for row in METRICS if row[1] == "easy")
        _, hard = figure_of(a_study(), "figure3", pass_at_k=metrics).axes
        assert [text.get_text() for text in hard.texts] == ["not evaluated"]


class TestTradeoff:
    APART = comparisons(
        [
            (name, other, "easy", k, value, 0.01)
            for name, other, one, two in (
                ("grpo", "base", 0.02, 0.01),
                ("branch", "grpo", 0.03, 0.04),
                ("branch", "base", 0.05, 0.05),
            )
            for k, value in ((1, one), (2, two))
        ]
    )

    def study(self, seeds: tuple[int, ...] = (1,)) -> ResolvedStudy:
        shown = TradeoffFigure(kind="tradeoff", title="Both", model="tiny", k=2)
        return changed(a_study(seeds=seeds), exhibits={"tradeoff": shown})

    def drawn(self, apart: pd.DataFrame, seeds: tuple[int, ...] = (1,)) -> Axes:
        frames = {"pass_at_k": pass_at_k(METRICS, seeds=seeds), "comparisons": apart}
        return figure_of(self.study(seeds), "tradeoff", **frames).axes[0]

    def marks(self, easy: Axes) -> list[tuple[float, float]]:
        marks = [mark for mark in easy.collections if isinstance(mark, PathCollection)]
        return [
            tuple(map(float, place)) for mark in marks for place in np.asarray(mark.get_offsets())
        ]

    def test_a_method_stands_at_its_differences_from_the_first(self) -> None:
        easy = self.drawn(self.APART)
        places = [(3.0, 4.0), (-2.0, -1.0), (0.0, 0.0)]  # branch, the base, GRPO itself
        assert self.marks(easy) == [pytest.approx(place) for place in places]
        assert easy.get_xlabel() == "Δ pass@1 (points)"
        assert easy.get_ylabel() == "Δ pass@2 (points)"

    def test_titles_stand_beside_marks_and_cover_none(self) -> None:
        easy = self.drawn(self.APART)
        assert {text.get_text() for text in easy.texts} - {""} == {"GRPO", "Branch", "Base"}

    def test_a_base_that_is_far_away_is_an_arrow_with_its_numbers(self) -> None:
        apart = self.APART.copy()
        apart.loc[apart["algorithm"] == "grpo", ["value", "low", "high"]] = 0.9, 0.8, 1.0
        easy = self.drawn(apart)
        assert self.marks(easy) == [pytest.approx(place) for place in [(3.0, 4.0), (0.0, 0.0)]]
        texts = [text.get_text() for text in easy.texts]
        assert "Base: −90.0, −90.0" in texts
        assert easy.get_xlim()[0] > -50

    def test_arrows_to_what_is_far_away_stand_apart(self) -> None:
        """Two places in almost the same direction, at the left edge of a panel from -1 to 1."""
        figure, taken = Figure(), []
        limits = [(-1.0, 1.0), (-1.0, 1.0)]
        ends = [
            _point_to(figure.subplots(), np.array(place), limits, "#000000", taken)[1]
            for place in ([-9.0, 1.0], [-9.0, 1.1], [-9.0, 0.9])
        ]
        heights = sorted(height for _, height in ends)
        assert min(np.diff(heights)) > 0.09
        assert all(x == pytest.approx(-0.96) for x, _ in ends)
        assert _far(np.array([-9.0, 1.0]), limits)
        assert not _far(np.array([-2.0, 1.0]), limits)

    def test_single_runs_are_shown_where_there_are_several(self) -> None:
        apart = self.APART.copy()
        apart["train_seeds"] = [[1, 2]] * len(apart)
        apart["by_run"] = [[value - 0.01, value + 0.01] for value in apart["value"]]
        places = self.marks(self.drawn(apart, seeds=(1, 2)))
        assert len(places) == 3 + 2 * 2
        assert any(place == pytest.approx((2.0, 3.0)) for place in places)

    def test_intervals_are_those_of_methods_with_several_runs_if_there_are_any(self) -> None:
        apart, zero = self.APART.copy(), 2  # lines where x and y are 0
        assert len(self.drawn(apart).lines) == zero + 2 * 2
        once = apart["algorithm"] == "grpo"  # minus the base
        apart["train_seeds"] = [[1] if one else [1, 2] for one in once]
        apart["by_run"] = [
            [value] * (2 - one) for value, one in zip(apart["value"], once, strict=True)
        ]
        assert len(self.drawn(apart, seeds=(1, 2)).lines) == zero + 2

    def test_a_k_that_is_not_measured_is_refused(self) -> None:
        around = Surroundings({}, drawn=8, eval_seeds=2)
        for k, said in ((6, "not a power of two"), (32, "only 16 samples"), (16, None)):
            shown = TradeoffFigure(kind="tradeoff", title="Both", model="tiny", k=k)
            faults = [message for _, message in shown.faults(around)]
            assert (said is None) == (not faults)
            assert said is None or said in faults[0]


class TestTraining:
    def test_training_shows_what_was_recorded(self) -> None:
        axes = figure_of(a_study(), "training", histories=RECORDED).axes
        titles = [panel.get_title(loc="left") for panel in axes]
        assert titles == [
            "Training reward",
            "KL to the anchor",
            "Token entropy (nats)",
            "Gradient norm",
            "Guide factor (mean)",
        ]
        few = history_frame({("grpo", 1): history(5)})
        without = figure_of(a_study(), "training", histories=few).axes
        assert len(without) == 3

    @pytest.mark.parametrize(("gap", "shown"), [(4e-7, False), (0.01, True)])
    def test_the_samplers_gap_is_drawn_where_it_is_more_than_rounding(
        self, gap: float, shown: bool
    ) -> None:
        gaps = {"sampler_gap_mean": gap, "sampler_gap_max": 3.0, "sampler_clipped_share": 0.1}
        recorded = history_frame({("grpo", 1): history(5, **gaps)})
        axes = figure_of(a_study(), "training", histories=recorded).axes
        titles = {panel.get_title(loc="left") for panel in axes}
        panels = {
            "Gap of sampler to trainer (nats)",
            "Largest gap of a token (nats)",
            "Share of gaps above the cap",
        }
        assert titles & panels == (panels if shown else set())

    def test_a_line_is_the_mean_over_seeds_and_its_band_their_range(self) -> None:
        two = {("grpo", 1): history(20, kl=0.1), ("grpo", 2): history(20, kl=0.3)}
        two["grpo", 1][0]["kl"] = 0.1001
        _, panel, *_ = figure_of(a_study(), "training", histories=history_frame(two)).axes
        assert panel.lines[0].get_ydata().tolist() == pytest.approx([0.2] * 20, abs=1e-4)
        (band,) = panel.collections
        heights = band.get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max()) == pytest.approx((0.1, 0.3))
        low, high = panel.get_ylim()
        assert low < 0.1 < 0.3 < high

    def test_a_long_run_has_few_points(self) -> None:
        long = history_frame({("grpo", 1): history(1000)})
        axes = figure_of(a_study(), "training", histories=long).axes[0]
        steps = axes.lines[0].get_xdata()
        assert 50 < len(steps) < 70
        assert steps[-1] == 1000

    def test_training_without_histories_says_so(self) -> None:
        (axes,) = figure_of(a_study(), "training", histories=history_frame({})).axes
        assert [text.get_text() for text in axes.texts] == ["no training history"]


class TestTrajectory:
    def test_a_run_goes_from_checkpoint_to_checkpoint(self) -> None:
        (axes,) = figure_of(a_study(), "figure2", histories=RECORDED, accuracies=ACCURACIES).axes
        grpo, branch = axes.lines
        # Rewards rise by 0.01 a step; a twentieth of 20 steps is one: the step behind the
        # checkpoint, at the end the last one.
        assert grpo.get_xdata().tolist() == pytest.approx([0.01, 0.11, 0.20])
        assert grpo.get_ydata().tolist() == [0.30, 0.50, 0.60]
        assert branch.get_ydata().tolist() == [0.30, 0.70]
        assert axes.get_title(loc="left") == "Easy\nafter 0, 10, 20 steps"

    def test_the_base_is_marked_where_methods_start(self) -> None:
        (axes,) = figure_of(a_study(), "figure2", histories=RECORDED, accuracies=ACCURACIES).axes
        starts = [each for each in axes.collections if isinstance(each, PathCollection)]
        places = [np.asarray(start.get_offsets()).tolist() for start in starts]
        assert places == [[pytest.approx([0.01, 0.30])]] * 2

    def test_several_runs_are_thin_lines_behind_their_mean(self) -> None:
        two = pd.concat([ACCURACIES, ACCURACIES.assign(train_seed=2, value=0.1, low=0.0, high=0.3)])
        both = history_frame(HISTORIES | {(name, 2): history(20) for name, _ in HISTORIES})
        (axes,) = figure_of(a_study(), "figure2", histories=both, accuracies=two).axes
        one, other, mean, *_ = axes.lines
        assert [len(line.get_ydata()) for line in axes.lines] == [3, 3, 3, 2, 2, 2]
        assert one.get_linewidth() == other.get_linewidth() < 1 < mean.get_linewidth()
        assert mean.get_ydata().tolist() == pytest.approx([0.20, 0.30, 0.35])
        bars, _ = axes.collections[:2]
        assert [bar[:, 1].tolist() for bar in bars.get_segments()] == [
            pytest.approx([0.20, 0.45]),
            pytest.approx([0.25, 0.50]),
        ]
        assert not axes.texts

    def test_a_run_without_a_history_is_an_error(self) -> None:
        lacking = RECORDED[RECORDED["algorithm"] == "grpo"]
        with pytest.raises(ValueError, match="branch, seed 1: accuracies at checkpoints, but no"):
            figure_of(a_study(), "figure2", histories=lacking, accuracies=ACCURACIES)


class TestPerplexity:
    def test_every_response_is_a_dot_filled_where_it_is_correct(self) -> None:
        left, right = figure_of(a_study(), "figure7", **RESPONSES).axes
        assert left.get_title(loc="left") == "Problem 1 (p2)"
        assert left.get_xscale() == "log"
        filled, hollow, *branch = left.collections
        assert filled.get_offsets()[:, 0].tolist() == [2.0, 4.0]
        assert hollow.get_offsets()[:, 0].tolist() == [1.0, 3.0]
        assert branch[0].get_offsets()[:, 0].tolist() == [4.0, 8.0]
        assert len(filled.get_facecolor()) == 1
        assert len(hollow.get_facecolor()) == 0
        assert right.collections[0].get_offsets()[:, 0].tolist() == [20.0, 40.0]

    def test_boxes_hold_the_middle_half_and_the_line_is_the_bases_tail(self) -> None:
        left, _ = figure_of(a_study(), "figure7", **RESPONSES).axes
        base, branch = (box.get_path().get_extents() for box in left.patches)
        assert (base.x0, base.x1) == pytest.approx((1.75, 3.25))
        assert (branch.x0, branch.x1) == pytest.approx((3.5, 6.5))
        assert (base.y0 + base.y1, branch.y0 + branch.y1) == pytest.approx((0, 2))
        tail = left.lines[-1]
        assert list(tail.get_xdata()) == pytest.approx([3.85, 3.85])  # 3 + 0.85 of the last gap

    def test_rows_are_the_exhibits_that_were_read(self) -> None:
        left, _ = figure_of(a_study(), "figure7", **RESPONSES).axes
        assert [label.get_text() for label in left.get_yticklabels()] == ["Base", "Branch"]
        with pytest.raises(ValueError, match="figure7: no perplexities of base, grpo, branch"):
            figure_of(a_study(), "figure7", **RESPONSES | {"perplexities": PERPLEXITIES.iloc[:0]})


def test_paths_have_two_decimals_and_stay_in_their_place(tmp_path: Path) -> None:
    def draw() -> Figure:
        figure = Figure(figsize=(3, 2))
        figure.subplots().plot([0, 1, 2, 3], [0.123456, 0.9, -0.3, 1 / 3])
        return figure

    draw_figure(draw, tmp_path / "short.svg")
    with matplotlib.rc_context(STYLE):
        draw().savefig(tmp_path / "long.svg", format="svg")
    found = []
    for name in ("short.svg", "long.svg"):
        paths = re.findall(r' d="([^"]+)"', (tmp_path / name).read_text())
        found.append([float(n) for path in paths for n in re.findall(r"-?\d+(?:\.\d+)?", path)])
        decimals = [len(n) for path in paths for n in re.findall(r"\.(\d+)", path)]
        assert (max(decimals) <= 2) == (name == "short.svg")
    assert len(found[0]) == len(found[1]) > 20
    assert all(abs(ours - theirs) < 0.006 for ours, theirs in zip(*found, strict=True))


def test_a_legend_within_a_panel_hides_none_below(tmp_path: Path) -> None:
    def draw() -> Figure:
        figure = Figure(figsize=(3, 2), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], label="inside")
        axes.legend()
        figure.legend(axes.lines, ["GRPO"], loc="outside lower center")
        return figure

    draw_figure(draw, tmp_path / "both.svg")
    keys = {"GRPO": LineStyle("blue", (), "o")}
    html = figure_html((tmp_path / "both.svg").read_text(), "p", "a", keys)
    panels, legend = ElementTree.fromstring(f"<body>{html}</body>")
    assert len(panels) == 1
    assert ["".join(name.itertext()) for name in legend] == ["GRPO"]
