"""Installs the packages of the lock, with uv or, where it cannot be had, with pip.

Both check every file against the lock's checksums. Where neither can do it, `install_locked` says
why, and workflow/install.py takes pyproject.toml's pins with pip instead.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import lock

Call = Callable[..., None]
"""Runs a command given as arguments; raises CalledProcessError if it fails."""


def install_locked(
    python: Sequence[str],
    version: str,
    cuda: bool,
    extras: Sequence[str],
    pins: Sequence[str],
    folder: Path,
    call: Call,
) -> str | None:
    """Install the locked packages, and torch among them for `cuda`; returns why not, or None.

    `python` is the environment's interpreter with its options, `version` such as 3.11; `pins` are
    the requirements that the lock must meet. The list of packages is left in `folder`.
    """
    why_not = lock.covers(version, platform.system(), platform.machine(), extras)
    if why_not:
        return f"the lock does not fit: {why_not}"
    packages = lock.locked(cuda, extras)
    if late := lock.outdated(packages, pins):
        return f"locks/ is older than pyproject.toml ({', '.join(late)}): run `make lock`"
    listed = folder / "locked.txt"
    listed.write_text(lock.written(packages), encoding="utf-8")
    wanted = ["--require-hashes", "--no-deps", "-r", str(listed)]
    for tool in (with_uv, with_pip):
        try:
            tool(python, wanted, call)
            return None
        except (OSError, subprocess.CalledProcessError):
            continue
    return "neither uv nor pip could install the locked files (see above)"


def with_uv(python: Sequence[str], wanted: Sequence[str], call: Call) -> None:
    uv = shutil.which("uv")
    if uv is None:
        own = ["--no-input", "--require-hashes", "-r", str(lock.LOCKS / "uv.txt")]
        call(*python, "-m", "pip", "install", *own)
        uv = str(Path(python[0]).with_name("uv"))
    index = index_of_pip(python, os.environ)
    call(uv, "pip", "install", "--python", python[0], *index, *wanted)


def with_pip(python: Sequence[str], wanted: Sequence[str], call: Call) -> None:
    call(*python, "-m", "pip", "install", "--no-input", *wanted)


def index_of_pip(python: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Options that make uv use the package index that pip is set to, if uv is set to none."""
    if any(name in environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX")):
        return []
    url = environ.get("PIP_INDEX_URL", "")
    if not url:
        asked = [*python, "-m", "pip", "config", "get", "global.index-url"]
        url = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return ["--default-index", url] if url else []
