"""Snakemake run again in the folder of the finished smoke study: what it makes anew, and when.

What edits or runs something in that folder is all in this file: tests of a file run one by one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, SMOKE, snakemake_in, undisturbed
from report_frames import changed

from sage.exhibits import load_study
from sage.study import ResolvedStudy
from sage.study.without_effect import WITHOUT_EFFECT, for_jobs, of_job

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(4000)]


def planned_rules(output: str) -> set[str]:
    """Rules in the job statistics of a dry run."""
    table = re.search(r"^job +count\n-.*?\n(.*?)\n\n", output, re.M | re.S)
    assert table, output
    return {line.split()[0] for line in table[1].splitlines()} - {"total", "all"}


@pytest.mark.slow
def test_a_job_with_imports_of_its_own_writes_the_same_bytes(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "sage"
    with undisturbed(project):
        shutil.copytree(project, copy, symlinks=True)
    run, smoke = "tiny_full/grpo_branch/seed3407", copy / "results/smoke"
    samples = smoke / f"samples/{run}/arithmetic.parquet"
    files = [smoke / f"models/{run}/model.safetensors", samples]
    shared = [file.read_bytes() for file in files]
    shutil.rmtree(smoke / "models" / run)
    shutil.rmtree(samples.parent)
    alone = snakemake_in(copy, SAGE_SHARED_IMPORTS="off")
    target = str(samples.parent.relative_to(copy))
    done = alone("--cores", "1", "--config", "study=smoke", "--", target)
    assert done.returncode == 0, done.stdout
    assert [file.read_bytes() for file in files] == shared


@pytest.mark.slow
def test_the_partial_page_of_a_finished_study_shows_the_same_numbers(
    project: Path, smoke: Path
) -> None:
    """Both pages are made by the same functions, whatever was there when they were made."""
    done = snakemake_in(project)("report_partial", "--cores", "1", *SMOKE)
    assert done.returncode == 0, done.stdout
    whole, part = smoke / "report", smoke / "partial/report"
    for kind in ("tables/*.json", "tables/*.csv", "figures/*.svg"):
        names = {path.name for path in whole.glob(kind)}
        assert names
        assert names == {path.name for path in part.glob(kind)}
        for path in whole.glob(kind):
            assert path.read_bytes() == (part / path.parent.name / path.name).read_bytes(), path
    assert pd.read_csv(smoke / "metrics/claims.csv").equals(
        pd.read_csv(smoke / "partial/metrics/claims.csv")
    )
    assert "Not run." not in (whole / "partial.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("target", "rules"),
    [
        ("theory", {"theory": 1}),
        ("contamination", {"problems": 5, "contamination": 1}),
        ("figure2", {"rl": 2, "measure_with_model": 1, "figure2": 1}),
    ],
)
def test_an_exhibit_by_name_waits_for_what_it_needs_alone(
    target: str, rules: dict[str, int], tmp_path: Path
) -> None:
    asked = (target, "--config", "study=smoke", f"results={tmp_path}")
    planned = snakemake_in(ROOT)("-n", "--nolock", *asked).stdout
    jobs = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", planned, re.M)}
    assert "report" not in jobs
    assert {rule: jobs.get(rule) for rule in rules} == rules
    assert ("rl" in jobs) is ("rl" in rules)


@pytest.mark.slow
def test_an_exhibit_by_name_is_as_in_the_report(project: Path, smoke: Path) -> None:
    shutil.rmtree(smoke / "partial/report", ignore_errors=True)
    done = snakemake_in(project)("table1", "--cores", "1", *SMOKE)
    assert done.returncode == 0, done.stdout
    made = [*(smoke / "partial/report").rglob("*.*")]
    assert made
    for path in made:
        assert path.read_bytes() == (smoke / path.relative_to(smoke / "partial")).read_bytes()
    assert "partial/report/tables/table1.csv" in done.stdout


@pytest.mark.slow
def test_compare_fails_where_a_run_differs_from_the_kept_run(
    project: Path, smoke: Path, tmp_path: Path
) -> None:
    """A kept run of five seeds beside the study's own, and one that lies 50 points above."""
    metrics = pd.read_parquet(smoke / "metrics/pass_at_k.parquet")
    columns = ["model", "algorithm", "benchmark", "metric", "k", "value", "n_problems"]
    own = metrics.loc[metrics["train_seed"] > 0, columns]
    for shift, says in ((0.0, "agrees with the kept run"), (0.5, "differs from it")):
        runs = [
            own.assign(train_seed=seed, value=(own["value"] + shift + 0.01 * (seed - 1)).clip(0, 1))
            for seed in range(1, 6)
        ]
        pd.concat(runs).to_csv(tmp_path / "pass_at_k.csv", index=False)
        done = snakemake_in(project)("compare", "--cores", "1", *SMOKE, f"kept={tmp_path}")
        assert (done.returncode == 0) == (shift == 0.0), done.stdout
        assert says in done.stdout
    done = snakemake_in(project)("compare", "--cores", "1", *SMOKE, "kept=nowhere")
    assert "nowhere: no pass_at_k.csv" in done.stdout


def test_a_second_run_has_nothing_to_do(project: Path) -> None:
    done = snakemake_in(project)("--cores", "2", *SMOKE)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout


AFTER_RL = {"rl", "first_page", "sample", "measure_with_model", "report"}


def planned_after(project: Path, edits: dict[str, tuple[str, str]]) -> str:
    """What a dry run prints after edits of files (text by text), which are then taken back."""
    before = {name: (project / name).read_text() for name in edits}
    times = {name: (project / name).stat() for name in edits}
    with undisturbed(project):
        try:
            for name, (old, new) in edits.items():
                assert old in before[name]
                (project / name).write_text(before[name].replace(old, new, 1))
            return snakemake_in(project)("-n", *SMOKE).stdout
        finally:
            for name, text in before.items():
                (project / name).write_text(text)
                os.utime(project / name, (times[name].st_atime, times[name].st_mtime))


STUDY = "config/studies/smoke.yaml"
CODE = ("from __future__", "# edited\nfrom __future__")
SAVED = "      checkpoint_every: 2\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "edit", "rules"),
    [
        ("sage/training/anchoring.py", CODE, AFTER_RL),
        ("sage/sampling/distribution.py", CODE, AFTER_RL),
        ("sage/report/page.py", CODE, {"report"}),
        ("sage/exhibits/curves.py", CODE, {"report"}),
        ("sage/runtime/files.py", CODE, set()),
        (STUDY, ("\ntitle: ", "\ntitle: More. "), {"report"}),
        (STUDY, ("title: Accuracy and coverage", "title: Coverage"), {"report"}),
        ("config/claims.yaml", ("claim: ", "claim: Now, "), {"report"}),
        (STUDY, (SAVED, SAVED.replace("2", "3")), {"report"}),  # which lists all settings
    ],
)
def test_an_edit_reruns_what_depends_on_it_alone(
    project: Path, file: str, edit: tuple[str, str], rules: set[str]
) -> None:
    output = planned_after(project, {file: edit})
    if rules:
        assert planned_rules(output) == rules
    else:
        assert "Nothing to be done" in output


def input_functions(**names: Any) -> SimpleNamespace:
    """The functions of workflow/rules/inputs.smk, plain Python; `names` are what they use."""
    exec((ROOT / "workflow/rules/inputs.smk").read_text(encoding="utf-8"), names)
    return SimpleNamespace(**names)


def test_what_changes_no_result_is_no_parameter_of_a_job(smoke_study: ResolvedStudy) -> None:
    of = SimpleNamespace(model="tiny", algorithm="grpo", benchmark="arithmetic")
    inputs = input_functions(STUDY=smoke_study)
    settings = smoke_study.model("tiny").rl.model_dump()
    assert inputs.rl_settings(of) == {
        k: v for k, v in settings.items() if k not in WITHOUT_EFFECT["rl"]
    }
    row = smoke_study.algorithms["grpo"].model_dump()
    assert inputs.algorithm_settings(of) == row | {"title": ""}
    assert inputs.problem_set(of) == smoke_study.problem_set("arithmetic") | {"title": ""}


def test_a_model_with_another_engine_reruns_no_sampling_of_others(
    smoke_study: ResolvedStudy,
) -> None:
    model = smoke_study.model("tiny")
    with_vllm = smoke_study.study.evaluation.model_copy(update={"engine": "vllm"})
    models = smoke_study.study.models | {
        "other": model.model_copy(update={"evaluation": with_vllm})
    }
    inputs = input_functions(STUDY=changed(smoke_study, models=models))
    inputs.sampling_code.__globals__["code_of"] = lambda *modules: modules
    engines = {
        name: inputs.sampling_code(SimpleNamespace(model=name))[2:] for name in ("tiny", "other")
    }
    assert engines == {
        "tiny": ("sage.sampling.transformers_engine",),
        "other": ("sage.sampling.vllm_engine",),
    }


def test_settings_without_effect_reach_jobs_in_the_environment() -> None:
    asked = ["rl.watch.patience=3", "rl.vllm_sleep=true", "evaluation.shard_size=7"]
    environment = for_jobs(load_study("smoke", ROOT / "config", asked))
    rl = of_job("tiny", "rl", environment)
    assert (rl["watch"]["patience"], rl["checkpoint_every"], rl["vllm_sleep"]) == (3, 2, True)
    assert of_job("tiny", "evaluation", environment) == {"shard_size": 7}
    assert of_job("tiny", "sft", environment).keys() == {"checkpoint_every"}


@pytest.mark.slow
def test_editing_titles_draws_and_trains_nothing(project: Path) -> None:
    titles = {STUDY: ("title: Sums (2-3 terms)", "title: Sums")}
    titles["config/algorithms.yaml"] = ("title: GRPO", "title: G")
    assert not planned_rules(planned_after(project, titles)) & {"problems", "rl", "sample"}


@pytest.mark.slow
def test_snakemakes_own_report_holds_tables_and_figures(project: Path) -> None:
    done = snakemake_in(project)("--report", "snakemake-report.html", *SMOKE)
    assert done.returncode == 0, done.stdout
    page = (project / "snakemake-report.html").read_text(encoding="utf-8")
    for shown in ("table1.csv", "figure3.svg", "Accuracy and coverage"):
        assert shown in page


@pytest.mark.slow
def test_a_finished_study_is_verified_and_archived(project: Path, smoke: Path) -> None:
    snakemake, table = snakemake_in(project), smoke / "report/tables/table1.csv"
    before, times = table.read_bytes(), table.stat()
    with undisturbed(project):
        try:
            whole = snakemake("verify", "--cores", "1", *SMOKE)
            assert whole.returncode == 0, whole.stdout
            assert re.search(
                r"results/smoke: \d+ files of \d+ jobs compared: all match", whole.stdout
            )
            table.write_bytes(before + b"x")
            changed = snakemake("verify", "--cores", "1", *SMOKE)
            assert changed.returncode == 1
            assert "report/tables/table1.csv changed\n" in changed.stdout
        finally:
            table.write_bytes(before)
            os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
        packed = snakemake("archive", "--cores", "1", *SMOKE)
        assert packed.returncode == 0, packed.stdout
    with zipfile.ZipFile(smoke / "archive/smoke.crate.zip") as archive:
        names = set(archive.namelist())
    assert {"ro-crate-metadata.json", "Snakefile", "results/smoke/report/index.html"} <= names
    assert not [name for name in names if "/base/" in name and name.endswith(".safetensors")]


def test_every_job_has_a_record(smoke: Path) -> None:
    records = [json.loads(path.read_text()) for path in smoke.glob("provenance/jobs/**/*.json")]
    made = {path for record in records for path in record["outputs"]}
    kept = {"models", "samples", "evaluation", "metrics", "problems", "report"}
    for path in smoke.rglob("*.parquet"):
        inside = path.relative_to(smoke.parents[1])
        if inside.parts[2] in kept:
            assert {part.as_posix() for part in (inside, *inside.parents)} & made, path
    assert all(len(record["settings_sha256"]) == 64 for record in records)
