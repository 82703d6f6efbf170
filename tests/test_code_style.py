"""The tools that hold the code to its style, each run as a developer would run it.

They share pyproject.toml's settings; what they print is the failure's message.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent

CHECKS = [
    "ruff check",
    "ruff format --check",
    "mypy",
    "snakefmt --check Snakefile workflow",
    "snakemake --lint",
]


@pytest.mark.lint
@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", CHECKS)
def test_code_passes(check: str) -> None:
    tool, *arguments = check.split()
    done = subprocess.run([TOOLS / tool, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{check}\n{done.stdout}{done.stderr}"
