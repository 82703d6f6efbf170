"""The GPUs that a process may use, found without torch: from the environment, else nvidia-smi.

Numbers mean the order of nvidia-smi. So code that sets CUDA_VISIBLE_DEVICES from here must also
set CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARING = "SAGE_JOBS_PER_GPU"
"""The environment variable that says how many jobs may use the same GPU at once; 1 without it."""

PATIENCE = 30.0
"""Time limit for a tool in seconds: nvidia-smi may have to start the driver first."""

OF_VLLM, OF_TRAINER = 2 * 2**30, 4 * 2**30
"""Bytes of a GPU that vLLM, and a trainer beside it, take at least, without weights."""

SHARE_OF_VLLM = 0.3
"""Share of a GPU that TRL's vLLM takes, which is handed all weights and draws beside training."""

_DRIVERS = {"12": 525, "13": 580}  # NVIDIA's CUDA compatibility guide

_LINE = re.compile(r"(?P<mig>\s+MIG .*|GPU (?P<index>\d+): .*)\(UUID: (?P<uuid>[^)]+)\)")


@dataclass(frozen=True)
class Device:
    """A GPU, or a part of one. `name` is for CUDA_VISIBLE_DEVICES; `key` is the same for all
    users.

    The key is the UUID, or the name if nvidia-smi does not answer.
    """

    name: str
    key: str


def visible_devices(environment: Mapping[str, str] = os.environ) -> list[Device]:
    """The devices that `environment` lets a process use; all of the machine if it names none.

    The list ends at the first entry that is not a device, as CUDA reads it: an empty text, `-1`
    and `NoDevFiles` mean no device.
    """
    present = _present()
    named = environment.get(VISIBLE)
    if named is None:
        return [
            Device(part or index, part or uuid)
            for (index, uuid), parts in present.items()
            for part in parts or ("",)
        ]
    devices: dict[str, Device] = {}
    for name in map(str.strip, named.split(",")):
        key = _key(name, present)
        if key is None:
            break
        devices.setdefault(key, Device(name, key))
    return list(devices.values())


def jobs_per_gpu() -> int:
    """How many jobs may use the same GPU at once. Raises ValueError for what is no such number."""
    asked = os.environ.get(SHARING, "1")
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(f"{SHARING}={asked}: write a whole number from 1 on")
    return int(asked)


def places() -> list[Device]:
    """The visible devices, each as often as jobs may share it; GPUs fill evenly in this order."""
    devices, jobs = visible_devices(), jobs_per_gpu()
    extra = [Device(d.name, f"{d.key}#{n}") for n in range(2, jobs + 1) for d in devices]
    return [*devices, *extra]


def see_one_device() -> None:
    """Show this process the first of its job's GPUs alone, before CUDA starts in it.

    transformers spreads the batches of a process over all that it sees.
    """
    if VISIBLE in os.environ:
        os.environ[VISIBLE] = os.environ[VISIBLE].partition(",")[0]


def occupants(devices: Sequence[Device]) -> list[str]:
    """The processes that use the devices now, as text; empty if nvidia-smi does not answer."""
    asked = "--query-compute-apps=gpu_uuid,pid,used_memory"
    using = []
    for line in (printed_by("nvidia-smi", asked, "--format=csv,noheader") or "").splitlines():
        uuid, process, memory = (word.strip() for word in [*line.split(","), "", ""][:3])
        using += [
            f"process {process} on GPU {device.name} ({memory})"
            for device in devices
            if device.key == uuid
        ]
    return using


def driver_for(cuda: str) -> int:
    """The major version of the oldest NVIDIA driver for that version of CUDA, such as 13.0."""
    return _DRIVERS.get(cuda.partition(".")[0], max(_DRIVERS.values()))


def driver_version() -> str | None:
    """The version of the NVIDIA driver, such as ``580.65.06``; None if nvidia-smi does not say."""
    return next(iter(queried("driver_version")), None)


def queried(keys: str, *more: str) -> list[str]:
    """What nvidia-smi says of each GPU under `keys`; empty if it does not answer."""
    asked = ("nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader", *more)
    return (printed_by(*asked) or "").strip().splitlines()


def printed_by(*command: str) -> str | None:
    """The output of a tool; None if it is not installed, fails or takes too long."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _present() -> dict[tuple[str, str], list[str]]:
    """The MIG parts of each GPU, by its index and UUID."""
    gpus: dict[tuple[str, str], list[str]] = {}
    for line in (printed_by("nvidia-smi", "-L") or "").splitlines():
        match = _LINE.match(line)
        if match and match["index"]:
            gpus[match["index"], match["uuid"]] = []
        elif match and gpus:
            gpus[[*gpus][-1]].append(match["uuid"])
    return gpus


def _key(name: str, present: Mapping[tuple[str, str], Sequence[str]]) -> str | None:
    """The key of the device that CUDA_VISIBLE_DEVICES calls `name`; None if there is no such
    device. Of a GPU in MIG parts CUDA takes the first."""
    if not re.fullmatch(r"\d+|(GPU|MIG)-.+", name):
        return None
    if not present:
        return name
    if name.startswith("MIG-"):
        parts = [part for parts in present.values() for part in parts if part.startswith(name)]
        return parts[0] if len(parts) == 1 else name
    named = [gpu for gpu in present if name == gpu[0] or gpu[1].startswith(name)]
    return next(iter(present[named[0]]), named[0][1]) if len(named) == 1 else None
