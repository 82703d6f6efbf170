"""The workflow end to end on the smoke study, and its habits as a Snakemake workflow."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from collections import Counter
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import JOBS, ROOT, copy_project, snakemake_in, undisturbed

from sage.problems.record import read_problems
from sage.study import ResolvedStudy
from sage.study.watch import Watch, for_jobs, of_job
from sage.training.examples import read_solutions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(4000)]

SMOKE = ("--config", "study=smoke")
CHEAP = "results/smoke/problems/arithmetic.jsonl"


def planned_rules(output: str) -> set[str]:
    """Rules in the job statistics of a dry run."""
    table = re.search(r"^job +count\n-.*?\n(.*?)\n\n", output, re.M | re.S)
    assert table, output
    return {line.split()[0] for line in table[1].splitlines()} - {"total", "all"}


def policies(study: ResolvedStudy, smoke: Path) -> dict[str, Path]:
    (seed,) = study.study.seeds
    names = study.trained("tiny")
    return {name: smoke / "models" / "tiny" / name / f"seed{seed}" for name in names}


def test_every_problem_set_has_the_asked_size(smoke: Path, smoke_study: ResolvedStudy) -> None:
    sizes = {p.stem: len(read_problems(p)) for p in (smoke / "problems").glob("*.jsonl")}
    sets = smoke_study.study.problems
    assert sizes == {
        name: s.count if s.source == "arithmetic" else s.per_size * len(s.people)
        for name, s in sets.items()
    }


def test_examples_for_sft_are_a_file_of_their_own(smoke: Path, smoke_study: ResolvedStudy) -> None:
    solutions = read_solutions(smoke / "models/tiny/examples.jsonl")
    settings = smoke_study.model("tiny").sft
    assert settings
    assert len({solution.problem for solution in solutions}) > 1
    assert len(solutions) == settings.examples


def test_every_run_has_one_history_row_per_step(smoke: Path, smoke_study: ResolvedStudy) -> None:
    for name, folder in policies(smoke_study, smoke).items():
        rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(
            range(1, smoke_study.model("tiny").rl.steps + 1)
        )
        for row in rows:
            assert 0.0 <= row["reward"] <= 1.0
            assert row["entropy"] >= 0.0
            assert ("kl" in row) == (smoke_study.algorithms[name].kl != "none")
            assert ("q_mean" in row) == (smoke_study.algorithms[name].guide is not None)
            assert 0.6 <= row.get("q_min", 1.0) <= row.get("q_max", 1.0) <= 1.4 + 1e-6


def test_algorithms_share_their_parent_and_end_apart(
    smoke: Path, smoke_study: ResolvedStudy
) -> None:
    weights = {}
    for name, folder in policies(smoke_study, smoke).items():
        adapter = json.loads((folder / "adapter_config.json").read_text())
        assert adapter["base_model_name_or_path"] == "results/smoke/models/tiny/base"
        weights[name] = (folder / "adapter_model.safetensors").read_bytes()
    guided = [name for name in weights if name.startswith("grpo") and "kl" not in name]
    assert len({weights[name] for name in guided}) == len(guided) > 4
    history = (policies(smoke_study, smoke)["grpo"] / "history.jsonl").read_text().splitlines()
    if any(json.loads(row)["reward"] > 0 for row in history[:-1]):
        # Before the first reward the policy is the reference, and its KL term has no gradient.
        main = smoke_study.model("tiny").algorithms
        assert len({weights[name] for name in main}) == len(main)
    # One process and one part a step: the local batch is the global one, and on policy no ratio
    # reaches a clip, so TRL's bnpo and dapo are the same computation.
    assert weights["bnpo_no_kl"] == weights["dapo_no_kl"]
    assert weights["bnpo_branch"] == weights["dapo_branch"]
    assert weights["bnpo_branch"] != weights["bnpo_no_kl"]


def test_manifests_say_how_a_result_was_made(smoke: Path, smoke_study: ResolvedStudy) -> None:
    manifest = json.loads((policies(smoke_study, smoke)["grpo"] / "manifest.json").read_text())
    settings = smoke_study.model("tiny").rl
    assert manifest["settings"]["rl"] == settings.model_dump(exclude={"watch"})
    assert manifest["watch"] == settings.watch.model_dump()
    assert manifest["versions"]["trl"] == "1.16.0"
    assert manifest["tokens"] > 0
    assert 0.1 < manifest["peak_memory_gib"] < 4.0
    assert manifest["hardware"]["threads"] == 1


def test_samples_are_complete_and_graded(smoke: Path, smoke_study: ResolvedStudy) -> None:
    asked = {
        (model, row, benchmark)
        for model in smoke_study.study.models
        for row, benchmark in smoke_study.evaluated(model)
    }
    files = sorted((smoke / "samples").rglob("*.parquet"))
    assert {(file.parts[-4], file.parts[-3], file.stem) for file in files} == asked
    assert len(files) == len(asked)
    for file in files:
        settings = smoke_study.evaluation(file.parts[-4])
        samples = pd.read_parquet(file)
        problems = {p.problem_id for p in read_problems(smoke / f"problems/{file.stem}.jsonl")}
        counts = samples.groupby("problem_id").size()
        assert set(counts.index) == problems
        assert set(counts) == {settings.samples * len(settings.seeds)}
        assert samples["n_tokens"].between(1, settings.sampling.max_tokens).all()
        assert set(samples["status"]) <= {"correct", "wrong", "unparsed", "timeout"}
        assert file.with_suffix(".json").is_file()


def test_metrics_are_probabilities_that_grow_with_k(
    smoke: Path, smoke_study: ResolvedStudy
) -> None:
    metrics = pd.read_parquet(smoke / "metrics" / "pass_at_k.parquet")
    for_a_figure_of_training = {"grpo_learned"}
    sampled = {"base", *smoke_study.algorithms} - for_a_figure_of_training
    assert set(metrics["algorithm"]) == sampled
    assert (metrics["low"] <= metrics["value"]).all()
    assert (metrics["value"] <= metrics["high"]).all()
    for _, curve in metrics.groupby(["model", "algorithm", "train_seed", "benchmark"]):
        assert curve.sort_values("k")["value"].is_monotonic_increasing


def test_the_report_is_whole_and_says_what_it_is(smoke: Path, smoke_study: ResolvedStudy) -> None:
    page = (smoke / "report" / "index.html").read_text(encoding="utf-8")
    assert smoke_study.study.title in page
    assert "It is not the paper" in page
    assert page.count("<svg") >= 2
    assert not re.search(r"""(?:src|href)=["']https?:""", page)
    for row in smoke_study.rows("tiny")[1:]:
        assert smoke_study.algorithms[row].title in page
    for exhibit in smoke_study.study.exhibits.values():
        assert exhibit.title in page
    assert (smoke / "report/tables/table1.tex").read_text().count(r"\toprule") == 1


WITH_A_MODEL = {"pretrain", "sft", "rl", "sample"}


def jobs_of(project: Path) -> list[dict[str, Any]]:
    """What each job took: its script, processor seconds, heavy libraries, whether it was forked."""
    jobs: dict[str, dict[str, Any]] = {}
    for line in map(json.loads, (project / JOBS).read_text().splitlines()):
        empty = {"script": line["job"].split(".")[1], "seconds": 0, "heavy": set(), "forked": False}
        job = jobs.setdefault(line["job"], empty)
        job["seconds"] += line["seconds"]
        job["heavy"] |= {*line["heavy"]}
        job["forked"] |= line["forked"]
    return list(jobs.values())


def test_jobs_without_a_model_load_no_torch(project: Path, capsys: pytest.CaptureFixture) -> None:
    """Nor transformers; but what the theory computes with the guides themselves does."""
    light = [job for job in jobs_of(project) if job["script"] not in WITH_A_MODEL]
    loaded = Counter(job["script"] for job in light if {"torch", "transformers"} & job["heavy"])
    # Five exhibits are measured with a model; four of the theory are made of torch's tensors.
    assert loaded == {"measure": 5, "exhibit": 4}
    free = [job["seconds"] for job in light if "torch" not in job["heavy"]]
    with capsys.disabled():
        print(f"\n{len(free)} jobs without a model: median {median(free):.2f} s of processor")
    assert median(free) < 4  # about 1 s on an idle machine; torch alone takes 2 to 4


@pytest.mark.skipif(sys.platform != "linux", reason="imports are shared on Linux only")
def test_jobs_with_a_model_share_their_imports(
    project: Path, capsys: pytest.CaptureFixture
) -> None:
    heavy = [job for job in jobs_of(project) if job["script"] in ("rl", "sample")]
    with capsys.disabled():
        for name in ("rl", "sample"):
            seconds = [job["seconds"] for job in heavy if job["script"] == name]
            print(f"\n{len(seconds)} {name} jobs: median {median(seconds):.2f} s of processor")
    assert all(job["forked"] for job in heavy)


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
    samples.unlink()
    alone = snakemake_in(copy, SAGE_SHARED_IMPORTS="off")
    target = str(samples.relative_to(copy))
    done = alone("--cores", "1", "--config", "study=smoke", "--", target)
    assert done.returncode == 0, done.stdout
    assert [file.read_bytes() for file in files] == shared


def test_logs_hold_the_output_of_the_jobs(smoke: Path) -> None:
    log = (smoke / "logs/models/tiny/grpo/seed3407.log").read_text()
    assert "rewards/correct/mean" in log


def test_checkpoints_are_cleared_away(smoke: Path) -> None:
    assert not list((smoke / "scratch").rglob("*.safetensors"))


def test_a_model_without_sft_starts_from_the_parent_it_names(smoke: Path) -> None:
    parent = smoke / "models/tiny/base/model.safetensors"
    for model in ("tiny_long", "tiny_full"):
        adopted = smoke / f"models/{model}/base/model.safetensors"
        assert adopted.read_bytes() == parent.read_bytes()
    (full,) = (smoke / "models/tiny_full").glob("grpo_branch/seed*")
    assert (full / "model.safetensors").is_file()  # every weight, and no adapter
    assert not (full / "adapter_config.json").exists()


def test_snapshots_are_kept_for_the_exhibits_that_show_them(smoke: Path) -> None:
    (seed,) = (smoke / "models/tiny/grpo").glob("seed*")
    assert {path.name for path in (seed / "snapshots").iterdir()} == {"step2", "step4"}
    trajectory = pd.read_parquet(smoke / "metrics/figure2/accuracies.parquet")
    assert sorted(set(trajectory["step"])) == [0, 2, 4]
    assert set(trajectory["algorithm"]) == {"grpo", "grpo_no_kl"}
    assert trajectory["value"].between(0.0, 1.0).all()


@pytest.mark.slow
def test_only_a_limit_of_the_users_wakes_the_scheduler_over_and_over(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "sage")
    snakefile = folder / "Snakefile"
    call = "    let_scheduler_sleep()\n"
    shown = f"{call}    print('limits:', bool(workflow.scheduler.job_rate_limiter))\n"
    snakefile.write_text(snakefile.read_text().replace(call, shown))
    run, wanted = snakemake_in(folder), ("--forcerun", "problems", "--cores", "1", *SMOKE)
    assert "limits: False\n" in run(*wanted, "--", CHEAP).stdout
    limited = run("--max-jobs-per-timespan", "7/2s", *wanted, "--", CHEAP)
    assert "limits: True\n" in limited.stdout
    assert limited.returncode == 0


@pytest.mark.parametrize("name", ["page", "figure5"])  # a rule, and what every report has
def test_no_exhibit_can_take_the_name_of_a_rule(tmp_path: Path, name: str) -> None:
    folder = copy_project(tmp_path / "sage")
    study = folder / "config/studies/smoke.yaml"
    study.write_text(study.read_text().replace("\n  training: {", f"\n  {name}: {{"))
    done = snakemake_in(folder)("-n", *SMOKE)
    assert done.returncode == 1
    assert (
        f"exhibits.{name}: this name is reserved for a rule or for an exhibit of every"
        in done.stdout
    )


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


@pytest.mark.slow
def test_compare_fails_where_a_run_differs_from_its_reference(
    project: Path, smoke: Path, tmp_path: Path
) -> None:
    """A reference of five runs around the study's own, and one that lies 50 points above."""
    metrics = pd.read_parquet(smoke / "metrics/pass_at_k.parquet")
    columns = ["model", "algorithm", "benchmark", "metric", "k", "value", "n_problems"]
    own = metrics.loc[metrics["train_seed"] > 0, columns]
    for shift, says in ((0.0, "agrees with the reference"), (0.5, "differs from it")):
        runs = [
            own.assign(train_seed=seed, value=own["value"] + shift + 0.01 * (seed - 3))
            for seed in range(1, 6)
        ]
        pd.concat(runs).to_csv(tmp_path / "pass_at_k.csv", index=False)
        done = snakemake_in(project)("compare", "--cores", "1", *SMOKE, f"reference={tmp_path}")
        assert (done.returncode == 0) == (shift == 0.0), done.stdout
        assert says in done.stdout
    done = snakemake_in(project)("compare", "--cores", "1", *SMOKE, "reference=nowhere")
    assert "nowhere: no pass_at_k.csv" in done.stdout


def test_a_second_run_has_nothing_to_do(project: Path) -> None:
    done = snakemake_in(project)("--cores", "2", *SMOKE)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout


SHOWN = {"table", "figure", "page"}
OF_SAMPLES = {"metrics", "measure", "measure_with_model", "excerpts", "claims", *SHOWN}
AFTER_RL = {"sample", *OF_SAMPLES}


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


def planned_files(output: str, rule: str) -> set[str]:
    """First output files of the jobs of a rule in a dry run, by their names."""
    found = re.findall(rf"^rule {rule}:\n(?:    .*\n)*?    output: ([^,\n]+)", output, re.M)
    return {Path(path).name for path in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "rules"),
    [
        ("sage/training/anchoring.py", {"rl", *AFTER_RL}),
        ("sage/training/stopwatch.py", {"measure_with_model", "table", "claims", "page"}),
        ("sage/sampling/distribution.py", {"rl", *AFTER_RL}),
        ("sage/report/page.py", {"page"}),
        ("sage/exhibits/kind.py", SHOWN),
        ("sage/runtime/files.py", set()),
    ],
)
def test_editing_a_module_reruns_what_depends_on_it(
    project: Path, module: str, rules: set[str]
) -> None:
    output = planned_after(project, {module: ("from __future__", "# edited\nfrom __future__")})
    if rules:
        assert planned_rules(output) == rules
    else:
        assert "Nothing to be done" in output


def test_editing_the_code_of_a_figure_redraws_its_figures_only(project: Path) -> None:
    edit = ("from __future__", "# edited\nfrom __future__")
    output = planned_after(project, {"sage/exhibits/curves.py": edit})
    assert planned_rules(output) == {"figure", "page"}
    assert planned_files(output, "figure") == {"figure3.svg", "figure4.svg", "figure6.svg"}


@pytest.mark.slow
def test_editing_a_notice_or_a_claim_reads_no_samples(project: Path) -> None:
    study = "config/studies/smoke.yaml"
    assert planned_rules(planned_after(project, {study: ("\ntitle: ", "\ntitle: More. ")})) == {
        "page"
    }
    claim = ("claim: ", "claim: Now, ")
    output = planned_after(project, {"config/claims.yaml": claim})
    assert planned_rules(output) == {"claims", "page"}


def input_functions(name: str, **names: Any) -> SimpleNamespace:
    """The functions of a file of workflow/inputs that is plain Python; `names` are what it uses."""
    exec((ROOT / f"workflow/inputs/{name}.smk").read_text(encoding="utf-8"), names)
    return SimpleNamespace(**names)


def test_what_changes_no_result_is_no_parameter_of_a_job(smoke_study: ResolvedStudy) -> None:
    of = SimpleNamespace(model="tiny", algorithm="grpo", benchmark="arithmetic")
    training = input_functions("train", STUDY=smoke_study)
    settings = smoke_study.model("tiny").rl.model_dump()
    assert training.rl_settings(of) == {k: v for k, v in settings.items() if k != "watch"}
    row = smoke_study.algorithms["grpo"].model_dump()
    assert training.algorithm_settings(of) == row | {"title": ""}
    problems = input_functions("data", STUDY=smoke_study).problem_set(of)
    assert problems == smoke_study.problem_set("arithmetic") | {"title": ""}


def test_a_model_with_another_engine_reruns_no_sampling_of_others(
    smoke_study: ResolvedStudy,
) -> None:
    model = smoke_study.model("tiny")
    with_vllm = smoke_study.study.evaluation.model_copy(update={"engine": "vllm"})
    models = smoke_study.study.models | {
        "other": model.model_copy(update={"evaluation": with_vllm})
    }
    study = smoke_study.study.model_copy(update={"models": models})
    study = smoke_study.model_copy(update={"study": study})
    inputs = input_functions("evaluate", STUDY=study, code_of=lambda *modules: modules)
    engines = {
        name: inputs.sampling_code(SimpleNamespace(model=name))[1:] for name in ("tiny", "other")
    }
    assert engines == {
        "tiny": ("sage.sampling.transformers_engine",),
        "other": ("sage.sampling.vllm_engine",),
    }


def test_limits_of_warnings_reach_jobs_in_the_environment() -> None:
    watch = Watch(patience=3, stop=["zero_reward"])
    assert of_job("other", for_jobs({"tiny": Watch(), "other": watch})) == watch


@pytest.mark.slow
def test_editing_limits_of_warnings_or_titles_draws_and_trains_nothing(project: Path) -> None:
    study, rows = "config/studies/smoke.yaml", "config/algorithms.yaml"
    watch = ("      checkpoint_every: 2\n", "      checkpoint_every: 2\n      watch: {stop: []}\n")
    assert planned_rules(planned_after(project, {study: watch})) == {"page"}  # lists all settings
    titles = {study: ("title: Sums (2-3 terms)", "title: Sums"), rows: ("title: GRPO", "title: G")}
    assert not planned_rules(planned_after(project, titles)) & {"problems", "rl", "sample"}


@pytest.mark.slow
def test_editing_the_title_of_an_exhibit_makes_its_tables_again(project: Path) -> None:
    edit = ("title: Accuracy and coverage", "title: Coverage")
    output = planned_after(project, {"config/studies/smoke.yaml": edit})
    assert planned_rules(output) == {"table", "page"}
    assert planned_files(output, "table") == {"table1.csv", "table1_reading.csv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "study=smok"), "did you mean 'smoke'"),
        (("--config", "studdy=smoke"), "did you mean 'study'"),
        (("--config", "study=smoke", "device=gpu"), "device"),
    ],
)
def test_a_bad_setting_stops_the_run_before_any_job(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = snakemake_in(copy_project(tmp_path / "sage"))("--cores", "1", *arguments)
    assert done.returncode == 1
    assert message in done.stdout
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "sage" / "results").exists()


def test_a_bad_study_names_file_key_value_and_remedy(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "sage")
    study = folder / "config/studies/smoke.yaml"
    study.write_text(study.read_text().replace("grpo_no_kl, ", "grpo_nokl, "))
    done = snakemake_in(folder)("--cores", "1", *SMOKE)
    assert done.returncode == 1
    assert "config/studies/smoke.yaml" in done.stdout
    assert "models.tiny.algorithms[1]: 'grpo_nokl'" in done.stdout
    assert "did you mean 'grpo_no_kl'" in done.stdout


@pytest.mark.slow
def test_snakemakes_own_report_holds_tables_and_figures(project: Path) -> None:
    done = snakemake_in(project)("--report", "snakemake-report.html", *SMOKE)
    assert done.returncode == 0, done.stdout
    page = (project / "snakemake-report.html").read_text(encoding="utf-8")
    for shown in ("table1.csv", "figure3.svg", "Pass@1 and pass@K of every method"):
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
            assert "table1.csv: changed since its job ended" in changed.stdout
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
    kept = {"models", "samples", "metrics", "problems", "report"}
    for path in smoke.rglob("*.parquet"):
        if path.relative_to(smoke).parts[0] in kept and path.parent.parent.name != "metrics":
            inside = f"results/smoke/{path.relative_to(smoke).as_posix()}"
            folder = f"results/smoke/{path.parent.relative_to(smoke).as_posix()}"
            assert {inside, folder} & made, path
    assert all(len(record["settings_sha256"]) == 64 for record in records)
