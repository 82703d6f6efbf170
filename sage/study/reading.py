"""Reads the YAML files of `config/` into a validated study.

Each file is validated once, by its types; the names that it may use reach them in the validation
context. How sections go together, `conflicts` finds in the typed study. Every fault of the types is
reported at once, before any job runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from sage.faults import listed, mapping, type_faults, validated
from sage.fields import BASE, Name
from sage.problems.entries import Benchmark
from sage.runtime.files import text_sum
from sage.study.algorithms import Algorithm
from sage.study.conflicts import conflicts, exhibit_conflicts
from sage.study.derived import of_their_own, whole_methods
from sage.study.exhibit import KINDS, Exhibit
from sage.study.models import Model
from sage.study.open_choices import with_answers
from sage.study.parsed import StudyError
from sage.study.types import ResolvedStudy, Settings, Study
from sage.study.written import SET, Written, lineage, moved, name_of_study, read, read_study

Content = TypeVar("Content")

OWN = "own_methods"

_LONGEST_NAME = 80  # characters: it is the name of a folder


def load_settings(config: Mapping[str, Any]) -> Settings:
    """Validate what Snakemake read from `config/config.yaml` and `--config`."""
    settings, faults = validated(Settings, dict(config))
    of_study = {*Study.model_fields, *Model.model_fields} - {*Settings.model_fields}
    for index, fault in enumerate(faults):
        if (key := fault.partition(":")[0]) in of_study:
            faults[index] = f"{key}: is a setting of the study; write --config 'set={key}=VALUE'"
    if faults:
        _refuse(listed("config/config.yaml, or --config", faults))
    return cast(Settings, settings)


def import_from(*folders: Path) -> None:
    """Lets a study name classes of Python files in `folders`; what Python finds itself is first."""
    for folder in map(str, map(Path.resolve, folders)):
        if folder not in sys.path:
            sys.path.append(folder)


def load_study(
    study: str,
    config_folder: Path,
    exhibit_kind: Callable[[str], type[Exhibit]],
    overrides: Sequence[str] = (),
) -> ResolvedStudy:
    """The study called `study` in `config_folder`/studies, or in the YAML file `study`.

    `exhibit_kind` maps the name of a kind of exhibit to its class, or raises ValueError.
    `overrides` are values set on the command line, such as `rl.steps=10`; they are part of the
    name, and so of the results' folder. Raises StudyError, listing every fault.
    """
    written = read_study(study, config_folder, overrides)
    name = name_of_study(written.file)
    # For classes in files beside the study and what it extends, or in the repository's.
    files = (written.file, *lineage(study, config_folder))
    import_from(*(file.parent for file in files), config_folder.parent)
    written_rows = read(config_folder / "algorithms.yaml")
    written_entries = read(config_folder / "benchmarks.yaml")
    content, rows, faults, row_faults = _with_methods(written, written_rows)
    _from_here(content, written)
    algorithms, faults_of_rows = validated(dict[Name, Algorithm], rows)
    row_faults += of_their_own(faults_of_rows, written_rows.content)
    own_methods = mapping(written.content.get(OWN))
    entries, entry_faults = validated(dict[Name, Benchmark], written_entries.content)
    models = mapping(content.get("models"))
    own = [
        name
        for name, model in models.items()
        if mapping(mapping(model).get("base")).get("source") != "model"
    ]
    known = {
        "model": ("a model of this study", models),
        "donor": ("a model of this study with a base of its own", own),
        "set": ("a problem set of this study", mapping(content.get("problems"))),
        "algorithm": (
            f"a method of {written_rows.file}{f' or of {OWN}' if own_methods else ''}",
            {**written_rows.content, **own_methods},
        ),
        "benchmark": (f"a benchmark of {written_entries.file}", written_entries.content),
        "data": (f"a data set of {written_entries.file}", written_entries.content),
    }
    checked, study_faults = validated(Study, content, context=context_of(exhibit_kind) | known)
    _refuse(
        *written.faults([*type_faults(Name, name, "the name of the file"), *study_faults, *faults]),
        *written_rows.faults(row_faults),
        *written_entries.faults(entry_faults),
    )
    algorithms |= checked.own_methods
    _refuse(
        *written.faults(
            [*exhibit_conflicts(checked, algorithms), *_moved_claims(checked, config_folder)]
        )
    )
    in_folder = written.file.parent == config_folder / "studies"
    option = name if in_folder else study
    resolved = _resolved(checked, algorithms, entries, name_of(name, overrides), option, overrides)
    _refuse(*written.faults(conflicts(resolved)))
    return resolved


def _moved_claims(study: Study, config_folder: Path) -> list[str]:
    """The fault of a file of claims that was config/claims_{study}.yaml: it is in its study now."""
    named = re.fullmatch(r"config/claims_(\w+)\.yaml", str(study.claims))
    if not named or Path(str(study.claims)).is_file():
        return []
    option = moved(named[1], config_folder / "studies") or named[1]
    return [
        f"claims: the claims of {study.claims} are in their study now, study={option}; write them "
        "here, or take them along with `extends`"
    ]


def _with_methods(
    written: Written, written_rows: Written
) -> tuple[dict[Any, Any], dict[Any, Any], list[str], list[str]]:
    """The study and the methods of the file, with the faults of each.

    The methods and the study's own are whole, and as `open_choices` say.
    """
    own_entries = mapping(written.content.get(OWN))
    rows, row_faults = whole_methods(written_rows.content)
    own, own_faults = whole_methods(own_entries, rows)
    content, switched, faults = with_answers(written.content, {**rows, **own})
    if own_entries:
        content[OWN] = {name: switched[name] for name in own}
    kept = f"{BASE}: this name is kept for the policy before RL; choose another"
    row_faults += [kept] if BASE in rows else []
    own_faults += [kept] if BASE in own else []
    twice = f"{written_rows.file} has a method of this name; choose another"
    own_faults += [f"{name}: {twice}" for name in own_entries if name in rows]
    faults += [f"{OWN}.{fault}" for fault in own_faults]
    return content, {name: switched[name] for name in rows}, faults, row_faults


def _from_here(content: Mapping[Any, Any], written: Written) -> None:
    """Have paths of the user's own files, which begin at the study's file, begin at this folder."""
    paths = [
        (f"problems.{n}", each, "file") for n, each in mapping(content.get("problems")).items()
    ]
    for name, model in mapping(content.get("models")).items():
        base = mapping(model).get("base")
        paths += [(f"models.{name}.base", base, key) for key in ("folder", "adapter")]
    changed: set[tuple[int, str]] = set()  # two sections can be one, by an anchor of YAML
    for place, section, key in paths:
        path = mapping(section).get(key)
        if isinstance(path, str) and (id(section), key) not in changed:
            changed.add((id(section), key))
            file, _ = written.place(f"{place}.{key}")
            folder = (written.file if str(file).startswith(SET) else file).parent
            own = Path(os.path.expanduser(path))  # no error for a user that there is not
            section[key] = str(own) if own.is_absolute() else os.path.relpath(folder / own)


def _resolved(
    study: Study,
    algorithms: Mapping[str, Algorithm],
    entries: Mapping[str, Benchmark],
    name: str,
    option: str,
    overrides: Sequence[str],
) -> ResolvedStudy:
    """The study with those of the methods and entries that it uses."""
    models, exhibits = study.models.values(), study.exhibits.values()
    used = {row for model in models for row in model.algorithms}
    used |= {row for exhibit in exhibits for row in exhibit.named()}
    named = {row: algorithms[row] for row in sorted(used - {BASE})}
    variants: dict[str, Algorithm] = {}
    for exhibit in exhibits:
        parents = {row: algorithms[row] for row in exhibit.varied()}
        variants |= exhibit.variants(named | parents)
    data_sets = {s.benchmark for s in study.problems.values() if s.source == "benchmark"}
    data_sets |= {m.sft.data for m in models if m.sft and m.sft.data}
    return ResolvedStudy(
        name=name,
        option=option + (f" 'set={json.dumps([*overrides])}'" if overrides else ""),
        overrides=[*overrides],
        study=study,
        algorithms=named | variants,
        variants=list(variants),
        benchmarks={data: entries[data] for data in sorted(data_sets)},
    )


_LOST = re.compile(r"[^A-Za-z0-9_.=\[\], -]|(?<=[=\[, ])-")
"""What a folder's name does not tell from something else, such as a sign."""


def name_of(study: str, overrides: Sequence[str]) -> str:
    """The name of a study, with what was set on the command line: `mini-rl.steps-10`.

    A checksum is added where the name is cut, or may stand for other settings as well.
    """
    parts = [re.sub(r"[^A-Za-z0-9_.]+", "-", each).strip("-") for each in overrides]
    name = "-".join([study, *parts])
    if any(map(_LOST.search, overrides)):
        return f"{name[:_LONGEST_NAME]}-{text_sum(repr([*overrides]))[:8]}"
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{text_sum(name)[:8]}"


def context_of(exhibit_kind: Callable[[str], type[Exhibit]]) -> dict[str, Any]:
    """The validation context of a study, whose exhibits are of the kinds `exhibit_kind` finds."""
    return {KINDS: exhibit_kind}


def _refuse(*messages: str) -> None:
    """Raise StudyError with the faults of each file, if there are any."""
    if messages:
        where = "Every key is explained in config/schemas; `make docs` makes pages of them."
        raise StudyError("\n".join([*messages, where]))


def read_as(kind: type[Content], file: Path) -> Content:
    """The YAML file `file` as a `kind`. Raises StudyError, which lists every fault."""
    written = read(file)
    content, faults = validated(kind, written.content)
    if faults:
        raise StudyError("\n".join(written.faults(faults)))
    return cast(Content, content)
