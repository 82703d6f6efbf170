"""A finished study's small files, kept as a reference run that `snakemake compare` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.reference_run import keep
from sage.tools.compare import read_reference, reference_file

pytestmark = [pytest.mark.timeout(4000)]


def test_a_finished_study_is_kept_with_what_made_it(smoke: Path, tmp_path: Path) -> None:
    keep(smoke, tmp_path, ["training"], "One run of each method.")
    assert (tmp_path / "training.svg").read_bytes() == (
        smoke / "report/figures/training.svg"
    ).read_bytes()
    assert (tmp_path / "index.html").read_bytes() == (smoke / "report/index.html").read_bytes()
    lines = (tmp_path / "manifests.jsonl").read_text().splitlines()
    stages = [json.loads(line)["stage"] for line in lines]
    assert stages.count("sample") == len(list(smoke.glob("samples/*/*/seed*/*.json"))) > 0
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["stages"]["rl"]["jobs"] == len(list(smoke.glob("models/*/*/seed*/manifest.json")))
    assert run["hardware"]["cores"] >= 1
    assert run["versions"]["torch"]
    assert run["note"] == "One run of each method."
    compared = pd.read_csv(tmp_path / "comparisons.csv")
    assert {"grpo"} <= {*compared["algorithm"]} | {*compared["other"]}
    steps = pd.read_csv(tmp_path / "histories.csv")
    assert {"step", "reward", "algorithm", "seed"} <= {*steps}
    kept, whole = (read_reference(reference_file(folder)) for folder in (tmp_path, smoke))
    assert len(kept) == len(whole) > 0


def test_an_unfinished_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not finished"):
        keep(tmp_path / "results", tmp_path / "kept", [], "")
