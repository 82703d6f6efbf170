"""One function in several processes that train together, one for each GPU.

Each process is a fresh interpreter: nothing of the caller's `__main__` is run again, as it is
with `multiprocessing`. They share the caller's output and process group, and on Linux the kernel
ends them with it, however it ends. Their key-value store is the caller's own, so no port is
guessed. The call is handed over as JSON: data alone, of which what the function's annotations say
is made again.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from importlib import import_module
from inspect import isbuiltin
from pathlib import Path
from typing import Any

from pydantic import validate_call
from pydantic_core import PydanticSerializationError, to_jsonable_python

from sage.runtime.devices import see_one_device

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
_PARENT = "SAGE_PARENT"
_PR_SET_PDEATHSIG = 1


def rank() -> int:
    """The number of this process among those that train together; 0 is the one that writes."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def most_processes(gpus: int, device: str) -> int:
    """How many processes a job with `gpus` GPUs may use: one for each, and one without any.

    Raises RuntimeError if torch sees fewer.
    """
    import torch

    if device != "cuda" or gpus <= 1:
        return 1
    visible = torch.cuda.device_count()
    if visible < gpus:
        raise RuntimeError(
            f"the job asks for {gpus} GPUs, but torch sees {visible} "
            f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')}); lower job.gpus"
        )
    return gpus


@cache
def allow_numbered_cpus() -> None:
    """Let torch load to "cpu:0", as transformers asks on CPUs in several processes."""
    import torch

    torch.serialization.register_package(
        0, lambda _: None, lambda storage, place: storage if place.startswith("cpu:") else None
    )


def run(processes: int, function: Callable[..., object], /, *arguments: Any, **named: Any) -> None:
    """Call `function` in that many processes and wait; with one, in this one, on one GPU.

    `function` must be importable by its name, and its arguments data (`dumped`). As soon as one
    process fails the others are ended; raises RuntimeError that says which failed and how.
    """
    if processes == 1:
        see_one_device()
        function(*arguments, **named)
        return
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="sage-") as folder:
        call = Path(folder) / "call.json"
        call.write_text(dumped(function, arguments, named), encoding="utf-8")
        environment = _environment(processes, store.port)
        command = [sys.executable, "-m", "sage.training.processes", str(call)]
        ranks = [{"RANK": str(number), "LOCAL_RANK": str(number)} for number in range(processes)]
        workers = [subprocess.Popen(command, env=environment | own) for own in ranks]
        try:
            _wait(workers)
        finally:
            _end(workers)


def _environment(processes: int, port: int) -> dict[str, str]:
    """What all processes find in their environment; they share this one's threads."""
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # torch's name for a store outside the processes
        "OMP_NUM_THREADS": str(max(1, threads // processes)),
        _PARENT: str(os.getpid()),
    }


def _wait(workers: list[subprocess.Popen[bytes]]) -> None:
    while None in (states := [worker.poll() for worker in workers]) and not any(states):
        time.sleep(_POLL_SECONDS)
    if failed := [f"process {n} {_ending(state)}" for n, state in enumerate(states) if state]:
        raise RuntimeError(
            f"of {len(workers)} processes that trained together, {'; '.join(failed)}"
        )


def _ending(status: int) -> str:
    if status > 0:
        return f"failed with exit status {status}: its traceback stands above"
    name = signal.Signals(-status).name
    lack = ", as when memory runs out" if name == "SIGKILL" else ""
    return f"was ended by {name}{lack}"


def _end(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    limit = time.monotonic() + _GRACE_SECONDS
    for worker in workers:
        try:
            worker.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` is gone; Linux alone can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before it could be watched
        os.kill(os.getpid(), signal.SIGKILL)


def dumped(function: Callable[..., object], arguments: Sequence[Any], named: Any) -> str:
    """The call as JSON. Raises TypeError for an argument that JSON cannot hold."""
    name = f"{function.__module__}:{function.__qualname__}"
    try:
        return json.dumps([name, *to_jsonable_python([list(arguments), dict(named)])])
    except PydanticSerializationError as error:
        raise TypeError(
            f"{name}: an argument cannot be handed to another process: {error}"
        ) from None


def loaded(text: str) -> Callable[[], object]:
    """The call that `dumped` wrote; its arguments are of the types that the function states."""
    name, arguments, named = json.loads(text)
    module, _, path = name.partition(":")
    function: Any = reduce(getattr, path.split("."), import_module(module))
    typed = function if isbuiltin(function) else validate_call(function)  # which states no types
    return partial(typed, *arguments, **named)


def _main(call: Path) -> None:
    _end_with(int(os.environ[_PARENT]))
    loaded(call.read_text(encoding="utf-8"))()
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
