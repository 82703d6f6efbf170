"""The profile for SLURM: what it asks for in the paper's study, and a run on a real cluster.

`make test-slurm` brings the executor plugin; the cluster is one node, started by the tests where
Debian's slurm-wlm and munge are installed. In the one run there, an RL job is cancelled and
another hangs until its time is over, each after a checkpoint; the end must be that of a run
without SLURM. In another run Snakemake is itself a job, and one of its jobs takes too much memory;
in a third Snakemake is killed, and its job goes on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import slurm_cluster
import yaml
from conftest import ROOT, copy_project, snakemake_in

from sage.runtime.survivors import COMMAND
from sage.tools.slurm import LARGEST, PARTITION_FILE

NO_PLUGIN = "snakemake-executor-plugin-slurm is not installed: make test-slurm"
ABSENT = slurm_cluster.missing() if find_spec("snakemake_executor_plugin_slurm") else NO_PLUGIN

PROFILE = yaml.safe_load((ROOT / "profiles/slurm/profile.yaml").read_text())
Jobs = dict[str, list[dict[str, str]]]

CHECKPOINT = 8
STEPS = 5 * CHECKPOINT
CANCELLED, LATE = "grpo", "grpo_branch"
TARGET = "metrics/pass_at_k.parquet"
TOOLS = Path(sys.executable).parent
PATH = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
QUICK = ["--slurm-status-command", "squeue", "--latency-wait", "5"]
QUICK += ["--slurm-init-seconds-before-status-checks", "1"]
"""Of these options only the first says what the cluster is like; the others save time."""


def cut_study(folder: Path) -> None:
    """Write the smoke study, cut to two RL jobs and what they stand on, as `config/studies/cut`."""
    study = yaml.safe_load((folder / "config/studies/smoke.yaml").read_text())
    tiny = study["models"]["tiny"]
    del tiny["sft"]
    tiny["base"]["pretraining"] |= {"documents": 2000, "steps": 60}
    tiny["rl"] |= {"steps": STEPS, "checkpoint_every": CHECKPOINT}
    tiny |= {"algorithms": [CANCELLED, LATE], "benchmarks": ["arithmetic"]}
    tiny |= {"job": {"gpus": 1, "memory_gb": 3, "hours": 2}}
    study["models"] = {"tiny": tiny}
    study["exhibits"] = {"table1": {"kind": "accuracy", "title": "Accuracy", "model": "tiny"}}
    (folder / "config/studies/cut.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


@dataclass(frozen=True)
class Runs:
    """The results of the same study with and without SLURM, and the jobs that SLURM had."""

    alone: Path
    cluster: Path
    jobs: list[slurm_cluster.Job]
    interrupted_at: dict[str, int]

    def of(self, rule: str) -> list[slurm_cluster.Job]:
        """Jobs of a rule, or of a rule with the given wildcards, in the order of submission."""
        pattern = rf"rule_{rule}(_wildcards_.*)?"
        return [job for job in self.jobs if re.fullmatch(pattern, job.comment)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folders = [copy_project(tmp_path_factory.mktemp(name) / "sage") for name in ("alone", "slurm")]
    for folder in folders:
        cut_study(folder)
    alone, shared = (folder / "results/cut" for folder in folders)
    asked = [f"results/cut/{TARGET}", "--config", "study=cut", "device=cpu"]
    done = snakemake_in(folders[0])("--cores", "2", *asked)
    assert done.returncode == 0, done.stdout
    printed = folders[1] / "snakemake.log"
    with slurm_cluster.cluster(tmp_path_factory.mktemp("cluster")), printed.open("w") as log:
        process = subprocess.Popen(
            [TOOLS / "snakemake", *asked, "--workflow-profile", "profiles/slurm", *QUICK],
            cwd=folders[1],
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            interrupted_at = interrupt(shared, process, printed)
            process.wait(600)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        assert process.returncode == 0, printed.read_text()
        return Runs(alone, shared, slurm_cluster.jobs(), interrupted_at)


def interrupt(results: Path, process: subprocess.Popen[Any], printed: Path) -> dict[str, int]:
    """Cancel one RL job and freeze another past its time, each after its first checkpoint.

    Returns the step of the last checkpoint of each.
    """
    steps: dict[str, int] = {}
    while set(steps) != {CANCELLED, LATE}:
        assert process.poll() is None, printed.read_text()
        for row in {CANCELLED, LATE} - set(steps):
            scratch = results / f"scratch/tiny/{row}/seed3407"
            if not (saved := list(scratch.glob("checkpoint-*/trainer_state.json"))):
                continue
            time.sleep(0.3)  # for the other files of the checkpoint
            (job,) = (
                job
                for job in slurm_cluster.jobs()
                if job.comment == f"rule_rl_wildcards_tiny_{row}_3407"
            )
            if row == LATE:
                freeze(job.slurm_id)
                limit = [f"JobId={job.slurm_id}", "TimeLimit=1"]
                subprocess.run(["scontrol", "update", *limit], check=True)
            else:
                subprocess.run(["scancel", job.slurm_id], check=True)
            steps[row] = max(int(path.parent.name.split("-")[1]) for path in saved)
        time.sleep(0.05)
    return steps


def freeze(slurm_id: str) -> None:
    """Stop the processes of a job where they are; SLURM's clock goes on."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            of_job = process.environ().get("SLURM_JOB_ID") == slurm_id
            if of_job and process.name().startswith("python"):
                process.suspend()


@pytest.mark.slurm
@pytest.mark.timeout(1500)
@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
class TestOnACluster:
    def test_jobs_get_what_they_ask_for(self, runs: Runs) -> None:
        first = {job.comment: job for job in reversed(runs.jobs)}
        rl = first[f"rule_rl_wildcards_tiny_{CANCELLED}_3407"]
        assert (rl.gpus, rl.nodes, rl.cpus, rl.memory, rl.minutes) == (1, "1", 8, 3000, 120)
        (sample, *others) = runs.of("sample")
        assert len(others) == 2
        assert (sample.gpus, sample.cpus, sample.memory, sample.minutes) == (1, 8, 3000, 120)
        (report,) = runs.of("report")
        assert (report.gpus, report.cpus, report.memory, report.minutes) == (0, 1, 8000, 240)
        (pretrain,) = runs.of("pretrain")
        assert (pretrain.gpus, pretrain.cpus, pretrain.memory) == (0, 1, 4000)

    def test_light_rules_do_not_queue(self, runs: Runs) -> None:
        assert (runs.cluster / "problems/arithmetic.jsonl").is_file()
        assert not runs.of("problems") + runs.of("adopt")

    def test_a_cancelled_job_comes_back_with_more(self, runs: Runs) -> None:
        cancelled, second = runs.of(f"rl_wildcards_tiny_{CANCELLED}_3407")
        assert (cancelled.state, second.state) == ("CANCELLED", "COMPLETED")
        assert (second.memory, second.minutes) == (2 * cancelled.memory, 2 * cancelled.minutes)

    def test_a_job_past_its_time_comes_back(self, runs: Runs) -> None:
        late, second = runs.of(f"rl_wildcards_tiny_{LATE}_3407")
        assert (late.state, second.state) == ("TIMEOUT", "COMPLETED")

    @pytest.mark.parametrize("row", [CANCELLED, LATE])
    def test_training_goes_on_from_its_checkpoint(self, runs: Runs, row: str) -> None:
        log = (runs.cluster / f"logs/models/tiny/{row}/seed3407.log").read_text()
        assert 0 < log.count("rewards/correct/mean") <= STEPS - runs.interrupted_at[row]
        folder = runs.cluster / f"models/tiny/{row}/seed3407"
        history = [json.loads(line)["step"] for line in (folder / "history.jsonl").open()]
        assert history == list(range(1, STEPS + 1))

    def test_results_are_those_of_a_run_without_slurm(self, runs: Runs) -> None:
        for row in (CANCELLED, LATE):
            weights = f"models/tiny/{row}/seed3407/adapter_model.safetensors"
            assert (runs.cluster / weights).read_bytes() == (runs.alone / weights).read_bytes()
        left, right = (pd.read_parquet(folder / TARGET) for folder in (runs.alone, runs.cluster))
        assert set(left["algorithm"]) == {"base", CANCELLED, LATE}
        pd.testing.assert_frame_equal(left, right, check_exact=True)


SNAKEFILE = """
rule all:
    localrule: True
    input: "here", "hungry", "wide"

rule here:
    localrule: True
    output: "here"
    shell: "env > {{output}}"

rule hungry:
    output: "hungry"
    shell: "{python} -c 'import time; x = bytearray(14 * 10**8); time.sleep(8)' && touch {{output}}"

rule wide:
    output: "wide"
    threads: 3
    shell: "touch {{output}}"
"""


@pytest.mark.slurm
@pytest.mark.timeout(600)
@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
def test_snakemake_as_a_job_sees_its_jobs_end_and_gives_a_killed_one_more_memory(
    tmp_path: Path,
) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE.format(python=sys.executable))
    shutil.copytree(ROOT / "profiles/slurm", tmp_path / "profiles/slurm")
    own = ["--time", "60", "--cpus-per-task", "2", "profiles/slurm/controller.sh"]
    with slurm_cluster.cluster(tmp_path / "cluster"):
        done = subprocess.run(
            ["sbatch", "--wait", *own, *QUICK],
            cwd=tmp_path,
            env=os.environ | {"PATH": PATH},
            capture_output=True,
            text=True,
            timeout=500,
        )
        jobs = {
            name: [job for job in slurm_cluster.jobs() if job.comment == name]
            for name in ("", "rule_hungry", "rule_wide")
        }
    (log,) = tmp_path.glob("sage-*.log")
    assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
    (controller,) = jobs[""]
    assert (controller.state, controller.cpus, controller.minutes) == ("COMPLETED", 2, 60)
    (wide,) = jobs["rule_wide"]
    assert (wide.state, wide.cpus, wide.memory, wide.minutes) == ("COMPLETED", 3, 1000, 30)
    killed, again = jobs["rule_hungry"]
    assert killed.state in ("FAILED", "OUT_OF_MEMORY")
    output = tmp_path / f"logs/slurm/rule_hungry/{killed.slurm_id}.log"
    assert "exceeded memory limit" in output.read_text()
    assert (again.state, again.memory) == ("COMPLETED", 2 * killed.memory)
    (partition,) = yaml.safe_load((tmp_path / PARTITION_FILE).read_text())["partitions"].values()
    assert partition["max_gpu"] == 2
    kept = re.findall("^SLURM_.*", (tmp_path / "here").read_text(), re.M)
    assert kept == ["SLURM_CONF=/etc/slurm/slurm.conf"]


KILLED = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from sage.runtime.survivors import note_owner

onstart:
    note_owner(Path.cwd(), workflow.executor_plugin.name)

rule long:
    output: "long"
    shell: "echo started >> runs; until test -e go; do sleep 0.2; done; touch {{output}}"
"""


@pytest.mark.slurm
@pytest.mark.timeout(600)
@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
def test_a_new_run_does_not_start_beside_the_jobs_of_a_killed_one(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(KILLED.format(root=str(ROOT)))
    shutil.copytree(ROOT / "profiles/slurm", tmp_path / "profiles/slurm")
    words = ["run", "--workflow-profile", "profiles/slurm", *QUICK]
    python = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

    def start(*where: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*where, sys.executable, "-m", COMMAND, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": python, "PATH": PATH},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    with slurm_cluster.cluster(tmp_path / "cluster"):
        first = start()
        while not (tmp_path / "runs").exists():
            assert first.poll() is None, first.communicate()[0]
            time.sleep(0.2)
        first.kill()
        first.communicate()
        (job,) = slurm_cluster.jobs()
        beside = start("unshare", "--pid", "--fork", "--mount-proc")  # sees no process of the job
        said = beside.communicate(timeout=100)[0]
        assert beside.returncode == 1
        assert f"`scancel {job.slurm_id}`; then run the same command again" in said
        (tmp_path / "go").touch()
        while slurm_cluster.jobs()[0].state != "COMPLETED":
            time.sleep(0.2)
        last = start()
        said = last.communicate(timeout=200)[0]
        assert last.returncode == 0, said
        assert "lock of a Snakemake that was killed is released" in said
        assert len(slurm_cluster.jobs()) == 1
    assert (tmp_path / "runs").read_text() == "started\n"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Jobs]:
    """What the profile asks for in the paper's study: jobs by rule, for the attempts 1 and 3."""
    folder = copy_project(tmp_path_factory.mktemp("planned") / "sage")
    # Without the plugin Snakemake knows neither the executor nor its options.
    ours = (key for key in PROFILE if not key.startswith(("slurm-", "?if")))
    kept = {key: PROFILE[key] for key in ours}
    (folder / "profiles/slurm/profile.yaml").write_text(yaml.safe_dump(kept))
    plan = ["-n", "--executor", "dryrun", "--workflow-profile", "profiles/slurm"]
    found: dict[int, Jobs] = {}
    for attempt in (1, 3):
        asked = [*plan, "--attempt", str(attempt), "--config", "study=paper"]
        done = snakemake_in(folder)(*asked)
        assert done.returncode == 0, done.stdout
        found[attempt] = {}
        for rule, block in re.findall(r"^rule (\w+):\n((?:    .*\n)+)", done.stdout, re.M):
            for line in re.findall(r"^    resources: (.*)$", block, re.M):
                resources = dict(re.findall(r"(\w+)=([^,]+)", line))
                found[attempt].setdefault(rule, []).append(resources)
    return found


@pytest.mark.slow
def test_the_papers_jobs_ask_for_what_they_need(planned: dict[int, Jobs]) -> None:
    assert "gpu" not in PROFILE["resources"]  # it would cut what a job asks for
    jobs = planned[1]
    on_gpus = {rule for rule in jobs if any("gpu" in job for job in jobs[rule])}
    assert on_gpus == {"sft", "rl", "sample", "measure_with_model"}
    for rule in on_gpus:
        for job in jobs[rule]:
            assert int(job["gpu"]) >= 1
            assert int(job["mem_mb"]) >= 16_000
            assert int(job["runtime"]) >= 60
    for job in chain.from_iterable(jobs.values()):
        assert "slurm_partition" not in job  # the plugin chooses
        assert job["nodes"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["mem_mb", "runtime"])
def test_a_third_attempt_asks_for_more_up_to_the_limit(
    planned: dict[int, Jobs], resource: str
) -> None:
    limit = LARGEST[resource]  # without a cluster
    cut = 0
    for rule in planned[1]:
        for first, third in zip(planned[1][rule], planned[3][rule], strict=True):
            assert int(third[resource]) == min(3 * int(first[resource]), limit)
            cut += int(third[resource]) < 3 * int(first[resource])
    assert (cut > 0) == (resource == "runtime")


def test_both_profiles_rerun_for_the_same_reasons() -> None:
    default = yaml.safe_load((ROOT / "profiles/default/profile.yaml").read_text())
    assert default["rerun-triggers"] == PROFILE["rerun-triggers"]
