"""README's commands, typed one after another in a clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, copy_project
from own_things import write_doubles

PLANNED = (r"^(make.*)", r"^(sage-rlvr run .*)")
"""What trains for long or sets up an environment: it is planned only (`-n`). Other tests run it."""


def commands() -> list[str]:
    text = re.sub(
        r"^```python.*?^```", "", (ROOT / "README.md").read_text("utf-8"), flags=re.M | re.S
    )
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith("maximise")]


def log_of(right: int) -> str:
    """Completions of 8 problems, 4 of each, of which so many are right."""
    rows = [
        {
            "problem": f"{n}+1",
            "answer": n + 1,
            "completion": f"<SOLUTION>{n + (d < right)}</SOLUTION>",
        }
        for n in range(8)
        for d in range(4)
    ]
    return "\n".join(map(json.dumps, rows))


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_the_commands_of_the_readme_run(own_folder: Path, tmp_path: Path) -> None:
    origin, clone = copy_project(tmp_path / "origin"), tmp_path / "sage"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    for one in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{one}_NAME": "a", f"GIT_{one}_EMAIL": "a@b"}

    def run(line: str, folder: Path) -> str:
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(line, shell=True, cwd=folder, env=environment, **told)
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout

    shutil.copy2(ROOT / "Makefile", origin)
    run("git init -q && git add -A && git commit -qm all", origin)
    first, *others = commands()
    assert first.startswith("git clone ADDRESS")
    run(first.replace("ADDRESS", str(origin)), tmp_path)
    shutil.copytree(own_folder / "model", clone / "my-model")
    write_doubles(clone, 10, "question,answer").rename(clone / "data.csv")
    for name, right in (("before", 1), ("after", 3)):
        (clone / f"{name}.jsonl").write_text(log_of(right), encoding="utf-8")
    assert len(others) >= 9
    said = {}
    for line in others:
        planned = any(re.match(pattern, line) for pattern in PLANNED)
        said[line] = run(f"{line} -n" if planned else line, clone)
    assert "pass@1" in said["sage-rlvr compare before.csv after.csv"]
    assert "index.html" in said["sage-rlvr eval my-model --data data.csv"]
