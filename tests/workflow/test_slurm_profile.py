"""What the profile for SLURM takes from the cluster, so that nobody has to edit it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from snakemake.profiles import ProfileConfigFileParser

from sage.exhibits import load_study
from sage.results import Results
from sage.tools.plan import plan
from sage.tools.plan_text import render_plan
from sage.tools.slurm import CPUS_PER_GPU, LARGEST, PARTITION_FILE, minutes, partitions

SINFO = """#!/bin/sh
cat <<END
cpu*|up|infinite|32|128000|(null)
gpu|up|2-00:00:00|64|515000+|gpu:a100:4(S:0-1)
gpu|up|2-00:00:00|64|1031000|gpu:h100:8(S:0-1)
old|down|10:00:00|16|64000|gpu:2
END
"""
TOOLS = {"sinfo": SINFO, "sacctmgr": "#!/bin/sh\necho lab\n", "sacct": "#!/bin/sh\n"}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the cluster's tools, and a folder to work in."""
    for name in ("SBATCH_PARTITION", "SBATCH_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools").mkdir()
    return tmp_path / "tools"


def put(tools: Path) -> None:
    for name, text in TOOLS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tools / "cat").symlink_to("/bin/cat")


def read() -> dict[str, Any]:
    with open(ROOT / "profiles/slurm/profile.yaml", encoding="utf-8") as stream:
        return dict(ProfileConfigFileParser().parse(stream))


def test_the_profile_takes_partitions_account_and_limits_from_the_cluster(tools: Path) -> None:
    put(tools)
    profile = read()
    assert "slurm_account=lab" in profile["default-resources"]
    assert sorted(profile["resources"]) == ["mem_mb=1031000", "runtime=2880"]
    assert profile["slurm-efficiency-report"] == "True"
    assert profile["slurm-partition-config"] == str(PARTITION_FILE)
    written = yaml.safe_load(PARTITION_FILE.read_text())["partitions"]
    assert written == {
        "cpu": {"max_mem_mb": 128000, "max_threads": 32, "max_gpu": 0},
        "gpu": {
            "max_mem_mb": 1031000,
            "max_threads": 64,
            "max_gpu": 8,
            "max_runtime": 2880,
            "available_gpu_models": ["a100", "h100"],
        },
    }


@pytest.mark.parametrize(
    ("cpus", "gpus", "asked"), [(64, 4, 8), (4, 2, 2), (16, 8, 2), (2, 4, 1), (6, 0, 8)]
)
def test_a_job_asks_for_no_more_cpus_than_every_node_has_for_its_gpus(
    tools: Path, cpus: int, gpus: int, asked: int
) -> None:
    put(tools)
    assert "cpus_per_gpu=8" in read()["default-resources"]
    node = f"small|up|10:00:00|{cpus}|64000|{f'gpu:{gpus}' if gpus else '(null)'}"
    (tools / "sinfo").write_text(SINFO.replace("\nEND", f"\n{node}\nEND"))
    assert f"cpus_per_gpu={asked}" in read()["default-resources"]


def test_names_in_the_environment_stand_before_those_of_the_cluster(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tools)
    monkeypatch.setenv("SBATCH_PARTITION", "gpu")
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    assert "slurm_account=mine" in read()["default-resources"]
    assert [each.name for each in partitions()] == ["gpu"]


@pytest.mark.usefixtures("tools")
def test_without_a_cluster_the_profile_can_still_be_read() -> None:
    profile = read()
    assert not {key for key in profile if key.startswith(("slurm-part", "slurm-eff"))}
    assert not any("slurm_account" in one for one in profile["default-resources"])
    assert f"cpus_per_gpu={CPUS_PER_GPU}" in profile["default-resources"]
    assert sorted(profile["resources"]) == [f"{key}={size}" for key, size in LARGEST.items()]


def test_the_plan_names_the_partitions_that_take_each_models_jobs(tools: Path) -> None:
    study = load_study("workstation", ROOT / "config")
    assert "SLURM" not in render_plan(study, plan(study, Results(Path("none"))))
    put(tools)
    said = render_plan(study, plan(study, Results(Path("none")))).splitlines()[-1]
    assert said.startswith("SLURM, jobs of qwen_math_7b (1 GPU, ")
    assert said.endswith(": gpu (gpu:a100:4, gpu:h100:8, 1031 GB, 48 h)")


@pytest.mark.parametrize(
    ("limit", "taken"),
    [("2-00:00:00", 2880), ("30:00", 30), ("1:30:00", 90), ("infinite", math.inf)],
)
def test_limits_of_time_are_read_as_sinfo_writes_them(limit: str, taken: float) -> None:
    assert minutes(limit) == taken
