"""A real SLURM of one node, for tests: Debian's daemons, run as root, with two pretended GPUs.

Authentication, controller and node daemon are private to the test: their state, logs and socket
lie in a folder of its own. Only `/etc/slurm` is shared, where SLURM's tools look for their
settings; a folder that holds somebody's settings is left alone, and nothing is run. A job that
takes more memory than it asked for is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SETTINGS = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf")
MARK = "# Written by the tests, and removed by them."
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")

SLURM_CONF = """{mark}
ClusterName=tests
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
GresTypes=gpu
MinJobAge=3600
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=32 RealMemory=128000 Gres=gpu:tests:2 State=UNKNOWN
PartitionName=gpu Nodes={host} Default=YES MaxTime=3-00:00:00 State=UP
"""


@dataclass(frozen=True)
class Job:
    """A job as SLURM keeps it, running or gone; its memory in megabytes."""

    slurm_id: str
    comment: str
    state: str
    minutes: int
    memory: int
    cpus: int
    gpus: int
    nodes: str


def missing() -> str | None:
    """Why a cluster cannot be started here; None if it can."""
    if os.geteuid() != 0:
        return "starting a SLURM of its own takes root"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    if absent := [tool for tool in TOOLS if not shutil.which(tool, path=path)]:
        return f"{', '.join(absent)} not found: apt-get install slurm-wlm munge"
    for name in FILES:
        if (SETTINGS / name).exists() and MARK not in (SETTINGS / name).read_text():
            return f"{SETTINGS / name} is there: this machine has a SLURM already"
    return None


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Run a cluster whose files lie in `folder`; stopped, and its settings removed, at the end."""
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    for number in (0, 1):  # a device is all that SLURM asks of a GPU
        os.mknod(folder / f"gpu{number}", 0o020666, os.makedev(1, 3))
    with ExitStack() as stack:
        for name, text in {
            "slurm.conf": SLURM_CONF.format(mark=MARK, host=host, folder=folder),
            "gres.conf": f"{MARK}\nName=gpu Type=tests File={folder}/gpu[0-1]\n",
        }.items():
            stack.callback((SETTINGS / name).unlink, missing_ok=True)
            (SETTINGS / name).write_text(text)
        munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file")]
        key = [f"--key-file={folder}/munge.key", f"--seed-file={folder}/munge.seed"]
        _daemon(stack, folder, "munged", "--foreground", "--force", *munge, *key)
        _wait("munged", (folder / "munge.socket").exists, folder)
        _daemon(stack, folder, "slurmctld", "-D", "-i")
        _daemon(stack, folder, "slurmd", "-D", "-N", host)
        _wait("the node", lambda: _told("sinfo", "-h", "-o", "%t").strip() == "idle", folder)
        stack.callback(_told, "scancel", "--me")
        yield


def jobs() -> list[Job]:
    """Every job that the cluster has had, the oldest first."""
    told = _told("scontrol", "--oneliner", "show", "job")
    found = [_job(line) for line in told.splitlines() if line.startswith("JobId=")]
    return sorted(found, key=lambda job: int(job.slurm_id))


def _job(line: str) -> Job:
    fields = dict(re.findall(r"(\w+)=(\S*)", line))
    days, _, clock = fields["TimeLimit"].rpartition("-")
    hours, minutes, _ = clock.split(":")
    tres = dict(entry.split("=") for entry in fields["TRES"].split(","))
    return Job(
        slurm_id=fields["JobId"],
        comment=fields.get("Comment", ""),
        state=fields["JobState"],
        minutes=int(days or 0) * 1440 + int(hours) * 60 + int(minutes),
        memory=_megabytes(tres["mem"]),
        cpus=int(tres["cpu"]),
        gpus=int(fields.get("TresPerJob", "gres:gpu:0").rpartition(":")[2]),
        nodes=fields["NumNodes"],
    )


def _megabytes(text: str) -> int:
    return round(float(text[:-1]) * {"M": 1, "G": 1024}[text[-1]])


def _told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


def _daemon(stack: ExitStack, folder: Path, *command: str) -> None:
    """Start a daemon in the foreground, its output in `folder`; the stack stops it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    tool = shutil.which(command[0], path=path)
    assert tool, command[0]
    log = stack.enter_context((folder / f"{command[0]}.log").open("w"))
    process = subprocess.Popen([tool, *command[1:]], stdout=log, stderr=subprocess.STDOUT)

    def stop() -> None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)


def _wait(what: str, ready: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{log}:\n{log.read_text()}" for log in folder.glob("*.log"))
            raise RuntimeError(f"{what} was not ready within a minute\n{logs}")
        time.sleep(0.2)
