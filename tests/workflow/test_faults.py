"""Faults of files, disks, memory, network and clock: one message, and nothing half-written.

docs/running.md has a table of them; each row names its test here or elsewhere.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import ROOT
from huggingface_hub import constants
from safetensors import SafetensorError
from safetensors.torch import save_file

from sage.evaluation.metrics import write_metrics
from sage.fetched_bases import fetch_base
from sage.policies import load_model
from sage.problems import fetching
from sage.problems.entries import HubFiles
from sage.problems.record import read_problems, write_problems
from sage.runtime.faults import Damaged, Fault, explained, require_writable
from sage.runtime.files import atomic_directory, write_text_atomic
from sage.runtime.manifest import Manifest
from sage.runtime.tables import read_frame
from sage.sampling.interface import Completion
from sage.sampling.shards import Shards

TABLE = (ROOT / "docs/running.md").read_text("utf-8").split("\n## Faults\n")[1].split("\n## ")[0]
MIB = 2**20


def rows_of_the_table() -> list[list[str]]:
    lines = [line for line in TABLE.splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_and_the_tests_agree() -> None:
    named = re.findall(r"`(test_\w+)\.py::(test_\w+)`", TABLE)
    assert len(named) >= len(rows_of_the_table()) >= 11
    for module, test in named:
        text = next((ROOT / "tests").rglob(f"{module}.py")).read_text(encoding="utf-8")
        assert f"def {test}(" in text, f"{module}.py has no {test}"
    here = set(re.findall(r"^def (test_\w+)\(", Path(__file__).read_text("utf-8"), re.M))
    here -= {"test_the_table_and_the_tests_agree"}
    assert here == {test for module, test in named if module == "test_faults"}
    assert all(re.search(r"`test_\w+\.py::", row[-1]) for row in rows_of_the_table())


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"this account may not mount a disk: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_a_full_disk_leaves_the_old_file_and_is_named(tmpfs: Path) -> None:
    write_text_atomic(tmpfs / "a.txt", "old")
    with pytest.raises(OSError, match="No space left") as error:
        write_text_atomic(tmpfs / "a.txt", "x" * 4 * MIB)
    assert ((tmpfs / "a.txt").read_text(), left(tmpfs)) == ("old", ["a.txt"])
    message = explained(error.value, tmpfs) or ""
    assert message.startswith(f"{tmpfs}/a.txt: cannot be written: the disk or quota is full")
    assert "set `results` in config/config.yaml to another disk" in message


def test_weights_on_a_full_disk_leave_nothing(tmpfs: Path) -> None:
    with pytest.raises(SafetensorError) as error, atomic_directory(tmpfs / "policy") as folder:
        save_file({"w": torch.zeros(MIB)}, folder / "model.safetensors")
    assert left(tmpfs) == []
    message = explained(error.value, tmpfs) or ""
    assert message.startswith(f"{tmpfs}/policy: cannot be written: the disk or quota is full")


def test_a_folder_is_flushed_and_whole_whenever_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, flushed = tmp_path / "policy", set()

    def write(text: str) -> None:
        with atomic_directory(policy) as folder:
            for name in ("weights", "snapshots/step2/weights"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)

    def killed(folder: Path, **_: object) -> None:
        (folder / "weights").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", lambda file: flushed.add(os.fstat(file).st_ino))
    write("old")
    assert {path.stat().st_ino for path in (policy, *policy.rglob("*"))} <= flushed
    monkeypatch.setattr(shutil, "rmtree", killed)
    with suppress(KeyboardInterrupt):
        write("new")
    files = {path.relative_to(policy): path.read_text() for path in policy.rglob("weights")}
    assert files == {Path("weights"): "new", Path("snapshots/step2/weights"): "new"}


def test_a_disk_without_room_is_named_whatever_a_library_says(tmpfs: Path) -> None:
    with suppress(OSError):
        (tmpfs / "all").write_bytes(b"x" * 4 * MIB)
    message = explained(RuntimeError("PytorchStreamWriter failed"), tmpfs) or ""
    assert message.startswith(f"{tmpfs}: cannot be written: the disk or quota is full")
    (tmpfs / "all").unlink()
    assert explained(RuntimeError("PytorchStreamWriter failed"), tmpfs) is None


def test_what_a_kill_leaves_is_removed_by_the_next_to_write_there(tmp_path: Path) -> None:
    code = (
        "import os, sys; from sage.runtime.files import *\n"
        "with atomic_directory(Path('policy')) as folder, atomic_file(Path('a.csv')) as file:\n"
        "    (folder / 'weights').write_text('half'); os.kill(os.getpid(), 9)"
    )
    for name in (".a.csv.7-kept", ".a.csv.tex", f".a.csv.{os.getpid()}-x"):
        (tmp_path / name).touch()
    kept = left(tmp_path)
    os.utime(tmp_path / ".a.csv.7-kept", (later := time.time() + 600, later))
    words = [sys.executable, "-c", code]
    for _ in range(2):
        subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
        assert len(left(tmp_path)) == len(kept) + 3
        for name in {*os.listdir(tmp_path)} - {*kept}:
            os.utime(tmp_path / name, (0, 0))
    words[-1] = code.replace("; os.kill(os.getpid(), 9)", "")
    subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert left(tmp_path) == sorted([*kept, "a.csv", "policy", "weights"])


def test_a_file_over_the_limit_of_its_size_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            write_text_atomic(tmp_path / "a.txt", "x" * 2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left(tmp_path) == []
    assert f"{tmp_path}/a.txt: cannot be written" in (explained(error.value, tmp_path) or "")


def test_a_read_only_folder_stops_the_run_before_any_job(tmpfs: Path) -> None:
    require_writable(tmpfs / "results/smoke")
    assert left(tmpfs) == ["results", "smoke"]
    subprocess.run(["mount", "-o", "remount,ro", str(tmpfs)], check=True)
    with pytest.raises(Fault, match=rf"{tmpfs}/results/other: .* \(Read-only file system\)"):
        require_writable(tmpfs / "results/other")
    with pytest.raises(Fault, match=r"set `results` in config/config\.yaml to a folder that can"):
        require_writable(tmpfs / "results/smoke")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.mkdir()  # what no account can read as a file, not even root
    for read in (read_problems, read_frame):
        with pytest.raises(IsADirectoryError) as error:
            read(path)
        message = explained(error.value, tmp_path) or ""
        assert message.startswith(f"{path}: cannot be read or written (Is a directory); give")


def test_a_line_that_is_no_problem_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_bytes(b'{"problem_id": "1\xff"}\n')
    with pytest.raises(Damaged, match=rf"{path}, line 1: not a problem .* delete {path} and run"):
        read_problems(path)


def test_an_empty_problem_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(Damaged, match=r"a.jsonl: has no problems; delete .* and run"):
        read_problems(tmp_path / "a.jsonl")
    with pytest.raises(Fault, match="no problem is left"):
        write_problems([], tmp_path / "a.jsonl")


def frame() -> pd.DataFrame:
    return pd.DataFrame({"problem_id": ["a", "b"] * 500, "status": ["correct", "wrong"] * 500})


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "easy.parquet"
    frame().to_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Damaged, match=rf"{path}: is no whole Parquet file .* delete {path} and"):
        read_frame(path)


def test_a_shard_with_changed_bytes_is_named(tmp_path: Path) -> None:
    store = Shards(tmp_path, {"seed": 1}, {"a": (1, 2)})
    missing = store.missing([0], 4, 4)
    texts = [f"completion {i} " * 50 for i in range(4)]
    store.draw(missing, lambda keys: [Completion(t, (1,), "stop") for t in texts[: len(keys)]])
    (path,) = tmp_path.rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(Damaged, match=rf"{path}: is no whole Parquet file"):
        list(store.chunks([0], 4))


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "samples/tiny/grpo/seed1/easy.parquet"
    path.parent.mkdir(parents=True)
    frame().to_parquet(path)
    with pytest.raises(Damaged, match=rf"{path}: has no column '\w+' \(it has problem_id, status"):
        write_metrics([path], 100, tmp_path / "metrics")
    assert not (tmp_path / "metrics").exists()


def test_damaged_weights_are_named(smoke: Path, tmp_path: Path) -> None:
    for file in (smoke / "models/tiny/base").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    load_model(tmp_path)
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(Damaged, match=rf"{tmp_path}: model.safetensors is damaged .* delete"):
        load_model(tmp_path)


@pytest.fixture
def silent_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A hub that takes connections and never answers."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(16)
    place = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", place)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(fetching, "PATIENCE", 0.2)
    monkeypatch.setattr(fetching, "LAST_PATIENCE", 0.4)
    monkeypatch.setattr(fetching, "PAUSES", (0.1, 0.1, 0.1))
    monkeypatch.delenv("SAGE_MIRROR", raising=False)
    yield place
    server.close()


def test_a_network_that_hangs_is_given_up(silent_hub: str, tmp_path: Path) -> None:
    started = time.monotonic()
    hub = {"repository": "someone/sums", "revision": "0" * 40, "files": [{"path": "test.jsonl"}]}
    files = HubFiles.model_validate(hub)
    with pytest.raises(fetching.DataError) as error:
        fetching._download("sums", files, files.files[0], None, force=False)
    assert f"the Hugging Face hub ({silent_hub}) can be reached" in str(error.value)
    assert "takes connections, but gave no answer in 0.4 s" in str(error.value)
    base = {"source": "hub", "repository": "owner/name", "revision": "main"}
    with pytest.raises(Fault, match=r"owner/name, revision main: .* gave no answer in 0.4 s"):
        fetch_base(base, tmp_path / "models/base", Manifest({}, 1, time.time()))
    assert left(tmp_path / "models") == []
    assert time.monotonic() - started < 10.0


def test_a_clock_that_jumps_back_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest({}, 1, time.time())
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 86_400.0)
    content = manifest.content(tokens=100)
    assert 0.0 <= content["wall_seconds"] < 60.0
    assert content["tokens_per_second"] > 0.0


def test_a_job_without_memory_says_what_to_lower(tmp_path: Path) -> None:
    code = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sage.runtime.faults import explained
size = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + 2**26, resource.RLIM_INFINITY))
try:
    bytearray(2**30)
except MemoryError as error:
    print(explained(error, Path(sys.argv[2])))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.startswith("memory is short (no more can be had); run fewer jobs at once")
    assert "on a cluster raise `memory_gb` in the `job` section of the model" in done.stdout
    assert "raise `micro_batches` of training, after which all runs of that model" in done.stdout
    message = explained(RuntimeError("can't start new thread"), tmp_path) or ""
    assert message.startswith("memory is short (can't start new thread); run fewer jobs at once")


def test_a_bug_is_no_fault(tmp_path: Path) -> None:
    assert explained(KeyError("x"), tmp_path) is None
    assert explained(FileNotFoundError(2, "No such file", "x"), tmp_path) is None


SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})

FAULTS = {faults}

rule all:
    input: expand("done/{{fault}}", fault=FAULTS)

rule one:
    output: "done/{{fault}}"
    log: "logs/{{fault}}.log"
    script: "job.py"
"""
JOB = """
import resource
from pathlib import Path
from sage.runtime.job import job
from sage.runtime.files import write_text_atomic

fault, output = snakemake.wildcards.fault, Path(snakemake.output[0])
with job(snakemake):
    from sage.runtime.tables import read_frame

    if fault.startswith("full"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
        write_text_atomic(output, "x" * 2**21)
    elif fault == "unreadable":
        read_frame("folder.parquet")
    elif fault == "truncated":
        read_frame("cut.parquet")
    elif fault == "column":
        read_frame("whole.parquet", ["problem_id", "completion"])
    elif fault == "memory":
        raise MemoryError
    write_text_atomic(output, "whole")
"""
MESSAGES = {
    "unreadable": "folder.parquet: cannot be read or written (Is a directory)",
    "truncated": "cut.parquet: is no whole Parquet file",
    "column": "whole.parquet: has no column 'completion' (it has problem_id, status)",
    "memory": "memory is short",
}


def run_jobs(folder: Path, cores: int, *faults: str) -> subprocess.CompletedProcess[str]:
    (folder / "Snakefile").write_text(SNAKEFILE.format(root=str(ROOT), faults=faults))
    (folder / "job.py").write_text(JOB)
    tool = Path(sys.executable).parent / "snakemake"
    return subprocess.run(
        [tool, "--cores", str(cores), "--keep-going", "--quiet"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_no_job_starts_after_one_has_found_the_disk_full(tmp_path: Path) -> None:
    done = run_jobs(tmp_path, 1, *(f"full{number}" for number in range(4)))
    assert done.returncode == 1
    assert len(list((tmp_path / "logs").iterdir())) == 1
    assert "cannot be written: the disk or quota is full" in done.stdout


@pytest.mark.slow
def test_other_jobs_go_on_beside_those_that_fail(tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    frame().to_parquet(tmp_path / "whole.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-8])
    done = run_jobs(tmp_path, 2, *MESSAGES, "fine")
    assert done.returncode == 1
    assert [path.name for path in (tmp_path / "done").iterdir()] == ["fine"], done.stdout
    for fault, message in MESSAGES.items():
        last = (tmp_path / f"logs/{fault}.log").read_text().strip().splitlines()[-1]
        assert last.startswith("ERROR: "), last
        assert message.lstrip("/") in last
        lines = re.split(r"\n|(?=logs/\w+\.log: )", done.stdout)  # two may end at the same moment
        shown = [line for line in lines if line.startswith(f"logs/{fault}.log:")]
        assert shown == [f"logs/{fault}.log: {last.removeprefix('ERROR: ')}"]
    assert "Traceback" not in done.stdout
    assert all(not path.name.startswith(".") for path in (tmp_path / "done").iterdir())
