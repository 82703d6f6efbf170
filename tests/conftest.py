"""The smoke study, run once by the workflow itself and shared by every test that needs a model."""

from __future__ import annotations

import fcntl
import os
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sage.exhibits import load_study
from sage.runtime.lease import FOLDER
from sage.sampling.interface import Request
from sage.study import ResolvedStudy

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "workflow", "config", "sage", "reports", "profiles", "environment.yml")
SMOKE = ("--config", "study=smoke")

JOBS = "jobs.jsonl"
"""What each job of the smoke study took (`recorder/sitecustomize.py`)."""

TOKENS = {"HF_TOKEN": "hf_NoRealToken0123456789", "WANDB_API_KEY": "NoRealKey0123456789abcdef"}
"""What the smoke study finds in its environment, and must not write anywhere."""

Snakemake = Callable[..., subprocess.CompletedProcess[str]]


@pytest.hookimpl(trylast=True)  # behind the choice by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files so that, with two workers, none waits long for the smoke study.

    First the file that needs it soonest: its worker runs the study. Then the files that do not need
    it, then the others that do; large files before small ones. Tests of a file keep their order.
    """
    sizes: Counter[Path] = Counter()
    before: dict[Path, int] = {}  # by file that needs the study: its tests before that
    for item in items:
        if "project" in getattr(item, "fixturenames", ()):
            before.setdefault(item.path, sizes[item.path])
        sizes[item.path] += 1
    first = min(before, key=lambda path: (before[path], str(path)), default=None)
    items.sort(
        key=lambda item: (
            item.path != first,
            item.path in before,
            -sizes[item.path],
            str(item.path),
        )
    )


def copy_project(target: Path) -> Path:
    """Copy what the workflow needs, so that a test may edit it and run beside other runs."""
    target.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / part)
    return target


def snakemake_in(folder: Path, **variables: str) -> Snakemake:
    """A function that runs `snakemake` in `folder` and returns what it printed."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        tool = Path(sys.executable).parent / "snakemake"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [str(tool), *arguments],
            cwd=folder,
            env=environment | variables,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    return run


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A copy of the project in which the smoke study has been run; read only.

    Where tests run in several processes (pytest-xdist), the first that needs it runs the study
    for all; so do several pytests one after another, where SAGE_TEST_STUDY names a folder.
    """
    together = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        together = together.parent
    place = Path(os.environ.get("SAGE_TEST_STUDY", together / "project"))
    folder, done = place / "sage", place / "done"
    place.mkdir(parents=True, exist_ok=True)
    with undisturbed(folder):
        if not done.exists():
            run_smoke(copy_project(folder))
            done.touch()
    return folder


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return once `condition` holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@contextmanager
def undisturbed(project: Path) -> Iterator[None]:
    """While `project` is not as it should be, or must not change."""
    with open(project.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_smoke(folder: Path) -> None:
    """Run the smoke study in a copy of the project; what its jobs took stands in JOBS."""
    recorder = {"PYTHONPATH": str(ROOT / "tests/recorder"), "SAGE_JOB_RECORD": str(folder / JOBS)}
    done = snakemake_in(folder, **recorder, **TOKENS)("--cores", "2", *SMOKE)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def smoke(project: Path) -> Path:
    """The results of the smoke study; read only."""
    return project / "results" / "smoke"


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model whose tokens differ in probability (`trainers`); read only."""
    from trainers import SUMS, write_parent

    return write_parent(tmp_path_factory.mktemp("parent") / "base", SUMS, spread=6.0)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A copy of `config/` to edit."""
    return Path(shutil.copytree(ROOT / "config", tmp_path / "config"))


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that says yes to all, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


@pytest.fixture(scope="session")
def smoke_study() -> ResolvedStudy:
    """The smoke study's settings."""
    return load_study("smoke", ROOT / "config")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread of torch, so that sums are in one order (`sampled`)."""
    from sampled import in_one_thread

    with in_one_thread():
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model that writes any text (`sampled`)."""
    from sampled import write_base

    return write_base(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def requests(base: Path) -> list[Request]:
    """Prompts for `base`, of several lengths."""
    from sampled import requests_of

    return requests_of(base)


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a small study, as HTML (`pages`)."""
    from pages import a_page, with_a_case
    from report_frames import a_study

    return a_page(with_a_case(a_study()), tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser that opens pages."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("no chromium is installed to open the page with")
    return found


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, a model and data of one's own (`own_things`); read only."""
    from own_things import make

    return make(tmp_path_factory.mktemp("own")).parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of leases of this test, and no allocation of SLURM around it."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "leases"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def site() -> Any:
    """The hook that adds pages to the site; it imports MkDocs only where MkDocs runs it."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs/pages.py")))
