"""Sets up a Snakemake job: its log, its threads, its GPUs, its manifest.

Output is redirected at file-descriptor level, so the rule's log also has what C++ libraries and
child processes print. Thread counts and GPUs are set in the environment before torch is imported:
import heavy modules inside the `with` block.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sage.runtime.devices import (
    SHARING,
    VISIBLE,
    Device,
    driver_for,
    driver_version,
    jobs_per_gpu,
    occupants,
    places,
    visible_devices,
)
from sage.runtime.faults import explained, is_full
from sage.runtime.lease import lease
from sage.runtime.manifest import Manifest
from sage.runtime.records import recorded, settings_of
from sage.runtime.shared_imports import run_in_fork
from sage.runtime.survivors import ends_with_snakemake, snakemake_above
from sage.runtime.usage import watched

LEAVING_SECONDS = 60.0
"""Seconds that a job waits for processes without a lease to leave its GPUs."""

SHARED = 0.95
"""The share of a GPU's memory for the tensors of all jobs that share it; CUDA needs the rest."""

STOPPED = 130
"""The exit status of a job that was stopped by a signal, whose traceback is in its log."""

SHOWN = "SAGE_FAILURES_SHOWN"
"""The environment variable that is set where what starts Snakemake shows why a job failed."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# Of glibc's `mallopt`: the parameter's number, and a value in bytes.
_TRIM_THRESHOLD = -1, 512 * 2**20
_MMAP_THRESHOLD = -3, 32 * 2**20


@contextmanager
def job(snakemake: Any, imports: Sequence[str] = ()) -> Iterator[Manifest]:
    """Run the body of a script under `snakemake`, the object Snakemake gives to scripts.

    Yields the job's manifest, to be written beside its results. The GPUs are leased for the whole
    block; CUDA sees only these. An exception is written to the log and raised again for Snakemake;
    of a fault of files, disks or memory Snakemake shows the message alone. With `imports`, modules
    that take long to import, the whole script is run again where they are imported already, if that
    can be, and this process only waits for its end.
    """
    for variable in _THREAD_VARIABLES:
        os.environ[variable] = str(snakemake.threads)
    # A waiting thread must not spin: on a busy machine spinning made two threads ten times slower.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["MPLBACKEND"] = "agg"
    log = Path(snakemake.log[0])
    settings = settings_of(snakemake)
    seed = snakemake.wildcards.get("seed")
    with suppress(ValueError):  # of a thread that is not the main one
        signal.signal(signal.SIGTERM, partial(_stop, os.getpid()))
    try:
        notice = run_in_fork(imports) if imports and _can_share(snakemake, settings) else None
    except KeyboardInterrupt:
        with _output_to(log):
            print("KeyboardInterrupt")
        raise SystemExit(STOPPED) from None
    keep_freed_memory()
    with _output_to(log):
        if notice:
            print(notice, flush=True)
        try:
            asked = gpus_asked(snakemake.resources, snakemake.params.get("device", "auto"))
            with (
                ends_with_snakemake(),
                recorded(snakemake, settings) as inputs,
                leased(asked, str(log)) as devices,
                watched([d.key for d in devices] if jobs_per_gpu() == 1 else []),
            ):
                yield Manifest(
                    settings=settings,
                    threads=snakemake.threads,
                    started=time.time(),
                    inputs=inputs,
                    seed=None if seed is None else int(seed),
                )
        except BaseException as error:
            with suppress(OSError):  # of a disk that has no room for it
                traceback.print_exc()
            if isinstance(error, KeyboardInterrupt):
                raise SystemExit(STOPPED) from None
            message = explained(error, log.parent)
            if message is None:
                raise
            if is_full(error, log.parent) and (parent := snakemake_above()):
                parent.terminate()  # which starts no further job, and waits for those that run
            with suppress(OSError):
                print(f"ERROR: {message}", file=sys.stderr, flush=True)
            raise SystemExit(1 if SHOWN in os.environ else f"{log}: {message}") from None


def _stop(job: int, number: int, _: Any) -> None:
    """End a job that is told to as from the keyboard, and a child of it at once."""
    if os.getpid() == job:
        raise KeyboardInterrupt
    os._exit(128 + number)


def keep_freed_memory() -> None:
    """Have the process keep the memory of tensors up to 32 MiB for the next ones (glibc only).

    By default glibc returns it to the system each time, and every page of the next tensor is a
    fault: a tenth of a small model's training step.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, value)


def _can_share(snakemake: Any, settings: dict[str, Any]) -> bool:
    """Whether the job can run in a fork: it has one thread, no GPU and no vLLM, which starts
    threads and processes of its own."""
    own = {name: value for name, value in settings.items() if name != "study"}  # of all models
    without_gpu = not snakemake.resources.get("gpus_asked", 0) or not visible_devices()
    return bool(snakemake.threads == 1 and without_gpu and not _has_vllm(own))


def _has_vllm(settings: Any) -> bool:
    inner = settings.values() if isinstance(settings, dict) else ()
    return "vllm" in inner or any(map(_has_vllm, inner))


def gpus_asked(resources: Mapping[str, Any], device: str) -> int:
    """The number of GPUs a job asks for; 0 if the machine's setting `device` is `cpu`.

    Snakemake silently reduces `gpu` to its own limit, but does not change `gpus_asked`. Raises
    RuntimeError if the two differ.
    """
    if device == "cpu":
        return 0
    granted = int(resources.get("gpu", 0))
    asked = int(resources.get("gpus_asked", granted))
    if granted < asked and visible_devices():
        raise RuntimeError(
            f"this job asks for {asked} GPUs (`gpus` in the job section of its model), but "
            f"Snakemake's limit is {granted}: raise the limit with `--resources gpu={asked}` or "
            "in profiles/default/profile.yaml, or lower `gpus`"
        )
    return asked


@contextmanager
def leased(count: int, job: str) -> Iterator[list[Device]]:
    """Show CUDA `count` GPUs that no other job has, and none to a job that asks for none.

    Where SAGE_JOBS_PER_GPU is set, as many jobs have the same GPU. Nothing is changed on a machine
    without GPUs. If SLURM gives exactly as many as asked for, its choice stands; jobs inside a
    larger allocation lease their part of it. Raises RuntimeError for a job that asks for several
    GPUs where they are shared.
    """
    devices = visible_devices() if count else []
    shared = jobs_per_gpu() > 1
    if shared and count > 1:
        raise RuntimeError(
            f"this job asks for {count} GPUs, and {SHARING} has jobs share one: unset {SHARING}"
        )
    if not count:
        os.environ[VISIBLE] = ""
    if not devices:
        yield []
        return
    # Asking torch whether there is a GPU must not start CUDA: processes forked later could not.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if "SLURM_JOB_ID" in os.environ and VISIBLE in os.environ and len(devices) == count:
        yield devices
        return
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    with lease(count, places(), job) as held:
        os.environ[VISIBLE] = ",".join(device.name for device in held)
        if not shared:
            _await_leaving(held)
        yield held


def _await_leaving(devices: Sequence[Device]) -> None:
    """Wait a short time for processes of a killed job to leave its devices."""
    deadline, said = time.monotonic() + LEAVING_SECONDS, False
    while others := "; ".join(occupants(devices)):
        if time.monotonic() >= deadline:
            print(f"Continuing although processes without a lease use the GPUs: {others}")
            return
        if not said:
            print(f"Waiting for processes to leave the GPUs: {others}", flush=True)
        said = True
        time.sleep(LEAVING_SECONDS / 20)


def device_of(setting: str) -> str:
    """`cuda` or `cpu`; `auto` means the GPU if this process has one.

    Where jobs share a GPU, the tensors of this one get its share of the memory and no more.
    Raises RuntimeError for `cuda` without a GPU, and where the process has a GPU that torch does
    not see: the job would run on the CPU, some hundred times slower, and hold the GPU idle.
    """
    if setting == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        if (jobs := jobs_per_gpu()) > 1:
            # Without a limit torch keeps what it freed, and the jobs that come last find no memory.
            torch.cuda.set_per_process_memory_fraction(SHARED / jobs)
        return "cuda"
    if devices := visible_devices():
        raise RuntimeError(unseen([device.name for device in devices], torch))
    if setting == "cuda":
        raise RuntimeError(
            "config/config.yaml sets device: cuda, but this machine shows no GPU (nvidia-smi -L, "
            f"{VISIBLE}); set device: auto, or run on a machine with a GPU"
        )
    return "cpu"


def unseen(devices: Sequence[str], torch: Any) -> str:
    """Why `torch` sees none of the GPUs that this process has, as far as it can be known."""
    cuda, driver = torch.version.cuda, driver_version() or "unknown (nvidia-smi does not say)"
    why = (
        "without CUDA; install the CUDA build (remove .venv and run `make` on a machine with a "
        "GPU, or with ALLOW_CUDA_BUILD=1 on any machine)"
        if cuda is None
        else f"for CUDA {cuda} and needs NVIDIA driver {driver_for(cuda)} or newer, the driver "
        f"here is {driver}; {newer_driver(find_spec('vllm') is not None)}"
    )
    return (
        f"GPU {', '.join(devices)} is there, but torch does not see it: torch {torch.__version__} "
        f"is a build {why}, or use `--config device=cpu` to run on the CPU on purpose"
    )


def newer_driver(has_vllm: bool) -> str:
    """What to do about a driver that is too old: torch has builds for others, vLLM is for one."""
    other = "" if has_vllm else ", or install a build of torch for an older CUDA"
    return f"update the driver{other}"


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    if os.fstat(file).st_size:  # of an earlier attempt: its last lines may explain the retry
        os.write(file, f"\n==== {time.strftime('%Y-%m-%d %H:%M:%S')} ====\n".encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        for descriptor, original in zip((1, 2), saved, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
