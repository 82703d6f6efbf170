"""An algorithm, guide, benchmark, model and kind of table, added as config/README.md shows it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import ROOT, snakemake_in, undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(4000)]


def indented(text: str, width: int) -> str:
    return "".join(" " * width + line for line in text.splitlines(keepends=True))


@pytest.fixture(scope="module")
def grown(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy of the smoke study, with its results, after all four; and what the run printed."""
    folder = tmp_path_factory.mktemp("growth") / "sage"
    with undisturbed(project):
        shutil.copytree(project, folder)
    page = (ROOT / "config/README.md").read_text(encoding="utf-8")
    python = re.findall(r"```python\n(.+?)```", page, re.S)
    yamls = re.findall(r"```yaml\n(.+?)```", page, re.S)
    (guide,) = [text for text in python if "class Bold" in text]
    (kind,) = [text for text in python if "class Lengths" in text]
    (algorithm,) = [text for text in yamls if "my_guides:Bold" in text]
    model, problems, exhibit = (
        next(text for text in yamls if text.startswith(f"{section}:"))
        for section in ("models", "problems", "exhibits")
    )
    (folder / "my_guides.py").write_text(guide, encoding="utf-8")
    (folder / "my_tables.py").write_text(kind, encoding="utf-8")
    with open(folder / "config/algorithms.yaml", "a", encoding="utf-8") as file:
        file.write(algorithm)
    study = folder / "config/studies/smoke.yaml"
    text = study.read_text(encoding="utf-8")
    table = (
        "  table10: {kind: accuracy, title: Grown, model: tiny_grown, benchmarks: [knights_five]}\n"
    )
    for place, addition in (
        ("\nmodels:\n", "\n" + problems.removeprefix("problems:\n")),
        (
            "\nexhibits:\n",
            "\n" + model.removeprefix("models:\n").replace("tiny_full", "tiny_grown"),
        ),
        ("\nseeds:", "\n" + table + exhibit.removeprefix("exhibits:\n")),
    ):
        assert text.count(place) == 1
        text = text.replace(place, addition + place)
    text = text.replace("grpo_token, grpo_branch]", "grpo_token, grpo_branch, grpo_bold]", 1)
    study.write_text(text, encoding="utf-8")
    done = snakemake_in(folder)("--cores", "2", "--config", "study=smoke")
    assert done.returncode == 0, done.stdout
    return folder, done.stdout


def test_only_what_is_new_is_trained_and_sampled(grown: tuple[Path, str]) -> None:
    _, printed = grown
    counts = dict(re.findall(r"^(\w+) +(\d+)$", printed, re.M))
    assert (counts["rl"], counts["sample"], counts["adopt"]) == ("2", "3", "1")
    assert not {"pretrain", "sft"} & counts.keys()


def test_the_report_grows_by_a_row_and_a_table(grown: tuple[Path, str]) -> None:
    report = grown[0] / "results/smoke/report"
    assert "GRPO + Bold" in pd.read_csv(report / "tables/table1.csv").to_string()
    assert (report / "tables/table10.csv").is_file()
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "GRPO + Bold" in page
    assert 'id="exhibit-table10"' in page


def test_a_kind_of_table_of_ones_own_is_shown_everywhere(grown: tuple[Path, str]) -> None:
    folder, _ = grown
    snakemake, study = snakemake_in(folder), ("--config", "study=smoke")
    report = folder / "results/smoke/report"
    shown = pd.read_csv(report / "tables/lengths.csv").set_index("algorithm")["tokens"]
    samples = pd.read_parquet(folder / "results/smoke/samples/tiny/base/seed0/arithmetic.parquet")
    assert shown["base"] == pytest.approx(samples["n_tokens"].mean())
    assert r"\caption{Mean length of completions.}" in (report / "tables/lengths.tex").read_text()
    assert snakemake("report_partial", "--cores", "1", *study).returncode == 0
    for name in ("index.html", "partial.html"):
        page = (report / name).read_text(encoding="utf-8")
        section = page[page.index('id="exhibit-lengths"') :]
        assert f'<td class="word">{shown["base"]:.3g}</td>' in section
    assert snakemake("--report", "mine.html", *study).returncode == 0
    assert "report/tables/lengths.csv" in (folder / "mine.html").read_text()


def test_editing_a_kind_of_ones_own_measures_and_shows_it_again(grown: tuple[Path, str]) -> None:
    folder, _ = grown
    with open(folder / "my_tables.py", "a", encoding="utf-8") as file:
        file.write("\n# another thought\n")
    planned = snakemake_in(folder)("--dry-run", "--config", "study=smoke").stdout
    counts = dict(re.findall(r"^(\w+) +(\d+)$", planned, re.M))
    assert counts["report"] == "1"
    assert not {"rl", "sample", "measure_with_model"} & counts.keys()


def test_a_guide_of_ones_own_shapes_the_anchor(grown: tuple[Path, str]) -> None:
    run = grown[0] / "results/smoke/models/tiny/grpo_bold/seed3407"
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert all(1.0 < row["q_mean"] < row["q_max"] <= 1.2 for row in rows)


def test_editing_a_guide_trains_its_rows_again(grown: tuple[Path, str]) -> None:
    folder, _ = grown
    with open(folder / "my_guides.py", "a", encoding="utf-8") as file:
        file.write("\n# another thought\n")
    planned = snakemake_in(folder)("--dry-run", "--config", "study=smoke").stdout
    assert dict(re.findall(r"^(\w+) +(\d+)$", planned, re.M))["rl"] == "1"
