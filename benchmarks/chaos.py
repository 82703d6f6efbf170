"""A study run while its processes are killed, compared byte by byte with a calm run.

    python -m benchmarks.chaos --study smoke --kills 20 --seed 1

Two copies of the project run the study with `make`'s own command. In the second copy random
processes of the run are killed (SIGKILL) at random times: jobs, their workers, and Snakemake
itself. The command is given again until it succeeds. Then samples, metrics, tables, figures,
histories and weights of both copies must be equal. Exhibits that measure time are left out of the
study. `--small` makes a study of two methods and one benchmark of it. `--kills 0 --other-cores 4`
compares two calm runs with different numbers of concurrent jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import yaml

from sage.runtime.files import text_sum
from sage.study.written import read_study

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "workflow", "config", "sage", "reports", "profiles", "environment.yml")

STARTING = 25.0
"""Seconds in which Snakemake has started and its first jobs as well."""

COMPARED = ("problems", "samples", "models", "metrics", "report/tables", "report/figures")
"""Folders of the results whose files must be equal."""

OF_THE_RUN = ("manifest.json",)
"""Files in them that tell of the run: times, memory, hardware."""

SNAKEMAKE_SHARE = 0.3
"""How often Snakemake itself is killed rather than one of the processes below it."""

PATIENCE = 50
"""Most restarts after the last kill; a run that needs more does not end by itself."""


@dataclass
class Killing:
    """What was killed, in order, and how often the command was given again."""

    victims: list[str] = field(default_factory=list)
    restarts: int = 0


def copy_project(target: Path, study: str, small: bool) -> None:
    """Copy what a run needs; the study loses what measures time, and more if `small`."""
    target.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / part)
    file = target / f"config/studies/{study}.yaml"
    content = read_study(study, target / "config").content
    kept = {n: e for n, e in content["exhibits"].items() if e["kind"] != "step_times"}
    content["exhibits"] = kept
    if small:
        content = cut_down(content)
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def cut_down(study: dict[str, Any]) -> dict[str, Any]:
    """The first model of a study with two of its methods, one benchmark and two exhibits."""
    name, model = next(iter(study["models"].items()))
    benchmark, trained_on = model["benchmarks"][0], model["rl"]["problems"]
    model["base"]["pretraining"] |= {"steps": 30, "documents": 1500}
    model["sft"] |= {"examples": 16}
    model["rl"] |= {"checkpoint_every": 1}
    model |= {"algorithms": ["grpo", "grpo_branch"], "benchmarks": [benchmark]}
    shown = ("accuracy", "training")
    exhibits = {kind: {"kind": kind, "title": kind.capitalize(), "model": name} for kind in shown}
    problems = {key: study["problems"][key] for key in (trained_on, benchmark)}
    evaluation = study["evaluation"] | {"samples": 2, "primary_k": 1, "bootstrap": 100}
    return study | {
        "models": {name: model},
        "problems": problems,
        "exhibits": exhibits,
        "evaluation": evaluation,
    }


def started(folder: Path, study: str, cores: str) -> subprocess.Popen[bytes]:
    """The command that `make` gives, in `folder`; its output goes to `run.log` there."""
    command = [sys.executable, "-m", "sage.tools.command", "run", study, "--cores", cores]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with open(folder / "run.log", "ab") as log:
        return subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PATH": tools}, stdout=log, stderr=log
        )


def calm_run(folder: Path, study: str, cores: str) -> float:
    """Run the study in `folder`; the seconds it took. Raises RuntimeError if it fails."""
    begin = time.monotonic()
    if started(folder, study, cores).wait():
        raise RuntimeError(f"the calm run failed; see {folder}/run.log")
    return time.monotonic() - begin


def chaotic_run(
    folder: Path, study: str, cores: str, kills: int, mean: float, rng: random.Random
) -> Killing:
    """Run the study in `folder` while killing; `mean` seconds pass between kills on average.

    Raises RuntimeError if it ends before all kills, or does not end after them.
    """
    done = Killing()
    process = started(folder, study, cores)
    calm_restarts = 0
    while True:
        enough = len(done.victims) >= kills
        try:
            status = process.wait(None if enough else rng.uniform(0.0, 2.0 * mean))
        except subprocess.TimeoutExpired:
            if victim := kill_one(process.pid, folder, rng):
                done.victims.append(victim)
                print(f"kill {len(done.victims)}: {victim}", flush=True)
            continue
        if status == 0:
            break
        calm_restarts += enough
        if calm_restarts > PATIENCE:
            raise RuntimeError(f"the run does not end after the last kill; see {folder}/run.log")
        done.restarts += 1
        process = started(folder, study, cores)
    if len(done.victims) < kills:
        raise RuntimeError(
            f"the study was finished after {len(done.victims)} of {kills} kills; lower --every"
        )
    return done


def kill_one(main: int, folder: Path, rng: random.Random) -> str:
    """Kill Snakemake, process `main`, or another that works in `folder`, such as a job, a fork
    with shared imports or a grading worker; what it was. Empty if it had gone."""
    try:
        top = psutil.Process(main)
        below = [one for one in psutil.process_iter() if one != top and works_in(one, folder)]
        chosen = top if not below or rng.random() < SNAKEMAKE_SHARE else rng.choice(below)
        words = chosen.cmdline()
        chosen.kill()
    except psutil.Error:
        return ""
    return "Snakemake" if chosen == top else described(words)


def works_in(process: psutil.Process, folder: Path) -> bool:
    """Whether the process lives and its working folder is `folder`."""
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and Path(process.cwd()) == folder.resolve()
    except psutil.Error:
        return False


def described(words: Sequence[str]) -> str:
    """A process by its command line, such as `job rl` or `worker sage.grading...`."""
    scripts = [word for word in words if "/.snakemake/scripts/" in word]
    if scripts:
        return f"job {Path(scripts[0]).stem.rpartition('.')[2]}"
    if any(word.endswith("/fork_server.py") for word in words):
        return "fork or server of shared imports"
    if "-m" in words[:-1]:
        return f"worker {words[words.index('-m') + 1]}"
    return f"process {Path(words[0]).name}" if words else "process that was ending"


def differences(calm: Path, other: Path) -> tuple[int, list[str]]:
    """How many files were compared, and the paths of those that are not equal."""
    left, right = (dict(contents(folder)) for folder in (calm, other))
    every = sorted(left.keys() | right.keys())
    return len(every), [path for path in every if left.get(path) != right.get(path)]


def contents(results: Path) -> Iterator[tuple[str, str]]:
    """Each compared file of a study's results with a sum of what must be equal in it."""
    for part in COMPARED:
        for path in sorted((results / part).rglob("*")):
            hidden = any(name.startswith(".") for name in path.relative_to(results).parts)
            if path.is_file() and not hidden and path.name not in OF_THE_RUN:
                yield path.relative_to(results).as_posix(), comparable(path)


def comparable(path: Path) -> str:
    """The SHA-256 of a file; of histories or a sample's manifest, without what tells of the run."""
    content = path.read_bytes()
    if path.name == "history.jsonl":
        rows = [json.loads(line) for line in content.splitlines()]
        plain = [{key: row[key] for key in row if key != "seconds"} for row in rows]
        content = json.dumps(plain).encode()
    elif path.name == "histories.parquet":
        content = pd.read_parquet(path).drop(columns="seconds").to_csv().encode()
    elif path.suffix == ".json" and path.with_suffix(".parquet").is_file():
        content = json.dumps(json.loads(content)["tokens"]).encode()
    return text_sum(content)


def main() -> int:
    """Exit status: 0 if both runs gave the same results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--study", default="smoke")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--cores", default="2")
    parser.add_argument("--other-cores", help="cores of the second copy, by default the same")
    parser.add_argument("--small", action="store_true", help="cut the study down")
    parser.add_argument("--every", type=float, help="mean seconds between kills")
    parser.add_argument("--folder", type=Path, help="where the copies go; kept")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    calm, chaos = folder / "calm", folder / "chaos"
    for copy in (calm, chaos):
        copy_project(copy, asked.study, asked.small)
    seconds = calm_run(calm, asked.study, asked.cores)
    # Half of the calm run's time for all kills: they come before the study can be finished. But
    # jobs must have begun, or Snakemake alone is there to be killed.
    mean = asked.every or max(seconds / (2 * max(asked.kills, 1)), STARTING)
    often = f"; a kill every {mean:.1f} s on average" if asked.kills else ""
    print(f"calm run: {seconds:.0f} s{often}", flush=True)
    rng = random.Random(asked.seed)
    cores = asked.other_cores or asked.cores
    done = chaotic_run(chaos, asked.study, cores, asked.kills, mean, rng)
    count, unequal = differences(*(copy / "results" / asked.study for copy in (calm, chaos)))
    kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(done.victims).most_common())
    print(f"{len(done.victims)} kills ({kinds or 'none'}), {done.restarts} restarts")
    print(f"{count} files compared, {len(unequal)} differ")
    for path in unequal:
        print(f"  {path}")
    if not unequal and asked.folder is None:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
    return bool(unequal)


if __name__ == "__main__":
    sys.exit(main())
