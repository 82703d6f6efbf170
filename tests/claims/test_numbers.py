"""Numbers of texts are those of kept tables, which are computed by a machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from scipy import stats

from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.rendering.numbers import p_text
from sage.tools import keep
from workflow import alignment_tables, fill_numbers, kept_tables, strata_figure, verdict_tables

PAGES = [ROOT / "README.md", ROOT / "reports/README.md", *sorted(ROOT.glob("reports/*/README.md"))]


def words_of(page: Path) -> int:
    """Words that a reader meets, without the list of tables at the end."""
    text = fill_numbers.LINKS.sub("", page.read_text(encoding="utf-8"))
    return len(re.sub(r"<!--.*?-->", "", text).split())


@pytest.mark.lint
def test_every_number_is_that_of_its_table() -> None:
    assert [fault for file in fill_numbers.texts() for fault in fill_numbers.faults(file)] == []
    filled = [file for file in fill_numbers.texts() if "<!--n:" in file.read_text(encoding="utf-8")]
    assert len(filled) >= 12


def test_a_changed_digit_is_named_with_its_span_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept.csv").write_text("claim,effect,low,high\na,-0.188,-0.232,-0.144\nb,1,0,2\n")
    text = (
        "Lost: <!--n:kept.csv,claim=a,points--><!--/n-->,\nor <!--n:kept.csv,claim=b,p--><!--/n-->"
    )
    monkeypatch.setattr(fill_numbers, "ROOT", tmp_path)
    fill_numbers.table_of.cache_clear()
    filled = fill_numbers.filled(text.partition(",\n")[0])
    assert re.sub("<.*?>", "", filled) == "Lost: \u221218.8 points (\u221223.2 to \u221214.4)"
    assert fill_numbers.filled(filled) == filled
    (tmp_path / "README.md").write_text("One.\n" + filled.replace("18.8", "18.9"))
    assert fill_numbers.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "README.md, line 2: span `kept.csv,claim=a,points` says '\u221218.9 points" in said
    assert "its table '\u221218.8 points (\u221223.2 to \u221214.4)'; run `make numbers`" in said
    fill_numbers.table_of.cache_clear()


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("kept.csv,claim=c,points", "0 rows of kept.csv have claim=c, not one"),
        ("kept.csv,claims=a,points", "kept.csv has no column 'claims', only claim, effect"),
        ("kept.csv,claim=a,pints", "no form 'pints'; there are points"),
        ("kept.csv,claim=a,percent:share", "KeyError: 'share'"),
        ("lost.csv,claim=a,points", "FileNotFoundError"),
    ],
)
def test_a_span_without_a_number_says_why(
    query: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept.csv").write_text("claim,effect,low,high\na,-0.188,-0.232,-0.144\n")
    monkeypatch.setattr(fill_numbers, "ROOT", tmp_path)
    fill_numbers.table_of.cache_clear()
    with pytest.raises(ValueError, match=f"span `{re.escape(query)}`: .*{re.escape(fault)}"):
        fill_numbers.value(query)
    fill_numbers.table_of.cache_clear()


def numbers_of(text: str) -> list[float]:
    return [float(one.replace("\u2212", "-")) for one in re.findall(r"[+\u2212]?\d+\.?\d*", text)]


def below(p: float | str) -> bool:
    return str(p).startswith("<") or float(p) < 0.05


@pytest.mark.parametrize("form", ["points", "effect", "aside", "interval", "change"])
def test_an_interval_of_a_kept_table_that_leaves_out_0_does_so_in_every_text(form: str) -> None:
    shown = 0
    for file in sorted([*ROOT.glob("reports/**/*.csv"), *ROOT.glob("reports/**/*.csv.gz")]):
        table = pd.read_csv(file)
        for low in [name for name in table if name == "low" or name.endswith("_low")]:
            high = low.removesuffix("low") + "high"
            if high not in table or not pd.api.types.is_numeric_dtype(table[low]):
                continue
            for ends in table[[low, high]].dropna().drop_duplicates().to_numpy():
                row = {"low": ends[0], "high": ends[1], "value": ends.mean()}
                if abs(ends).max() < 10:  # not nats, counts and seconds
                    said = numbers_of(fill_numbers.FORMS[form](row, "value"))[-2:]
                    assert [*np.sign(said)] == [*np.sign(np.where(abs(ends) < 1e-11, 0, ends))]
                    shown += 1
        for name in {"p", "p_holm"} & {*table}:
            ps = pd.to_numeric(table[name], errors="coerce").dropna().unique()
            assert [below(p_text(p)) for p in ps] == [p < 0.05 for p in ps], (file, name)
    assert shown > 1000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_result_is_typed_by_hand(page: Path) -> None:
    """A signed number, an interval or a share with a decimal is a result."""
    bare = fill_numbers.SPAN.sub("", page.read_text(encoding="utf-8"))
    bare = re.sub(r"^```.*?^```|`[^`]*`|\]\([^)]*\)", "", bare, flags=re.M | re.S)
    assert re.findall(r"[+\u2212]\d+(?:\.\d+)?(?: points)?|\d+\.\d+ ?%|\d+ of \d+\b", bare) == []


@pytest.mark.slow
def test_derived_tables_follow_from_counts() -> None:
    for path, table in (kept_tables.tables() | verdict_tables.tables()).items():
        kept, new = (pd.read_csv(path), table.reset_index(drop=True))
        pd.testing.assert_frame_equal(kept, new, rtol=1e-4, check_dtype=False)


def test_what_a_text_cites_is_adjusted_over_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept.csv").write_text(
        "claim,effect,low,high,p,runs\na,0.1,0.02,0.18,0.02,5\nb,0.1,0.01,0.19,0.03,5\n"
        "c,0.1,0.05,0.15,,5\n"
    )
    cited = ("a,points", "b,effect", "a,aside", "c,points", "a,p", "a,point")  # a interval once
    text = " ".join(f"<!--n:kept.csv,claim={one}-->x<!--/n-->" for one in cited)
    monkeypatch.setattr(fill_numbers, "ROOT", tmp_path)
    fill_numbers.table_of.cache_clear()
    table = verdict_tables.findings(text).set_index("query")
    fill_numbers.table_of.cache_clear()
    assert table["p_holm"].iloc[:2].tolist() == pytest.approx([0.04, 0.04])
    error = 0.05 / stats.t.ppf(0.975, 4)
    assert table["p"].iloc[2] == pytest.approx(2 * stats.t.sf(0.1 / error, 4))
    assert table.loc["all", ["n", "clear", "by_chance"]].tolist() == pytest.approx([3, 3, 0.15])


def test_verdicts_are_counted_apart_by_registration() -> None:
    labels = pd.Series([True, True, False, False])
    asked = pd.DataFrame({"registered": labels, "note": [np.nan, "weak", np.nan, np.nan]})
    asked["verdict"] = ["supported", "inconclusive", "supported", "not run"]
    counts = verdict_tables.verdicts(asked).set_index(["label", "verdict"])["claims"]
    for label, found in {
        "registered": (1, 2, 1),
        "exploratory": (1, 1, 0),
        "all": (2, 3, 1),
    }.items():
        at = [counts[label, one] for one in ("supported", "tested", "dose too small")]
        assert tuple(at) == found


def test_the_contrasts_beside_a_claim_are_those_of_the_claim() -> None:
    """Every difference over all strata is the one that its claim was judged by."""
    beside = pd.read_csv(ROOT / "reports/contrasts.csv").query("part == 'all'")
    judged = pd.read_csv(ROOT / "reports/claims.csv").query("unit == 'points'")
    found = beside.merge(judged, on=["run", "claim"], suffixes=("", "_claim"))
    ks = found["says"].str.extract(r"pass@(\d+)( with correct working)?: ")
    metric = np.where(ks[1].isna(), "pass@k", "worked@k")
    single = ~found["run"].isin(["mini/mini"])  # its claims may be means over problem sets
    same = found[(found["k"] == ks[0].astype(int)) & (found["metric"] == metric) & single]
    assert len(same) > 40
    np.testing.assert_allclose(same["value"], same["effect"], atol=1e-4)
    np.testing.assert_allclose(same["low"], same["low_claim"].clip(lower=-1), atol=0.002)


def test_early_stopping_is_read_between_moments() -> None:
    assert kept_tables.early_line([0.4, 0.2], [0.5, 0.6], 0.3) == pytest.approx(0.55)
    assert kept_tables.early_line([0.2, 0.4], [0.6, 0.5], 0.9) == pytest.approx(0.5)


def test_the_mean_over_problems_is_the_difference_from_the_early_stop() -> None:
    rng = np.random.default_rng(0)
    path, own, n, k = np.sort(rng.integers(0, 9, (3, 20)), axis=0), rng.integers(2, 7, 20), 8, 4
    trained = np.arange(20) < 8
    accuracy, coverage, beyond = kept_tables.beside_stops(own, path, n, k, trained)
    coverages = pass_at_k(n, path, np.array([k]))[..., 0].mean(axis=1)
    early = kept_tables.early_line(path[:, trained].mean(axis=1) / n, coverages, accuracy)
    assert accuracy == pytest.approx(own[trained].mean() / n)
    assert beyond.mean() == pytest.approx(coverage - early)


def test_a_prediction_is_held_against_placebos_and_against_the_size_of_the_dose() -> None:
    effects = np.array([-0.08, -0.03, -0.01, 0.02, 0.05, 0.09])
    table = pd.DataFrame({"effect": effects, "predicted": effects / 4, "dose": np.abs(effects)})
    table = table.assign(
        run="alignment", model="sums", algorithm=[*"abcdef"], base=[*"xxxyyy"], gap=-effects
    )
    for name, column in {"_low": "predicted", "_high": "predicted"}.items():
        table[f"predicted{name}"] = table[column]
    table = table.assign(predicted_1=effects, predicted_alike=effects)
    drawn = np.random.default_rng(0).normal(size=(200, 6))
    placebos = pd.concat(
        pd.DataFrame(
            {**table.loc[i, alignment_tables.KEYS], "draw": range(200), "a_k": drawn[:, i]}
        )
        for i in range(6)
    )
    judged = alignment_tables.summary(table, placebos).query("part == 'all'")
    rows = judged.set_index("statistic")
    assert rows.loc["spearman", ["value", "low", "high"]].tolist() == pytest.approx([1.0] * 3)
    assert rows.loc["spearman", "p"] < 0.02
    assert abs(rows.loc["spearman", "placebo"]) < 0.1
    assert rows.loc["agreement", "value"] == 1.0
    assert rows.loc["agreement", "p"] < 0.1
    assert rows.loc["always_up", "value"] == 0.5
    assert rows.loc["spearman_dose", "value"] < 0.5
    assert rows.loc["spearman_gap", "value"] == pytest.approx(-1.0)
    turned = table.assign(predicted=-table["predicted"])
    turned = alignment_tables.summary(turned, placebos).query("part == 'all'")
    assert turned.set_index("statistic").loc["agreement", ["value", "p"]].tolist() == [0.0, 1.0]


REGISTERED = {"bases/bases", "long/long", "long/long_bases", "rivals/rivals"}
REGISTERED |= {
    "pretrained/pretrained",
    "pretrained/pretrained_plain",
    "pretrained/pretrained_short",
}
REGISTERED |= {"sizes/sizes_large", "support/support", "support/support_bases"}
REGISTERED |= {"alignment/fitted", "dose/matched", "mini/distinct", "early_stopping/rates"}
"""Runs whose claims the pages call registered."""


@pytest.mark.parametrize("run", sorted(REGISTERED))
def test_claims_called_registered_were_so_before_training(run: str) -> None:
    folder = ROOT / "reports" / run
    claims = pd.read_csv(folder / "claims.csv").query("role == 'primary' and verdict != 'not run'")
    assert len(claims)
    assert {keep.labels(folder)[name] for name in claims["claim"]} == {"registered"}


def test_the_figure_is_that_of_the_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata_figure, "FILE", tmp_path / "strata.svg")
    strata_figure.main()
    assert (tmp_path / "strata.svg").read_bytes() == (ROOT / "reports/strata.svg").read_bytes()


def test_pages_can_be_read_in_minutes() -> None:
    limits = {ROOT / "README.md": 700, ROOT / "reports/README.md": 1200}
    limits[ROOT / "reports/paper/README.md"] = 750  # five tests and their pools
    assert [page for page in PAGES if words_of(page) > limits.get(page, 600)] == []


def test_the_study_of_alignment_can_be_run_again() -> None:
    study = load_study(str(ROOT / "reports/alignment/study.yaml"), ROOT / "config")
    assert {exhibit.kind for exhibit in study.study.exhibits.values()} == {"guide_dose"}
