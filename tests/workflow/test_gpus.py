"""What is known of GPUs beforehand: speeds that were measured, estimates from them, memory."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from sage.exhibits import load_study
from sage.results import Results
from sage.study import RL, ResolvedStudy
from sage.tools import gpus
from sage.tools.check.gpu_memory import gpu_memory
from sage.tools.gpus import SHAPES, Work, lighter, peak, speed_of, with_parts
from sage.tools.plan import Stage, plan
from sage.tools.plan_text import gpu_memory_lines, render_plan, total


def study_of(name: str, *changes: str) -> ResolvedStudy:
    return load_study(name, ROOT / "config", list(changes))


def by_stage(study: ResolvedStudy, results: Path) -> dict[str, Stage]:
    return {stage.name: stage for stage in plan(study, Results(results))}


def test_shapes_have_the_published_numbers_of_weights() -> None:
    """Of the models' cards: 134.5 M, 0.49 B, 1.54 B, 3.09 B and 7.62 B."""
    published = (134.5e6, 0.49e9, 1.54e9, 3.09e9, 7.62e9)
    for shape, weights in zip(SHAPES.values(), published, strict=True):
        assert shape.parameters == pytest.approx(weights, rel=0.01)
    assert SHAPES["Qwen2.5-7B"].cached == 2 * 28 * 4 * 128  # heads of 128 dimensions


def entry(parameters: float, speed: float, **changes: Any) -> dict[str, Any]:
    """A made-up measurement."""
    own = {"gpu": "H100", "stage": "rl", "engine": "vllm", "precision": "bfloat16", "rows": 8}
    own |= {"parameters": int(parameters), "tokens_per_second": speed, "of": "x"}
    return own | changes


ENTRIES = [entry(1e9, 4000.0), entry(4e9, 2000.0), entry(1e9, 9.0, precision="float32")]


@pytest.mark.parametrize(
    ("changed", "speed"),
    [
        ({}, 4000.0),
        ({"parameters": 1_050_000_000}, 4000.0),
        ({"precision": "float32"}, 9.0),
        ({"parameters": 2 * 10**9}, None),
        ({"parameters": 10**8}, None),
        ({"engine": "transformers"}, None),
        ({"stage": "sample"}, None),
    ],
)
def test_only_the_like_that_was_measured_has_a_speed(changed: Any, speed: float | None) -> None:
    found = speed_of(replace(Work("rl", "vllm", "bfloat16", 10**9), **changed), ENTRIES)
    assert found == (None if speed is None else (speed, "measured on an H100: x"))


def test_what_a_gpu_measures_in_parts_becomes_data_of_the_plan(tmp_path: Path) -> None:
    """Made-up numbers: a first draw, a step that failed, TRL's step, and one that was there."""
    work = {key: entry(1.5e9, 0)[key] for key in (*Work.__annotations__, "rows")}
    memory = {"host": 5.0, "torch": 9.0, "gpu": 20.0}

    def part(speed: float, ok: bool | None = None, **changes: Any) -> dict[str, Any]:
        return {"ok": ok, "tokens_per_second": speed, "memory": memory, "work": work | changes}

    table = {
        "commit": "0123456789",
        "hardware": {"gpu": "H100"},
        "parts": {
            "kernels": {"ok": True, "kernels": {}},
            "draw_1.5B": part(20_000.0, stage="sample", rows=64),
            "step_1.5B": part(3000.0, True),
            "step_7B": part(1.0, False, parameters=7 * 10**9),
            "step_trl_1.5B": {"ok": None, "skipped": "no time left"},
        },
    }
    kept = with_parts([entry(1.5e9, 1.0), entry(1e9, 4000.0)], table)
    assert [(one["stage"], one["tokens_per_second"]) for one in kept] == [
        ("rl", 3000.0),
        ("rl", 4000.0),
        ("sample", 20_000.0),
    ]
    assert (kept[0]["gib"], kept[0]["of"]) == (20.0, "step_1.5B, commit 0123456")
    assert with_parts(kept, table) == kept
    with pytest.raises(ValueError, match="no GPU"):
        with_parts([], table | {"hardware": {"gpu": None}})


def test_a_plan_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "speeds.json"
    file.write_text(json.dumps([entry(1.54e9, 5000.0, rows=16)]))
    monkeypatch.setattr(gpus, "SPEEDS", file)
    night = study_of("night")
    found = by_stage(night, tmp_path)
    assert found["rl"].tokens_per_second == 5000.0
    assert found["rl"].source == "measured on an H100: x"
    assert found["sample"].tokens_per_second == night.study.models["qwen_math_1_5b"].job.sampling
    assert found["sample"].source.startswith("assumed in")


def test_the_kept_speeds_are_those_of_the_kept_runs() -> None:
    """Completion tokens over seconds of all RL runs of `pretrained`, by its tables."""
    for one in gpus.measured_speeds():
        assert one["gpu"]
        assert one["of"]
    folder = ROOT / "reports/pretrained/pretrained"
    with gzip.open(folder / "manifests.jsonl.gz", "rt") as lines:
        jobs = [json.loads(line) for line in lines]
    for stage in ("sft", "sample"):
        runs = [job for job in jobs if job["stage"] == stage]
        speed = sum(run["tokens"] for run in runs) / sum(run["wall_seconds"] for run in runs)
        (kept,) = (one for one in gpus.measured_speeds() if one["stage"] == stage)
        assert kept["tokens_per_second"] == pytest.approx(speed, abs=0.1)


def test_expected_tokens_are_as_long_as_those_of_runs_else_of_kept_runs(tmp_path: Path) -> None:
    study = study_of("pretrained")
    kept = by_stage(study, tmp_path)["rl"]
    assert kept.expected == pytest.approx(0.75 * kept.tokens, rel=0.01)
    assert kept.lengths.startswith("as in SmolLM2-135M")
    folder = tmp_path / "models/sums/grpo/seed1"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"tokens": 10**6, "wall_seconds": 100.0}))
    each = kept.tokens // kept.jobs
    (folder / "history.jsonl").write_text(json.dumps({"drawn_tokens": each // 4}))
    seen = by_stage(study, tmp_path)["rl"]
    assert seen.expected == pytest.approx(kept.tokens / 4, rel=0.01)
    assert seen.expected_hours == pytest.approx(seen.hours / 4, rel=0.01)
    assert seen.lengths == "of runs on disk"
    assert "with the expected lengths" in total([seen])
    text = render_plan(study_of("night"), plan(study_of("night"), Results(tmp_path)))
    assert "No kept run tells" in text
    longer = study_of("pretrained", "models.sums.rl.sampling.max_tokens=192")
    assert by_stage(longer, tmp_path / "none")["rl"].expected is None


def rl_of(name: str, model: str, **changes: Any) -> RL:
    settings = study_of(name).rl(model)
    return settings.model_copy(update=changes)


def test_memory_is_estimated_as_kept_runs_on_a_gpu_took_it() -> None:
    """12 runs of SmolLM2-135M on an H100, with prompts of some 93 tokens, took 14.9 to 18.8 GiB.

    The estimate's factor was chosen to fit these runs: this holds it to them and proves no more.
    """
    with gzip.open(ROOT / "reports/pretrained/pretrained/manifests.jsonl.gz", "rt") as lines:
        jobs = [json.loads(line) for line in lines]
    used = [job["peak_gpu_memory_gib"] * 2**30 for job in jobs if job["stage"] == "rl"]
    estimate = peak(SHAPES["SmolLM2-135M"], rl_of("pretrained", "sums"), 0, prompt=93)
    assert len(used) == 12
    assert 0.8 < estimate / min(used) < 1.25
    assert 0.8 < estimate / max(used) < 1.25


def test_less_memory_is_taken_with_more_micro_batches_checkpoints_and_sleep() -> None:
    shape, name = SHAPES["Qwen2.5-1.5B"], "qwen_math_1_5b"
    own = rl_of("night", name, gradient_checkpointing=False, vllm_sleep=False, micro_batches=4)
    (_, most), *others = lighter(shape, own, 1)
    changed = dict(others)
    assert set(changed) == {"micro_batches: 16", "gradient_checkpointing: true", "vllm_sleep: true"}
    assert max(changed.values()) < most
    assert dict(lighter(shape, rl_of("night", name), 1)).keys() == {
        "",
        "gradient_checkpointing: false",
        "vllm_sleep: false",
    }
    whole = own.model_copy(update={"lora": None})
    assert peak(shape, whole, 1) - most == pytest.approx(16 * shape.parameters)
    assert peak(shape, whole, 2) < peak(shape, whole, 1)


def test_check_warns_of_memory_before_the_first_job_and_says_what_fits(tmp_path: Path) -> None:
    off = study_of("night", "models.qwen_math_1_5b.rl.gradient_checkpointing=false")
    what = "GPU memory of RL, qwen_math_1_5b"

    def finding(study: ResolvedStudy, total: float) -> Any:
        found = {one.what: one for one in gpu_memory(study, Results(tmp_path), [int(total)])}
        return found.get(what)

    fits = finding(study_of("night"), 24e9)
    assert (fits.state, fits.needed) == ("ok", "8.9 GB, estimated")
    assert "and 9 GB of GPU" in (ROOT / "docs/running.md").read_text("utf-8")
    warned = finding(off, 24e9)
    assert warned.state == "warning"
    assert "set micro_batches: 16 (" in warned.way_out
    assert "gradient_checkpointing: true (" in warned.way_out
    assert finding(off, 5e9).way_out.endswith("with more memory")
    (line,) = gpu_memory_lines(off, Results(tmp_path))
    assert "(the shape of Qwen2.5-1.5B)" in line
    assert gpu_memory_lines(study_of("mini"), Results(tmp_path)) == []
    manifest = tmp_path / "models/qwen_math_1_5b/grpo/seed1/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"peak_gpu_memory_gib": 10}')
    assert finding(off, 24e9) is None  # what was used is known


def test_the_shape_of_a_checkpoint_is_its_own(tmp_path: Path) -> None:
    study, results = study_of("night"), Results(tmp_path)
    model = study.model("qwen_math_1_5b")
    assert gpus.shape_of(results, "qwen_math_1_5b", model) == (
        SHAPES["Qwen2.5-1.5B"],
        "Qwen2.5-1.5B",
    )
    folder = results.rl_start("qwen_math_1_5b")
    folder.mkdir(parents=True)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300}
    (folder / "config.json").write_text(json.dumps(sizes | {"tie_word_embeddings": True}))
    found = gpus.shape_of(results, "qwen_math_1_5b", model)
    assert found == (gpus.Shape(64, 128, 2, 4, 2, 300), "")
    assert study_of("mini").model("sums") is not None
    own = gpus.shape_of(Results(tmp_path / "none"), "sums", study_of("mini").model("sums"))
    assert own is not None
    assert own[0].layers == 3
