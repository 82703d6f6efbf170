"""Keeps the small files of a finished study as a reference run, and what made them.

    python -m benchmarks.reference_run results/mini reports/reference/mini --figure tradeoff

The folder gets the page, every table as CSV, the figures that it names as SVG, the claims, and
pass@k of every training run (`pass_at_k.csv`, which `snakemake compare` reads). `comparisons.csv`
has the differences of its methods, `histories.csv` the steps of training, if a table or figure
`training` was made. The manifests of all jobs are in `manifests.jsonl`; `run.json` has what they
say together: the commit, the machine, the versions, and the number and seconds of jobs by stage.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from sage.results import Results
from sage.runtime.files import write_json_atomic, write_text_atomic

CURVES = ["model", "algorithm", "train_seed", "benchmark", "metric", "k", "value", "low", "high"]
CURVES += ["n_problems", "n_samples"]
"""Columns of pass_at_k.csv."""

DIFFERENCES = ["model", "benchmark", "algorithm", "other", "metric", "k", "value", "low", "high"]
DIFFERENCES += ["p", "p_holm", "n_problems", "n_seeds"]
"""Columns of comparisons.csv."""

OF_ALL = ("git_commit", "hardware", "versions")
"""What the manifests of one run agree on; where they do not, `run.json` lists each value."""


def keep(results: Path, target: Path, figures: list[str], note: str) -> None:
    """Write the reference run `target` from the finished study in `results`.

    Raises FileNotFoundError for a study that is not finished, or for an unknown figure.
    """
    places = Results(results)
    if not places.page.exists():
        raise FileNotFoundError(f"{places.page}: the study is not finished; run it to its page")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(places.page, target / "index.html")
    for table in sorted(places.table("*").parent.glob("*.csv")):
        shutil.copyfile(table, target / table.name)
    for name in figures:
        shutil.copyfile(places.figure(name), target / f"{name}.svg")
    shutil.copyfile(places.metrics("claims", "csv"), target / "claims.csv")
    _write(target / "pass_at_k.csv", pd.read_parquet(places.metrics("pass_at_k"), columns=CURVES))
    compared = pd.read_parquet(places.metrics("comparisons"), columns=DIFFERENCES)
    _write(target / "comparisons.csv", compared)
    for histories in results.glob("metrics/training/histories.parquet"):
        _write(target / "histories.csv", pd.read_parquet(histories))
    lines = (json.dumps({"stage": stage} | one) + "\n" for stage, one in _manifests(results))
    write_text_atomic(target / "manifests.jsonl", "".join(lines))
    write_json_atomic(target / "run.json", summary(results) | {"note": note})


def _write(path: Path, table: pd.DataFrame) -> None:
    text = table.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    write_text_atomic(path, text)


def summary(results: Path) -> dict[str, Any]:
    """What made a study: `OF_ALL`, first start and last end, jobs and seconds by stage."""
    manifests = list(_manifests(results))
    content: dict[str, Any] = {}
    for key in OF_ALL:
        values = {json.dumps(_without_threads(one[key]), sort_keys=True) for _, one in manifests}
        found = [json.loads(value) for value in sorted(values)]
        content[key] = found[0] if len(found) == 1 else found
    stages: dict[str, dict[str, float]] = {}
    for stage, one in manifests:
        entry = stages.setdefault(stage, {"jobs": 0, "seconds": 0.0})
        entry["jobs"] += 1
        entry["seconds"] = round(entry["seconds"] + one["wall_seconds"], 1)
    return content | {
        "started": min(one["started"] for _, one in manifests),
        "ended": max(one["ended"] for _, one in manifests),
        "stages": stages,
        "peak_memory_gib": max(one["peak_memory_gib"] for _, one in manifests),
    }


def _manifests(results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every job's manifest that a reference run counts, with the stage that it belongs to."""
    for path in sorted(results.glob("models/*/*/manifest.json")):
        yield {"base": "sft"}.get(path.parent.name, path.parent.name), _read(path)
    for path in sorted(results.glob("models/*/*/seed*/manifest.json")):
        yield "rl", _read(path)
    for path in sorted(results.glob("samples/*/*/seed*/*.json")):
        yield "sample", _read(path)
    for path in sorted(results.glob("metrics/*/manifest.json")):
        yield path.parent.name, _read(path)


def _without_threads(value: Any) -> Any:
    """`value` without what each job is given of a machine."""
    if not isinstance(value, dict):
        return value
    return {key: entry for key, entry in value.items() if key != "threads"}


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def main() -> None:
    """Read the command line and keep the reference run."""
    parser = argparse.ArgumentParser(description="Keep a finished study as a reference run.")
    parser.add_argument("results", type=Path, help="results/{study}")
    parser.add_argument("target", type=Path, help="the folder to write")
    parser.add_argument("--figure", action="append", default=[], help="a figure to keep as SVG")
    parser.add_argument("--note", default="", help="what the numbers do not show")
    given = parser.parse_args()
    keep(given.results, given.target, given.figure, given.note)


if __name__ == "__main__":
    main()
