"""The built package, installed and used outside of a clone, in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, copy_project

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

BASE = next((ROOT / "config/bases").iterdir())

COMMANDS = {
    "--version": (0, "sage-rlvr 0.", []),
    "studies": (0, "smoke ", []),
    "keep --check": (1, "Kept runs", []),
    "grade c.jsonl --out g.csv": (0, "pass@1 50.0 %", ["g.csv"]),
    "compare a.csv b.csv --html c.html": (0, "pass@1", ["c.html"]),
    f"new --model {BASE} --data p.csv --out my.yaml": (0, "my.yaml", ["my.yaml"]),
    "new --method mine": (0, "mine", ["mine/study.yaml", "mine/my_method.py"]),
    "run my.yaml -n": (0, "1 sample", []),
    "run mine/study.yaml -n": (0, "15 rl", []),
    "run smoke -n": (0, "14 rl", []),
    "plan smoke": (0, "14", []),
    "check smoke": (0, "memory", []),
    f"eval {BASE} --data p.csv --samples 2 --tokens 4": (0, "index.html", []),
    f"dose {BASE} --data p.csv --samples 4 --max-tokens 8 --k 2 --out d": (0, "d", ["d"]),
}
"""Command lines, in this order: status, what they print, and the files that are there then."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the built package; all that it needs is borrowed from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source, venv = folder / "source", folder / "venv"
    copy_project(source)
    python = [sys.executable, "-m"]
    quiet = {"check": True, "capture_output": True, "text": True}
    build = ["pip", "wheel", source, "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([*python, *build], **quiet)
    shutil.rmtree(source)
    subprocess.run([*python, "venv", "--without-pip", venv], **quiet)
    (wheel,) = folder.glob("*.whl")
    into = ["pip", "--python", venv / "bin/python", "install", "--no-deps", wheel]
    subprocess.run([*python, *into], **quiet)
    (site,) = venv.glob("lib/*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return venv


def test_every_command_works_outside_of_a_clone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("problem,answer\n1 + 2,3\n2 + 2,4\n2 + 3,5\n")
    for name, right in {"a": "01", "b": "11"}.items():
        rows = [f"p{n},{right[s]}" for n in range(12) for s in range(2)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["problem,correct", *rows]))
    drawn = [{"problem": "1 + 2", "answer": "3", "completion": f"\\boxed{{{n}}}"} for n in (3, 4)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, drawn)))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for line, (status, said, files) in COMMANDS.items():
        done = subprocess.run(
            [installed / "bin/sage-rlvr", *line.split()],
            cwd=tmp_path,
            env=environment | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        told = done.stdout + done.stderr
        assert (done.returncode, said in told) == (status, True), f"{line}: {told}"
        assert all((tmp_path / file).exists() for file in files), line
    (place,) = installed.glob("lib/*/site-packages/sage/project")
    assert not (place / "results").exists()


def test_the_package_has_no_kept_runs(installed: Path) -> None:
    (wheel,) = installed.parent.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith(("run.json", "registered.json", ".png"))]
    assert wheel.stat().st_size < 4e6
