"""What a SLURM cluster offers, as `sinfo` says it: partitions for jobs, and limits of requests.

profiles/slurm asks here, so it needs no edit on a cluster: each job goes to the partition that fits
it (the executor plugin chooses, from a file that is written here). sbatch's own variables
SBATCH_PARTITION and SBATCH_ACCOUNT name the partitions and the account that are used instead.
"""

from __future__ import annotations

import getpass
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sage.runtime.devices import printed_by
from sage.runtime.files import write_text_atomic

PARTITION_FILE = Path(".snakemake/slurm-partitions.yaml")
"""What the plugin reads; Snakemake's own folder is never kept."""

LARGEST = {"mem_mb": 1_000_000, "runtime": 2880}
"""Limits of a request, in MB and minutes, where `sinfo` does not answer."""

CPUS_PER_GPU = 8
"""What a job asks for where every node with GPUs has as many CPUs for each of them."""

_ASKED = ("sinfo", "--noheader", "--exact", "--format", "%P|%a|%l|%c|%m|%G")


@dataclass(frozen=True)
class Partition:
    """A partition, by its largest node: `minutes` that a job may take (infinity without limit),
    CPUs, memory in MB, GPUs, and the kinds of GPU with their number on a node; `cpus_per_gpu` is
    that of the node with the fewest (0 without GPUs)."""

    name: str
    minutes: float
    cpus: int
    memory_mb: int
    gpus: int
    kinds: tuple[str, ...]
    cpus_per_gpu: int

    def takes(self, gpus: int, memory_gb: float, hours: float) -> bool:
        """Whether a job with these requests can ever run here."""
        fits = self.gpus >= gpus and self.memory_mb >= 1000 * memory_gb
        return fits and self.minutes >= 60 * hours

    def __str__(self) -> str:
        """`gpu (gpu:h100:8, 515 GB, 48 h)`."""
        time = "no limit" if math.isinf(self.minutes) else f"{self.minutes / 60:g} h"
        return f"{self.name} ({', '.join([*self.kinds, f'{self.memory_mb // 1000} GB', time])})"


def partitions() -> list[Partition]:
    """The partitions that are up and take this account's jobs; empty where `sinfo` is silent."""
    named = [name for name in os.environ.get("SBATCH_PARTITION", "").split(",") if name]
    nodes: dict[str, list[Partition]] = {}
    for line in (printed_by(*_ASKED) or "").splitlines():
        name, state, limit, *sizes = (word.strip() for word in line.split("|"))
        name = name.removesuffix("*")  # which marks the default
        if state != "up" or len(sizes) != 3 or (named and name not in named):
            continue
        cpus, memory = (int(re.sub(r"\D", "", size) or 0) for size in sizes[:2])
        kinds = re.findall(r"gpu(?::[^:,(]+)?:\d+", sizes[2])
        gpus = sum(int(kind.rpartition(":")[2]) for kind in kinds)
        each_gpu = max(1, cpus // gpus) if gpus else 0
        node = Partition(name, minutes(limit), cpus, memory, gpus, tuple(kinds), each_gpu)
        nodes.setdefault(name, []).append(node)
    return [
        Partition(
            name,
            each[0].minutes,
            max(node.cpus for node in each),
            max(node.memory_mb for node in each),
            max(node.gpus for node in each),
            tuple(dict.fromkeys(kind for node in each for kind in node.kinds)),
            min((node.cpus_per_gpu for node in each if node.gpus), default=0),
        )
        for name, each in nodes.items()
    ]


def minutes(limit: str) -> float:
    """A limit as sinfo writes it, such as ``2-00:00:00`` or ``30:00``, in minutes."""
    days, _, clock = limit.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):  # "infinite", "n/a"
        return math.inf
    hours, mins, seconds = ([0, 0, 0] + [int(part) for part in parts])[-3:]
    return 1440 * int(days or 0) + 60 * hours + mins + seconds / 60


def profile() -> dict[str, Any]:
    """What profiles/slurm sets: `account` (empty if unknown), `partitions` (the plugin's file, or
    empty), `limits` of a request, `cpus_per_gpu` that every node with GPUs has, `accounting`
    (whether `sacct` knows past jobs)."""
    offered = partitions()
    if offered:
        content = {"partitions": {each.name: _limits(each) for each in offered}}
        write_text_atomic(PARTITION_FILE, yaml.safe_dump(content))
    with_gpus = [each for each in offered if each.gpus] or offered
    sizes = {
        "mem_mb": max((each.memory_mb for each in with_gpus), default=0),
        "runtime": max((each.minutes for each in with_gpus), default=0),
    }
    known = {name: int(size) for name, size in sizes.items() if size and not math.isinf(size)}
    return {
        "account": _account(),
        "partitions": str(PARTITION_FILE) if offered else "",
        "limits": LARGEST | known,
        "cpus_per_gpu": min([CPUS_PER_GPU, *(each.cpus_per_gpu for each in offered if each.gpus)]),
        "accounting": printed_by("sacct", "--noheader", "--starttime", "now") is not None,
    }


def _limits(partition: Partition) -> dict[str, Any]:
    """A partition in the form of the executor plugin."""
    limits: dict[str, Any] = {
        "max_mem_mb": partition.memory_mb,
        "max_threads": partition.cpus,
        "max_gpu": partition.gpus,
    }
    if not math.isinf(partition.minutes):
        limits["max_runtime"] = int(partition.minutes)
    models = [kind.split(":")[1] for kind in partition.kinds if kind.count(":") == 2]
    return limits | ({"available_gpu_models": models} if models else {})


def _account() -> str:
    """SBATCH_ACCOUNT, else the default account that `sacctmgr` knows; empty if it knows none."""
    asked = ["sacctmgr", "--noheader", "--parsable2", "show", "user", getpass.getuser()]
    said = (printed_by(*asked, "format=defaultaccount") or "").split()
    return os.environ.get("SBATCH_ACCOUNT") or next(iter(said), "")


def offered_gpus() -> str:
    """The kinds of GPU of the cluster's nodes; empty if there are none."""
    return ", ".join(sorted({kind for each in partitions() for kind in each.kinds}))


def places(jobs: Mapping[str, tuple[int, float, float]], offered: Iterable[Partition]) -> list[str]:
    """A line for each name in `jobs` (GPUs, GB, hours): the partitions that take such a job."""
    lines = []
    for name, (gpus, memory, hours) in jobs.items():
        here = ", ".join(str(each) for each in offered if each.takes(gpus, memory, hours))
        asked = f"{gpus} GPU{'s' * (gpus != 1)}, {memory:g} GB, {hours:g} h"
        lines.append(f"SLURM, jobs of {name} ({asked}): {here or 'no partition takes them'}")
    return lines
