"""Which GPUs a job sees: those of the machine or of its environment, and of them its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT
from snakemake.profiles import ProfileConfigFileParser

from sage.runtime import job
from sage.runtime.devices import SHARING, Device, places, visible_devices
from sage.runtime.job import gpus_asked, leased
from sage.runtime.lease import lease
from sage.training import processes
from sage.training.sft import processes_for

FOUR = [Device(name, name) for name in "0123"]

SMI = """#!/bin/sh
cat <<END
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa0000-1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb0000-2)
  MIG 3g.20gb     Device  0: (UUID: MIG-cccc0000-3)
  MIG 3g.20gb     Device  1: (UUID: MIG-dddd0000-4)
END
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a whole GPU and one divided in two."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


@pytest.fixture
def no_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nobody can say which GPUs there are."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("smi")
@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, ["0=GPU-aaaa0000-1", "MIG-cccc0000-3=", "MIG-dddd0000-4="]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,-1,1", ["0=GPU-aaaa0000-1"]),
        ("0,7,1", ["0=GPU-aaaa0000-1"]),
        ("1", ["1=MIG-cccc0000-3"]),
        ("GPU-aaaa,MIG-dddd", ["GPU-aaaa=GPU-aaaa0000-1", "MIG-dddd=MIG-dddd0000-4"]),
        ("GPU-ffff,0", []),
        ("0, 0", ["0=GPU-aaaa0000-1"]),
    ],
)
def test_devices_are_those_that_cuda_would_show(named: str | None, found: list[str]) -> None:
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    wanted = [entry.split("=") for entry in found]
    assert visible_devices(environment) == [Device(name, key or name) for name, key in wanted]


@pytest.mark.usefixtures("smi")
def test_jobs_take_all_visible_gpus_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, one of them in two parts: three devices."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def limit() -> list[str]:
        with open("profiles/default/profile.yaml") as stream:
            resources: list[str] = ProfileConfigFileParser().parse(stream)["resources"]
        return resources

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert limit() == ["gpu=3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert limit() == ["gpu=1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # with 0, what asks for a GPU never starts
    assert limit() == ["gpu=1"]


@pytest.mark.usefixtures("no_smi")
def test_names_stand_for_themselves_where_nvidia_smi_is_missing() -> None:
    assert visible_devices({}) == []
    named = visible_devices({"CUDA_VISIBLE_DEVICES": "3,GPU-aaaa"})
    assert named == [Device("3", "3"), Device("GPU-aaaa", "GPU-aaaa")]


@pytest.mark.usefixtures("no_smi", "place")
def test_a_job_is_shown_what_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(count: int, named: str | None) -> str | None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if named is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        with leased(count, "job"):
            return os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setenv(NVML := "PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    monkeypatch.delenv(NVML)
    assert shown(0, "0,1") == ""  # not asked for: not seen
    assert shown(0, None) == ""
    assert shown(1, None) is None  # no GPU to be found: torch decides
    assert shown(1, "") == ""
    assert NVML not in os.environ
    assert shown(2, "GPU-a,GPU-b,GPU-c") == "GPU-a,GPU-b"
    assert os.environ[NVML] == "1"  # else asking torch for a GPU starts CUDA, and no fork has it


@pytest.mark.usefixtures("no_smi", "place")
def test_slurms_choice_stands_and_a_larger_allocation_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with lease(2, FOUR[:2], "somebody of the same numbers on another node"), leased(2, "job"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    with lease(1, FOUR[:2], "a job of this allocation"), leased(1, "job"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.usefixtures("no_smi")
def test_a_request_that_snakemake_cut_down_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    cut = {"gpu": 1, "gpus_asked": 2}
    with pytest.raises(RuntimeError, match="--resources gpu=2"):
        gpus_asked(cut, "auto")
    assert gpus_asked(cut, "cpu") == 0
    assert gpus_asked({}, "auto") == 0
    assert gpus_asked({"gpu": 2}, "cuda") == 2


LEAVING = """#!/bin/sh
case "$1" in
-L) echo "GPU 0: Some GPU (UUID: GPU-a)" ;;
*)
    echo >> {calls}
    echo "GPU-other, 1, 10 MiB"
    test {forever} -gt $(wc -l < {calls}) && echo "GPU-a, 4242, 500 MiB"
    exit 0 ;;
esac
"""


@pytest.mark.parametrize(("forever", "said"), [(3, "Waiting"), (10**6, "Continuing although")])
def test_what_a_killed_job_left_on_a_device_is_waited_for_but_not_for_ever(
    forever: int,
    said: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tool = place / "nvidia-smi"
    tool.write_text(LEAVING.format(calls=place / "calls", forever=forever))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(job, "LEAVING_SECONDS", 1.0)
    with leased(1, "job"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    told = capsys.readouterr().out
    assert said in told
    assert "process 4242 on GPU 0 (500 MiB)" in told
    assert "process 1" not in told
    assert ("Continuing" in told) == (forever > 3)


WORKFLOW = """
rule all:
    input: expand("{n}.json", n=range(3))

rule train:
    output: "{n}.json"
    log: "{n}.log"
    resources: gpu=int(config["gpus"]), gpus_asked=int(config["gpus"])
    params: device="auto"
    script: "train.py"
"""

TRAIN = """
import time
from pathlib import Path
from sage.runtime.job import job

with job(snakemake) as manifest:
    Path(f"{snakemake.output[0]}.here").touch()
    while len(list(Path().glob("*.here"))) < 2:  # the first two at once
        time.sleep(0.05)
    manifest.write(snakemake.output[0])
"""


@pytest.mark.slow
@pytest.mark.e2e
def test_jobs_of_snakemake_get_their_own_devices(place: Path) -> None:
    (place / "Snakefile").write_text(WORKFLOW)
    (place / "train.py").write_text(TRAIN)

    def run(gpus: int) -> int:
        tool = Path(sys.executable).parent / "snakemake"
        limits = ["--cores", "3", "--resources", "gpu=2", "--config", f"gpus={gpus}"]
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "4,5",
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.run(
            [tool, "--keep-going", *limits], cwd=place, env=environment, capture_output=True
        ).returncode

    assert run(3) != 0
    log = (place / "0.log").read_text()
    assert "asks for 3 GPUs" in log
    assert "Snakemake's limit is 2" in log
    assert run(1) == 0
    manifests = [json.loads((place / f"{n}.json").read_text()) for n in range(3)]
    assert {manifest["devices"] for manifest in manifests} == {"4", "5"}


def test_every_rule_that_asks_for_gpus_says_how_many_it_means() -> None:
    rules = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    assert rules.count("gpu=gpus,") == rules.count("gpus_asked=gpus,") >= 4


NEW_DRIVER = """#!/bin/sh
case "$1" in
-L) echo "GPU 0: Some GPU (UUID: GPU-aaaa0000-1)";;
*) echo 570.86.10;;
esac
"""


@pytest.mark.parametrize("setting", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("cuda", "reason"),
    [
        ("13.0", r"build for CUDA 13\.0 and needs NVIDIA driver 580 or newer, .+ is 570\.86\.10"),
        (None, r"is a build without CUDA; install the CUDA build"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_no_silent_cpu(
    setting: str, cuda: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NEW_DRIVER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", cuda)
    with pytest.raises(RuntimeError, match=f"GPU 0 is there, but torch does not.*{reason}"):
        job.device_of(setting)
    if cuda:
        for there in (object(), None):  # vLLM, which is linked to one CUDA
            monkeypatch.setattr(job, "find_spec", lambda _, there=there: there)
            assert ("torch for an older CUDA" in job.unseen(["0"], torch)) is (there is None)
    assert job.device_of("cpu") == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as a job has it that asks for no GPU
    assert job.device_of("auto") == "cpu"


@pytest.mark.parametrize(
    ("visible", "seen"), [("2,5,7", "2"), ("MIG-a", "MIG-a"), ("", ""), (None, None)]
)
def test_one_process_of_a_job_with_several_gpus_sees_the_first(
    visible: str | None, seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would train with a batch on each, as SFT does with `batch_size: 1`."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    alone = processes_for(SimpleNamespace(batch_size=1), 8)  # type: ignore[arg-type]
    found: list[str | None] = []
    processes.run(alone, lambda: found.append(os.environ.get("CUDA_VISIBLE_DEVICES")))
    assert found == [seen]


@pytest.mark.usefixtures("place", "no_smi")
def test_jobs_share_a_gpu_where_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places on each of two devices: devices fill evenly, and a fifth job would wait."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv(SHARING, "2")
    four = places()
    assert [place.name for place in four] == ["0", "1", "0", "1"]
    assert len({place.key for place in four}) == 4
    seen = []
    with contextlib.ExitStack() as jobs:
        for number in range(4):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
            jobs.enter_context(leased(1, f"job {number}"))
            seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(RuntimeError, match=f"asks for 2 GPUs.*unset {SHARING}"), leased(2, "job"):
        pass
    for wrong in ("0", "two", "-1", ""):
        monkeypatch.setenv(SHARING, wrong)
        with pytest.raises(ValueError, match="whole number"), leased(1, "job"):
            pass


@pytest.mark.parametrize(("jobs", "limits"), [(None, []), ("1", []), ("5", [0.19])])
def test_a_job_has_no_more_than_its_share_of_a_shared_gpu(
    jobs: str | None, limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process would else cache all it freed, until the last job finds no memory."""
    asked: list[float] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", asked.append)
    monkeypatch.delenv(SHARING, raising=False)
    if jobs:
        monkeypatch.setenv(SHARING, jobs)
    assert job.device_of("auto") == job.device_of("cuda") == "cuda"
    assert asked == pytest.approx(limits * 2)
    assert job.device_of("cpu") == "cpu"
    assert len(asked) == 2 * len(limits)
