"""What is known of GPUs beforehand: speeds that were measured, estimates from them, memory."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import ROOT

from sage.exhibits import load_study
from sage.results import Results
from sage.study import RL, ResolvedStudy
from sage.study.types import Settings
from sage.tools import gpus
from sage.tools.check.gpu_memory import gpu_memory
from sage.tools.gpus import CARDS, SHAPES, Work, card_of, lighter, peak, speed_on, with_parts
from sage.tools.plan import Stage, plan
from sage.tools.plan_text import gpu_memory_lines, render_plan, total


def study_of(name: str, *changes: str) -> ResolvedStudy:
    return load_study(name, ROOT / "config", list(changes))


def by_stage(study: ResolvedStudy, results: Path, card: str | None = None) -> dict[str, Stage]:
    return {stage.name: stage for stage in plan(study, Results(results), card=card)}


@pytest.mark.parametrize(
    ("gpu", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", None),
        (None, None),
    ],
)
def test_a_card_is_known_by_the_name_that_nvidia_smi_gives(
    gpu: str | None, card: str | None
) -> None:
    assert card_of(gpu) == card


def test_the_cards_of_the_settings_are_those_with_figures() -> None:
    named = Settings.model_validate({"study": "mini", "card": "h100"})
    assert named.card == "h100"
    (choices, _) = get_args(Settings.model_fields["card"].annotation)
    assert get_args(choices) == tuple(CARDS)


def test_shapes_have_the_published_numbers_of_weights() -> None:
    """Of the models' cards: 134.5 M, 0.49 B, 1.54 B, 3.09 B and 7.62 B."""
    published = (134.5e6, 0.49e9, 1.54e9, 3.09e9, 7.62e9)
    for shape, weights in zip(SHAPES.values(), published, strict=True):
        assert shape.parameters == pytest.approx(weights, rel=0.01)
    assert SHAPES["Qwen2.5-7B"].cached == 2 * 28 * 4 * 128  # heads of 128 dimensions


def test_the_least_time_of_a_token_by_hand() -> None:
    """One weight of two bytes for 8 rows, on a card of 1 byte and 4 products a second: reading it
    takes 2 / 8 s a row, 2 products 0.5 s, the 4 of training 1 s. Float32 halves the products."""
    slow = replace(CARDS["h100"], bandwidth=1.0, flops=4.0)
    work = Work("rl", "vllm", "bfloat16", 1, 8)
    assert work.seconds(slow) == 0.5 + 1.0
    assert replace(work, rows=1).seconds(slow) == 2.0 + 1.0
    assert replace(work, stage="sample").seconds(slow) == 0.5
    assert replace(work, stage="sft", precision="float32").seconds(slow) == 2.0


def entry(parameters: float, speed: float, **changes: Any) -> dict[str, Any]:
    """A made-up measurement."""
    own = {"card": "h100", "stage": "rl", "engine": "vllm", "precision": "bfloat16", "rows": 8}
    own |= {"parameters": int(parameters), "tokens_per_second": speed, "of": "made up"}
    return own | changes


ENTRIES = [entry(1e9, 4000.0), entry(4e9, 2000.0), entry(1e9, 900.0, card="a100")]


def test_a_measured_speed_is_taken_as_it_is() -> None:
    work = Work("rl", "vllm", "bfloat16", 1_050_000_000, 8)
    assert speed_on(work, "h100", ENTRIES) == (4000.0, "measured on an NVIDIA H100 SXM: made up")
    assert speed_on(work, "a100", ENTRIES) is not None
    assert speed_on(work, "a100", ENTRIES)[0] == 900.0  # type: ignore[index]
    assert speed_on(work, None, ENTRIES)[0] == 4000.0  # type: ignore[index]


def test_between_two_sizes_the_share_of_the_published_figures_is_interpolated() -> None:
    """2 billion weights are half-way from 1 to 4 in logarithms, so the share is the mean of both.

    Eight rows read all weights for each token: the least time is proportional to them. The shares
    are as 4,000 x 1 to 2,000 x 4, so 6,000 x 1e9 weights a second, and 3,000 for 2e9.
    """
    found = speed_on(Work("rl", "vllm", "bfloat16", 2 * 10**9, 8), "h100", ENTRIES)
    assert found is not None
    assert found[0] == pytest.approx(3000.0)
    assert found[1].startswith("estimated by the number of weights from what was measured on an")


def test_another_card_has_the_same_share_of_its_own_figures() -> None:
    work = Work("rl", "vllm", "bfloat16", 4 * 10**9, 8)
    found = speed_on(work, "rtx4090", ENTRIES[:2])
    assert found is not None
    ratio = work.seconds(CARDS["h100"]) / work.seconds(CARDS["rtx4090"])
    assert found[0] == pytest.approx(2000.0 * ratio)
    assert CARDS["rtx4090"].bandwidth / CARDS["h100"].bandwidth > ratio > 165.2 / 989
    assert "published figures of the NVIDIA GeForce RTX 4090" in found[1]
    assert found[1].startswith("estimated")


def test_what_is_far_from_all_that_was_measured_has_no_speed() -> None:
    for changed in ({"parameters": 10**8}, {"engine": "transformers"}, {"stage": "sample"}):
        work = replace(Work("rl", "vllm", "bfloat16", 10**9, 8), **changed)
        assert speed_on(work, "h100", ENTRIES) is None


def test_what_a_gpu_measures_in_parts_becomes_data_of_the_plan(tmp_path: Path) -> None:
    """Made-up numbers: a first draw, a step that failed, TRL's step, and one that was there."""
    work = {key: value for key, value in entry(1.5e9, 0).items() if key in Work.__annotations__}
    memory = {"host": 5.0, "torch": 9.0, "gpu": 20.0}

    def part(speed: float, ok: bool | None = None, **changes: Any) -> dict[str, Any]:
        return {"ok": ok, "tokens_per_second": speed, "memory": memory, "work": work | changes}

    table = {
        "commit": "0123456789",
        "hardware": {"gpu": "NVIDIA H100 80GB HBM3"},
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
    with pytest.raises(ValueError, match=r"no card of h100, .*: None"):
        with_parts([], table | {"hardware": {"gpu": None}})


def test_a_plan_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "speeds.json"
    file.write_text(json.dumps([entry(1.54e9, 5000.0, rows=16)]))
    monkeypatch.setattr(gpus, "SPEEDS", file)
    night = study_of("night")
    found = by_stage(night, tmp_path)
    assert found["rl"].tokens_per_second == 5000.0
    assert found["rl"].source == "measured on an NVIDIA H100 SXM: made up"
    assert found["sample"].tokens_per_second == night.study.models["qwen_math_1_5b"].job.sampling
    assert found["sample"].source.startswith("assumed in the study's job sections: nothing of this")
    slower = by_stage(night, tmp_path, "rtx4090")["rl"]
    assert slower.source.startswith("estimated")
    assert 500.0 < slower.tokens_per_second < 2500.0


def test_the_kept_speeds_are_those_of_the_kept_runs() -> None:
    """Completion tokens over seconds of all RL runs of `pretrained`, by its tables."""
    for one in gpus.measured_speeds():
        assert one["card"] in CARDS
        assert one["of"]
    folder = ROOT / "reports/pretrained/pretrained"
    with gzip.open(folder / "manifests.jsonl.gz", "rt") as lines:
        jobs = [json.loads(line) for line in lines]
    for stage in ("sft", "sample"):
        runs = [job for job in jobs if job["stage"] == stage]
        speed = sum(run["tokens"] for run in runs) / sum(run["wall_seconds"] for run in runs)
        (kept,) = (one for one in gpus.measured_speeds() if one["stage"] == stage)
        assert kept["tokens_per_second"] == pytest.approx(speed, abs=0.1)


def test_a_named_card_gives_measured_speeds_or_estimates_and_says_which(tmp_path: Path) -> None:
    study = study_of("pretrained")
    here, there = (by_stage(study, tmp_path, card) for card in ("h100", "rtx3090"))
    assert "measured on an NVIDIA H100 SXM" in here["rl"].source
    assert there["rl"].source.startswith("estimated by the number of weights and the published")
    assert (here["rl"].hours or 0) < (there["rl"].hours or 0)
    text = render_plan(study, plan(study, Results(tmp_path), card="h100"), card="h100")
    assert "By its published bandwidth and FLOPs an NVIDIA H100 SXM makes at most" in text
    assert "is above that" not in text
    fast = study_of("night", "models.qwen_math_1_5b.job.training=100000")
    text = render_plan(fast, plan(fast, Results(tmp_path), card="a100"), card="a100")
    assert "rl of qwen_math_1_5b: 100 k tokens/s is above that." in text


def test_on_a_named_card_runs_of_another_do_not_count(tmp_path: Path) -> None:
    manifest = tmp_path / "models/sums/grpo/seed1/manifest.json"
    manifest.parent.mkdir(parents=True)
    own = {"tokens": 1000, "wall_seconds": 10.0, "hardware": {"gpu": "NVIDIA A100-SXM4-80GB"}}
    manifest.write_text(json.dumps(own))
    study = study_of("pretrained")
    assert by_stage(study, tmp_path)["rl"].tokens_per_second == 100.0
    assert by_stage(study, tmp_path, "a100")["rl"].tokens_per_second == 100.0
    assert by_stage(study, tmp_path, "h100")["rl"].tokens_per_second != 100.0


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
    assert "of jobs with the expected lengths" in total([seen])
    text = render_plan(study_of("night"), plan(study_of("night"), Results(tmp_path)))
    assert "No kept run tells the lengths: the greatest are taken as expected." in text
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
    assert "and 9 GB of GPU memory for RL by the" in (ROOT / "docs/running.md").read_text("utf-8")
    warned = finding(off, 24e9)
    assert warned.state == "warning"
    assert "an estimate; if a job runs out of memory: set micro_batches: 16 (" in warned.way_out
    assert "gradient_checkpointing: true (" in warned.way_out
    assert finding(off, 5e9).way_out.endswith("use GPUs with more memory")
    (line,) = gpu_memory_lines(off, Results(tmp_path), "rtx4090")
    assert "(the shape of Qwen2.5-1.5B), estimated with prompts of 256 tokens: " in line
    assert line.endswith("; an NVIDIA GeForce RTX 4090 has 24.")
    assert gpu_memory_lines(study_of("mini"), Results(tmp_path), None) == []
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
