"""A finished study's small files, kept in a folder that `snakemake compare` reads."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

from sage.tools.command import main as command
from sage.tools.keep import check, keep, kept_runs, labels, recomputed, refresh
from sage.tools.kept_run import kept_file, read_kept

CLAIM = re.compile(r'id="claim-(\w+)">\s*<summary><span class="verdict [^"]*">([^<]*)</span>')
"""A claim of a page and its verdict in words."""

pytestmark = [pytest.mark.timeout(4000)]


def test_a_finished_study_is_kept_with_what_made_it(smoke: Path, tmp_path: Path) -> None:
    keep(smoke, tmp_path, ["training"], "One run of each method.")
    assert (tmp_path / "training.svg").read_bytes() == (
        smoke / "report/figures/training.svg"
    ).read_bytes()
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'class="file" href="([^"]+)"', page)
    assert {"table1.csv", "claims.csv", "training.svg"} <= set(links)
    assert all((tmp_path / link).is_file() for link in links)
    without = re.compile(r'<a class="file"[^>]*>|</a>')
    whole_page = (smoke / "report/index.html").read_text(encoding="utf-8")
    assert without.sub("", page) == without.sub("", whole_page)
    lines = gzip.decompress((tmp_path / "manifests.jsonl.gz").read_bytes()).splitlines()
    stages = [json.loads(line)["stage"] for line in lines]
    assert stages.count("sample") == len(list(smoke.glob("samples/*/*/seed*/*.json"))) > 0
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["stages"]["rl"]["jobs"] == len(list(smoke.glob("models/*/*/seed*/manifest.json")))
    assert run["hardware"]["cores"] >= 1
    assert run["versions"]["torch"]
    assert run["note"] == "One run of each method."
    compared = pd.read_csv(tmp_path / "comparisons.csv.gz")
    assert {"grpo"} <= {*compared["algorithm"]} | {*compared["other"]}
    steps = pd.read_csv(tmp_path / "histories.csv.gz")
    assert {"step", "reward", "algorithm", "seed"} <= {*steps}
    kept, whole = (read_kept(kept_file(folder)) for folder in (tmp_path, smoke))
    assert len(kept) == len(whole) > 0


def test_an_unknown_figure_leaves_no_folder(smoke: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nofig"):
        keep(smoke, tmp_path / "kept", ["training", "nofig"], "")
    assert not (tmp_path / "kept").exists()


def test_verdicts_follow_from_the_kept_counts_alone(smoke: Path, tmp_path: Path) -> None:
    keep(smoke, tmp_path, [], "")
    assert check(tmp_path) == []
    table = (tmp_path / "table1.csv").read_text()
    (tmp_path / "table1.csv").write_text("edited")
    refresh(tmp_path)
    assert (tmp_path / "table1.csv").read_text() == table
    claims = recomputed(tmp_path)["claims"]
    assert {"accuracy_and_coverage", "further_benchmark"} <= {*claims["claim"]}
    assert claims["effect"].notna().any()
    counts = pd.read_parquet(tmp_path / "counts.parquet")
    assert {*counts.loc[counts["benchmark"] == "arithmetic", "worked"].isna()} == {False}
    solved = counts["algorithm"] == "grpo"
    counts.assign(correct=counts["correct"].mask(solved, counts["n_samples"])).to_parquet(
        tmp_path / "counts.parquet"
    )
    faults = check(tmp_path)
    assert any(fault.startswith("claims.csv: effect differs in ") for fault in faults)
    assert any(fault.startswith("pass_at_k.csv: value differs in ") for fault in faults)


BEFORE_COUNTS = {"first_world", "smollm"}
"""Runs kept before their counts were."""


@pytest.mark.slow
def test_numbers_of_every_kept_run_follow_from_its_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = {path.parent.name for path in ROOT.glob("reports/*/*/run.json")}
    assert folders - BEFORE_COUNTS == {folder.name for folder in kept_runs()}
    assert command(["keep", "--check"]) == 0
    assert capsys.readouterr().out.count("follow from counts") == len(folders - BEFORE_COUNTS)


@pytest.mark.slow
def test_a_kept_run_is_written_anew_from_its_counts(tmp_path: Path) -> None:
    """Intervals by another rule are replaced, doses stay, and the page is drawn again."""
    kept, folder = ROOT / "reports/dose/dose", tmp_path / "dose"
    shutil.copytree(kept, folder)
    names = ("comparisons.csv.gz", "pass_at_k.csv", "dose_plus.csv", "dose_minus_slopes.csv")
    for name in names:
        table = pd.read_csv(folder / name)
        table.assign(low=table["low"] - 0.01).to_csv(folder / name, index=False)
    assert check(folder)
    refresh(folder)
    refresh(folder)
    assert check(folder) == []
    for name in names:
        pd.testing.assert_frame_equal(pd.read_csv(folder / name), pd.read_csv(kept / name))


def test_the_page_of_a_kept_run_is_drawn_from_what_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "mini/mini"
    shutil.copytree(ROOT / "reports/mini/mini", folder)
    shutil.copy(ROOT / "reports/known.jsonl", tmp_path)
    (folder / "index.html").unlink()
    assert command(["keep", "--page", str(folder)]) == 0
    page = (folder / "index.html").read_text(encoding="utf-8")
    said, rows = dict(CLAIM.findall(page)), pd.read_csv(folder / "claims.csv")
    verdicts = rows.drop_duplicates("claim").set_index("claim")["verdict"]
    named = labels(folder)
    assert {*said} == {name for name in named if verdicts[name] != "not run"}
    for name, text in said.items():
        assert text.startswith(verdicts[name])
        assert (named[name] in text) == (named[name] != "registered")
    assert any("known since" in text for text in said.values())
    links = set(re.findall(r'class="file" href="([^"]+)"', page))
    assert {"claims.csv", "table1.csv", "strata.svg"} <= links
    assert all((folder / link).is_file() for link in links)
    assert not [path for path in (tmp_path, ROOT, Path.home()) if str(path) in page]


def test_numbers_of_claims_are_written_anew_and_their_words_stay(tmp_path: Path) -> None:
    kept, folder = ROOT / "reports/sizes/sizes_rivals", tmp_path / "sizes_rivals"
    shutil.copytree(kept, folder)
    text = (kept / "claims.csv").read_text(encoding="utf-8")
    low = str(pd.read_csv(kept / "claims.csv", dtype=str)["low"].dropna().iloc[0])
    text = text.replace(low, "0.5", 1).replace("inconclusive", "supported")
    (folder / "claims.csv").write_text(text, encoding="utf-8")
    faults = check(folder)
    columns = ["low", "test_verdict", "place_verdict", "verdict"]
    assert [one.split()[1] for one in faults] == columns
    refresh(folder)
    assert check(folder) == []
    pd.testing.assert_frame_equal(
        pd.read_csv(folder / "claims.csv"), pd.read_csv(kept / "claims.csv")
    )


def test_results_that_were_edited_are_not_kept(smoke: Path, tmp_path: Path) -> None:
    results = tmp_path / "smoke"
    shutil.copytree(smoke, results)
    (results / "models/tiny/base/model.safetensors").unlink()  # is not kept
    keep(results, tmp_path / "kept", [], "")
    table = results / "report/tables/table1.csv"
    table.write_text(table.read_text().replace("0.", "1.", 1))
    with pytest.raises(ValueError, match=rf"{table} changed; `sage-rlvr run smoke` makes it"):
        keep(results, tmp_path / "kept", [], "")


def test_a_table_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "reports/sizes/sizes_rivals", tmp_path, dirs_exist_ok=True)
    (tmp_path / "claims.csv").unlink()
    assert check(tmp_path) == ["claims.csv: is missing"]


def test_an_unfinished_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["keep", str(tmp_path / "results"), str(tmp_path / "kept")]) == 1
    assert "is not finished" in capsys.readouterr().err
    assert command(["keep", "--refresh", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("sage-rlvr keep: ")


def test_a_folder_without_its_study_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(["keep", "--check", str(tmp_path)])
    assert f"{tmp_path} has no study.json" in capsys.readouterr().err
