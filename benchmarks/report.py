"""A report of the paper's size, made by the workflow from files: seconds, memory, size of the
page.

Four models, every row, five training seeds, about 320,000 completions (`paper_files`). First the
metrics are made, then the rendering is measured: tables, figures, claims, excerpts and the page,
from metrics and samples on disk. Snakemake runs both on two cores. Its own time and memory count;
shared memory pages count in each process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.paired import Comparison
from benchmarks.paper_files import write_results, write_study
from sage.exhibits import kind_of, load_study
from sage.results import Results

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "workflow", "config", "sage", "reports", "profiles", "environment.yml")
CORES, SECONDS, GIB, MEGABYTES = 2, 60.0, 2.0, 15.0
STOOD_IN_FOR = {
    "problems",
    "decontaminate",
    "fetch",
    "pretrain",
    "sft",
    "adopt",
    "rl",
    "sample",
    "measure_with_model",
}
"""Rules replaced by stand-in files. They need models or a network and must not run."""

_SNAKEMAKE = str(Path(sys.executable).parent / "snakemake")
_STUDY = ("--config", "study=paper.yaml")
_POLL = 0.05


@dataclass
class Process:
    """Usage of a process: `cpu` seconds, `peak` resident memory in GiB."""

    name: str
    started: float
    ended: float
    cpu: float = 0.0
    peak: float = 0.0


@dataclass(frozen=True)
class Watched:
    """A call of Snakemake: seconds, `cpu` and `peak` of all its processes, and its jobs."""

    seconds: float
    cpu: float
    peak: float
    jobs: tuple[Process, ...]


def comparisons() -> Iterator[Comparison]:
    """Rendering compared with a minute and 2 GiB, the page with 15 MB; the jobs are printed."""
    with tempfile.TemporaryDirectory() as temporary:
        project = copy_project(Path(temporary) / "project")
        study_file = project / "paper.yaml"
        write_study(study_file, project / "config/studies/paper.yaml")
        study = load_study(str(study_file), project / "config")
        results = Results(project / "results/paper")
        start = time.perf_counter()
        count = write_results(study, results)
        print(f"{count:,} completions written in {time.perf_counter() - start:.0f} s", flush=True)
        measured = [results.metrics(name) for name in ("pass_at_k", "contamination")]
        measured += [
            results.measured(name)
            for name in study.study.exhibits
            if not kind_of(study, name).with_model
        ]
        _print("metrics", watched(project, measured))
        rendering = watched(project, [results.page])
        _print("rendering", rendering)
        page = results.page.stat().st_size / 1e6
        name = "rendering a report of the paper's size, against a minute"
        yield _against(name, rendering.seconds, SECONDS, "s")
        name = "memory of all of rendering's processes, against 2 GiB"
        yield _against(name, rendering.peak, GIB, "GiB")
        yield _against("the page, against 15 MB", page, MEGABYTES, "MB")


def copy_project(target: Path) -> Path:
    """The files that the workflow needs, in a new folder."""
    target.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, target / part, ignore=ignored)
        else:
            shutil.copy2(ROOT / part, target / part)
    return target


def watched(project: Path, targets: Sequence[Path]) -> Watched:
    """Run Snakemake for `targets`. Raises RuntimeError with its output if it fails."""
    command = [
        _SNAKEMAKE,
        *(str(path.relative_to(project)) for path in targets),
        "--cores",
        str(CORES),
        "--rerun-triggers",
        "mtime",
    ]
    command += [*_STUDY, "--allowed-rules", *allowed_rules(project)]
    seen: dict[int, Process] = {}
    peak, start = 0.0, time.perf_counter()
    with open(project / "snakemake.log", "w+") as log:
        snakemake = subprocess.Popen(
            command, cwd=project, stdout=log, stderr=subprocess.STDOUT, text=True
        )
        while snakemake.poll() is None:
            peak = max(peak, _look(snakemake.pid, seen))
            time.sleep(_POLL)
        seconds = time.perf_counter() - start
        log.seek(0)
        if snakemake.returncode:
            raise RuntimeError(log.read())
    jobs = sorted((job for job in seen.values() if job.name), key=lambda job: job.started)
    return Watched(seconds, sum(process.cpu for process in seen.values()), peak, tuple(jobs))


def allowed_rules(project: Path) -> list[str]:
    """The workflow's rules without those replaced by stand-ins."""
    command = [_SNAKEMAKE, "--list-rules", *_STUDY]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    return [rule for rule in done.stdout.split() if rule not in STOOD_IN_FOR]


def _print(name: str, found: Watched) -> None:
    rows = [(name, found.seconds, found.cpu, found.peak)]
    rows += [(f"  {job.name}", job.ended - job.started, job.cpu, job.peak) for job in found.jobs]
    for title, seconds, cpu, peak in rows:
        print(f"{title:20} {seconds:6.1f} s {cpu:6.1f} s of CPU {peak:5.2f} GiB", flush=True)


def _look(pid: int, seen: dict[int, Process]) -> float:
    """Record every process under `pid`; returns their total resident memory in GiB."""
    total, now, family = 0.0, time.time(), [psutil.Process(pid)]
    with suppress(psutil.NoSuchProcess):
        family += family[0].children(recursive=True)
    for process in family:
        with suppress(psutil.NoSuchProcess):
            gib = process.memory_info().rss / 2**30
            mine = seen.setdefault(process.pid, Process("", process.create_time(), now))
            mine.name = mine.name or _script_of(process.cmdline())
            times = process.cpu_times()
            mine.cpu, mine.ended = max(mine.cpu, times.user + times.system), now
            mine.peak = max(mine.peak, gib)
            total += gib
    return total


def _script_of(command: Sequence[str]) -> str:
    """The script of workflow/scripts that a process runs, or nothing."""
    script = Path(command[1] if len(command) > 1 else "")
    if script.parent.name != "scripts" or script.suffix != ".py":
        return ""
    return script.stem.partition(".")[2]


def _against(name: str, value: float, limit: float, unit: str) -> Comparison:
    return Comparison(name, value / limit, "at most 1", value, limit, 1, unit)
