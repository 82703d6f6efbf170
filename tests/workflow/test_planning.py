"""The plan of a study: counts from its settings, times from what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, snakemake_in
from study_edits import FOLLOW_UPS, STUDIES

from sage.claims.tests import load_claims, read_claims
from sage.exhibits import load_study
from sage.results import Results
from sage.study.written import extended
from sage.tools.check.gpu_memory import gpu_memory
from sage.tools.plan import Stage, costs, plan
from sage.tools.plan_text import (
    exhibit_lines,
    memory_hints,
    questions,
    render_plan,
    time_hints,
    total,
    uncounted,
)


def stages(study: str, results: Path) -> dict[tuple[str, str], Stage]:
    loaded = load_study(study, ROOT / "config")
    return {(stage.name, stage.model): stage for stage in plan(loaded, Results(results))}


def test_jobs_and_tokens_are_those_of_the_settings(tmp_path: Path) -> None:
    found = stages("smoke", tmp_path)
    sft, rl, sample = (found[name, "tiny"] for name in ("sft", "rl", "sample"))
    assert (sft.jobs, sft.tokens) == (1, 48 * 192)
    assert (rl.jobs, rl.tokens) == (12, 12 * 4 * 4 * 8 * 24)
    # 7 rows on three sets of 6, 6 and 6 problems, 4 more on the first, 3 on 4 problems, a cell
    assert (sample.jobs, sample.tokens) == (12, (7 * 18 + 5 * 6 + 3 * 4) * 4 * 24)
    assert ("sft", "tiny_full") not in found


def test_hours_come_from_manifests_else_from_a_kept_run_else_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    kept = stages("smoke", tmp_path)["rl", "tiny"]
    run = json.loads((ROOT / "benchmarks/smoke_time.json").read_text())
    speed = run["planned_tokens"]["rl"] / sum(run["job_seconds"]["rl"])
    assert kept.tokens_per_second == pytest.approx(speed)
    assert "benchmarks/smoke_time.json" in kept.source
    monkeypatch.chdir(tmp_path)
    assert stages("smoke", tmp_path)["rl", "tiny"].hours is None
    loaded = load_study("smoke", ROOT / "config")
    text = render_plan(loaded, plan(loaded, Results(tmp_path)))
    assert "unknown" in text
    assert " 0.00" not in text
    for row, seconds in (("grpo", 10.0), ("grpo_no_kl", 30.0)):
        manifest = tmp_path / f"models/tiny/{row}/seed3407/manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"tokens": 1000, "wall_seconds": seconds}))
    half = tmp_path / "models/tiny/grpo_random/seed3407/manifest.json"
    half.parent.mkdir(parents=True)
    half.write_text('{"tokens": 1000, ')
    rl = stages("smoke", tmp_path)["rl", "tiny"]
    assert rl.tokens_per_second == pytest.approx(50.0)
    assert rl.hours == pytest.approx(rl.tokens / 50.0 / 3600)


def test_the_speed_of_training_is_that_of_completions_without_their_prompts(tmp_path: Path) -> None:
    """A manifest of RL counts prompts; plans count completions."""
    folder = tmp_path / "models/tiny/grpo/seed3407"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"tokens": 1000, "wall_seconds": 10.0}))
    (folder / "history.jsonl").write_text('{"drawn_tokens": 100}\n{"drawn_tokens": 300}\n')
    assert stages("smoke", tmp_path)["rl", "tiny"].tokens_per_second == pytest.approx(30.0)


def test_a_model_of_another_size_has_no_kept_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    wider = ["models.tiny.base.architecture.hidden_size=64"]
    study = load_study("smoke", ROOT / "config", wider)
    found = {(stage.name, stage.model): stage for stage in plan(study, Results(tmp_path))}
    assert found["rl", "tiny"].tokens_per_second is None


def test_a_study_has_the_speed_of_the_one_it_extends_for_models_of_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    mini, sizes = (load_study(name, ROOT / "config") for name in ("mini", "sizes"))
    speeds = {
        stage.model: stage.tokens_per_second
        for stage in plan(sizes, Results(tmp_path), [mini])
        if stage.name == "rl"
    }
    known = {s.tokens_per_second for s in plan(mini, Results(tmp_path)) if s.name == "rl"}
    assert {speeds["sums"], speeds["small_third"]} == known
    assert speeds["middle_first"] is speeds["large_first"] is None


@pytest.mark.parametrize(
    ("rl_gib", "sample_gib", "hint"),
    [
        (0.5, 0.3, "4 GB; rl has used at most 0.5 GB so far: memory_gb 1 is enough"),
        (0.5, 2.2, None),  # 4 GB are 1.7 times what sampling takes
        (
            0.5,
            3.5,
            "sample has used at most 3.8 GB so far, which is close to the limit: set memory_gb",
        ),
        (None, None, None),
    ],
)
def test_requests_for_memory_are_held_against_the_highest_peak(
    rl_gib: float | None, sample_gib: float | None, hint: str | None, tmp_path: Path
) -> None:
    for place, peak in (
        ("models/tiny/grpo/seed3407/manifest.json", rl_gib),
        ("samples/tiny/grpo/seed3407/arithmetic.json", sample_gib),
    ):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(json.dumps({"peak_memory_gib": peak}))
    hints = memory_hints(stages("smoke", tmp_path).values())
    assert len(hints) == (hint is not None)
    assert hint is None or hint in hints[0]


@pytest.mark.parametrize("study", [*STUDIES, *FOLLOW_UPS])
def test_every_study_has_a_plan(study: str, tmp_path: Path) -> None:
    loaded = load_study(FOLLOW_UPS.get(study, study), ROOT / "config")
    assert loaded.name == study
    text = render_plan(loaded, plan(loaded, Results(tmp_path)))
    assert all(model in text for model in loaded.study.models)
    assert "Total: " in text


@pytest.mark.parametrize("study", ["mini", "smoke", "smollm_vllm"])
def test_studies_that_were_measured_have_times(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert all(stage.hours for stage in stages(study, tmp_path).values())


def test_huge_numbers_are_questioned(tmp_path: Path) -> None:
    loaded = load_study("smoke", ROOT / "config", ["evaluation.samples=1000000000"])
    rows = plan(loaded, Results(tmp_path))
    assert "check evaluation.samples" in "\n".join(questions(rows))
    assert questions(plan(load_study("paper", ROOT / "config"), Results(tmp_path))) == []


def test_five_runs_of_what_claims_compare_cost_what_the_file_says(tmp_path: Path) -> None:
    paper, runs = (load_study(name, ROOT / "config") for name in ("paper", "paper_runs"))
    assert extended("paper_runs", ROOT / "config") == ROOT / "config/studies/paper.yaml"
    assert extended("paper", ROOT / "config") is None
    header = (ROOT / "config/studies/paper_runs.yaml").read_text().partition("extends:")[0]
    for study in (paper, runs):
        hours = re.search(r"([\d,]+) h on GPUs", total(plan(study, Results(tmp_path))))
        assert hours
        assert hours[1] in header
    claims = load_claims(ROOT / "config/claims.yaml").values()
    for test in (test for claim in claims for test in (claim.primary, *claim.secondary)):
        for row in {test.method, test.other} - {"base"}:
            assert len(runs.seeds(runs.study.exhibits[test.exhibit].model, row)) == 5
            assert row in runs.trained(runs.study.exhibits[test.exhibit].model), row
    assert "one run decides nothing" in " ".join(paper.study.notice.split())


def test_a_night_is_as_long_as_its_file_says_and_has_three_runs_of_what_it_compares(
    tmp_path: Path,
) -> None:
    night = load_study("night", ROOT / "config")
    found = plan(night, Results(tmp_path))
    hours = re.search(r"(\d+ h \d\d min) on GPUs", total(found))
    header = (ROOT / "config/studies/night.yaml").read_text().partition("extends:")[0]
    assert hours
    assert f"no more than {hours[1]}" in header
    model, evaluation = night.study.models["qwen_math_1_5b"], night.study.evaluation
    each = 367 * evaluation.samples * evaluation.sampling.max_tokens / model.job.sampling / 3600
    sample = each * 13 * (1 + 40 / 367)  # the base and 12 policies
    rl = next(stage.hours for stage in found if stage.name == "rl")
    snapshots = each * 3 * (night.study.exhibits["stopped_early"].snapshots - 1)
    words = " ".join(header.replace("#", " ").split())
    assert f"RL takes {rl:.1f} hours, sampling {sample:.1f}" in words
    assert f"does not count, {snapshots:.1f}" in words
    assert rl + sample + snapshots < 10
    for claim in read_claims(night.study.claims).values():
        for test in (claim.primary, *claim.secondary):
            for row in {test.method, test.other} - {"base"}:
                assert len(night.seeds("qwen_math_1_5b", row)) == 3


def test_the_jobs_of_a_night_can_be_listed(tmp_path: Path) -> None:
    done = snakemake_in(ROOT)(*("-n", "--nolock", "--config", "study=night", f"results={tmp_path}"))
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout, flags=re.MULTILINE))
    assert (jobs["rl"], jobs["sample"], jobs["sft"]) == ("12", "13", "1"), done.stdout


def test_the_paper_study_is_summed_in_gpu_hours(tmp_path: Path) -> None:
    loaded = load_study("paper", ROOT / "config")
    found = plan(loaded, Results(tmp_path))
    rl = next(s for s in found if s.name == "rl" and s.model == "qwen_math_7b")
    assert (rl.jobs, rl.gpus, rl.tokens) == (18, 1, 18 * 1000 * 8 * 2048)
    text = render_plan(loaded, found, gpu_limit=8)
    assert " on GPUs, " in text
    assert "With 8 GPUs" in text
    assert "GPUs at a time" not in render_plan(loaded, found)
    assert "include sft of qwen_math_7b" in text
    assert "speed unknown" not in text


def test_the_memory_of_gpus_that_the_documents_name_is_that_of_check(tmp_path: Path) -> None:
    found = gpu_memory(load_study("paper", ROOT / "config"), Results(tmp_path), [80 * 10**9])
    needed = {
        one.what.rpartition(" ")[2]: one.needed.partition(" and")[0]
        for one in found
        if one.what.startswith("GPU for")
    }
    text = (ROOT / "docs/running.md").read_text(encoding="utf-8")
    assert f"holds {needed['qwen_math_7b']} of a GPU for a 7B model" in text
    assert f"and {needed['qwen_3b_instruct']} where all weights" in text


@pytest.mark.parametrize("speed", [10_000.0, 30_000.0])
def test_a_job_that_may_outlast_its_request_is_named(tmp_path: Path, speed: float) -> None:
    """1,572 problems with 5 x 256 completions of 2,048 tokens: 114 hours at 10,000 a second."""
    loaded = load_study("paper", ROOT / "config", [f"models.qwen_math_7b.job.sampling={speed}"])
    found = plan(loaded, Results(tmp_path))
    sample = next(s for s in found if s.name == "sample" and s.model == "qwen_math_7b")
    assert sample.largest == 1572 * 5 * 256 * 2048
    hints = time_hints(loaded, found)
    assert len(hints) == (speed == 10_000)
    if hints:
        assert "114 h" in hints[0]
        assert "asks for 48 h" in hints[0]


@pytest.mark.parametrize(
    ("gpus", "rollouts", "hint"),
    [
        (1, 8, None),
        (8, 64, None),
        (8, 8, "a step's 8 completions are 1 for each of 8 GPUs, which will mostly wait: set gpus"),
    ],
)
def test_many_gpus_for_few_completions_are_called_wasteful(
    tmp_path: Path, gpus: int, rollouts: int, hint: str | None
) -> None:
    study = load_study("paper", ROOT / "config")
    name, model = "qwen_math_7b", study.model("qwen_math_7b")
    changed = model.model_copy(
        update={
            "job": model.job.model_copy(update={"gpus": gpus}),
            "rl": model.rl.model_copy(update={"rollouts": rollouts}),
        }
    )
    models = {**study.study.models, name: changed}
    study = study.model_copy(update={"study": study.study.model_copy(update={"models": models})})
    text = render_plan(study, plan(study, Results(tmp_path)))
    found = [line for line in text.splitlines() if "side by side" in line]
    assert bool(found) == bool(hint)
    if hint:
        assert hint in found[0]


def test_an_exhibit_costs_what_leaving_it_out_saves_and_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SFT takes 9,216 tokens, a run of RL 3,072, a set of samples of `arithmetic` 576: at these
    speeds 96, 32 and 24 s. Table 3 has four methods of its own, `learned` one that is not
    sampled; `tiny_long` starts from SFT too, but how fast it is nobody says."""
    monkeypatch.chdir(tmp_path)
    loaded = load_study("smoke", ROOT / "config", ["models.tiny.job={training: 96, sampling: 24}"])
    results = Results(tmp_path)
    found = costs(loaded, plan(loaded, results), results)
    assert [cost.exhibit for cost in found] == [*loaded.study.exhibits]
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in exhibit_lines(found)[2:]}
    assert said["table3"].startswith("3 min 44 s")
    assert said["learned"].split("  ") == ["32 s", "2 min 08 s"]
    assert said["tradeoff"].startswith("0 s ")
    assert said["table4"].split() == ["0", "s", "unknown"]
    by_name = {cost.exhibit: cost for cost in found}
    sampled = sum(benchmark == "arithmetic" for _, benchmark in loaded.evaluated_runs("tiny"))
    trained = sum(
        "arithmetic" in {b for run, b in loaded.evaluated_runs("tiny") if run == one}
        for one in loaded.trained_runs("tiny")
    )
    seconds = 3600 * (by_name["table3"].all or 0.0)
    assert seconds == pytest.approx(96 + 32 * trained + 24 * sampled)


def test_the_plan_names_the_tokens_that_it_does_not_know(tmp_path: Path) -> None:
    said = {name: load_study(name, ROOT / "config") for name in ("mini", "rivals")}
    lines = {name: uncounted(study) for name, study in said.items()}
    assert lines["mini"] == ["Not counted: samples drawn for strata and figure2 alone."]
    (line,) = lines["rivals"]
    assert " dars" in line
    assert line.endswith("for methods alone.")
