"""The built package, installed and used outside of a clone, in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, copy_project

import sage
from sage.runtime.extras import lacking
from workflow.wheel import taken

pytestmark = pytest.mark.timeout(3000)

BASE = next((ROOT / "config/bases").iterdir())

DATA = (
    "sage/py.typed",
    "sage/study/open_choices.yaml",
    "sage/tools/speeds.json",
    "sage/training/settings.yaml",
)

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


LIGHT = """
import sys
for name in {packages}:
    sys.modules[name] = None
from sage.tools.command import main
sys.exit(main(sys.argv[1:]))
"""
"""The command `sage-rlvr` where the packages of the extras `train` and `workflow` are missing."""


def run(program: list[str | Path], line: str, folder: Path) -> tuple[int, str]:
    """The status of a command line in `folder`, and all that it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [*program, *line.split()],
        cwd=folder,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Problems, samples of two methods, and completions."""
    (tmp_path / "p.csv").write_text("problem,answer\n1 + 2,3\n2 + 2,4\n2 + 3,5\n")
    for name, right in {"a": "01", "b": "11"}.items():
        rows = [f"p{n},{right[s]}" for n in range(12) for s in range(2)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["problem,correct", *rows]))
    drawn = [{"problem": "1 + 2", "answer": "3", "completion": f"\\boxed{{{n}}}"} for n in (3, 4)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, drawn)))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("grade c.jsonl --out g.csv", 0, "pass@1 50.0 %"),
        ("compare a.csv b.csv --html c.html", 0, "c.html"),
        ("dose m --data p.csv", 1, "'sage-rlvr[train,workflow]'"),
        ("run smoke -n", 1, "'sage-rlvr[train,workflow]'"),
    ],
)
def test_grading_and_comparing_need_no_extra(
    line: str, status: int, said: str, folder: Path
) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    pins = [*extras["train"], *extras["workflow"]]
    packages = [re.split(r"[\[>=]", pin)[0].replace("-", "_") for pin in pins]
    assert {"torch", "snakemake"} < {*packages}
    program = [sys.executable, "-c", LIGHT.format(packages=packages)]
    done, told = run(program, line, folder)
    assert (done, said in told) == (status, True), told


@pytest.mark.parametrize(
    ("module", "extra"),
    [("torch", "train"), ("math_verify.parser", "train"), ("vllm", "vllm"), ("nowhere", None)],
)
def test_a_missing_package_names_its_extra(module: str, extra: str | None) -> None:
    said = lacking(ModuleNotFoundError("none", name=module), "it")
    assert (f"sage-rlvr[{extra}" in said) if extra else said == "none"
    assert sage.Grader.__name__ == "Grader"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the built package; all that it needs is borrowed from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source, venv = folder / "source", folder / "venv"
    copy_project(source)
    shutil.copytree(ROOT / "benchmarks", source / "benchmarks")
    for name in ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff"):
        shutil.copy2(ROOT / name, source)
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


@pytest.mark.slow
@pytest.mark.e2e
def test_every_command_works_outside_of_a_clone(installed: Path, folder: Path) -> None:
    for line, (status, said, files) in COMMANDS.items():
        done, told = run([installed / "bin/sage-rlvr"], line, folder)
        assert (done, said in told) == (status, True), f"{line}: {told}"
        assert all((folder / file).exists() for file in files), line
    (place,) = installed.glob("lib/*/site-packages/sage/project")
    assert not (place / "results").exists()


@pytest.mark.slow
def test_the_package_has_the_workflow_but_no_kept_runs(installed: Path) -> None:
    (wheel,) = installed.parent.glob("*.whl")
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "sage").rglob("*.py")]
    inside = [f"sage/project/{path}" for path in taken()]
    assert not [name for name in inside if name.endswith(("registered.json", "run.json"))]
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {*modules, *DATA, *inside}
    assert wheel.stat().st_size < 4e6
