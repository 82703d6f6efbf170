"""What a finished smoke study holds, and the workflow's habits as a Snakemake workflow."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytest
from conftest import JOBS, SMOKE, copy_project, snakemake_in

from sage.problems.record import read_problems
from sage.study import ResolvedStudy
from sage.study.without_effect import WITHOUT_EFFECT
from sage.training.examples import read_solutions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(4000)]

CHEAP = "results/smoke/problems/arithmetic.jsonl"


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
    assert manifest["settings"]["rl"] == settings.model_dump(exclude=set(WITHOUT_EFFECT["rl"]))
    assert manifest["watch"] == settings.watch.model_dump()
    assert manifest["versions"]["trl"] == "1.16.0"
    assert manifest["tokens"] > 0
    assert 0.1 < manifest["peak_memory_gib"] < 4.0
    assert manifest["hardware"]["threads"] == 1


def test_what_is_asked_is_registered_before_training(smoke: Path) -> None:
    (entry,) = json.loads((smoke / "registered.json").read_text())
    assert (entry["trained"], entry["sampled"]) == (0, 0)
    for path in smoke.glob("models/*/*/seed*/manifest.json"):
        assert entry["time"] <= json.loads(path.read_text())["started"]
    page = (smoke / "report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<p>Registered before training (") > 1
    assert "primary k and problems were registered before training (" in page
    assert ": exploratory." not in page


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
    assert not re.search(r"""src=["']https?:|<link[^>]*https?:|url\(["']?https?:""", page)
    for row in smoke_study.methods("tiny")[1:]:
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
    # Exhibits that are measured with a model; theory, which is made of torch's tensors.
    assert loaded == {"measure": 4, "report": 1, "report_partial": 1}


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


def test_a_first_page_comes_before_all_other_runs(project: Path, smoke: Path) -> None:
    """Only GRPO and the guide that its headline names start to train before the page is begun."""
    assert (smoke / "report/partial.html").is_file()
    log = min((project / ".snakemake/log").glob("*.log")).read_text()  # of the run that made it
    started, _, after = log.partition("rule first_page:")
    trains = re.compile(r"rule rl:$.*?algorithm=([^,\s]+)", re.MULTILINE | re.DOTALL)
    first = trains.findall(started)
    assert {"grpo", "grpo_branch"} <= set(first)
    assert len(first) <= 3  # the second core may take one more run
    assert len(trains.findall(after)) > 5


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


@pytest.mark.parametrize("name", ["report", "figure5"])  # a rule, and what every report has
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
