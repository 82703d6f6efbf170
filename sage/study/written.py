"""YAML files as they are written: their content, and the file and line of every value.

A study can build on another (`extends`), and a model on another of its study. Mappings remember
where their keys stand, so a message about a value names its place, whatever was merged.
"""

from __future__ import annotations

import difflib
import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from sage.faults import as_written, inside, is_model, listed, mapping, members
from sage.fields import nearest
from sage.study.models import Model
from sage.study.parsed import Place, Section, StudyError, parsed, placed
from sage.study.types import AskedClaim, Study

EXTENDS, SET, OTHERS = "extends", "--set", "others"
ALONE = "study.yaml"
"""The file of a study that has a folder of its own, such as `reports/dose/dose_more`."""

RENAMED = {"equal_accuracy": "early_stopping"}
"""Studies of `config/studies` that had another name."""

_INDEX = re.compile(r"\[(\d+)\]\.?")


@dataclass(frozen=True)
class Written:
    """A YAML file whose content is a mapping, with what it extends merged in."""

    file: Path
    content: Section

    def place(self, key: str) -> tuple[Path, int | None]:
        """File and line of the value under `key`, such as `models.tiny.seeds.grpo[1]`.

        Of a value that is not there: the place of the section that lacks it; the line is None for
        the whole file.
        """
        inner: Any = self.content
        place: Place | None = None
        while step := _step(inner, key):
            place, inner, key = step
        return (Path(place[0]), place[1]) if place else (self.file, None)

    def faults(self, faults: Iterable[str]) -> Iterator[str]:
        """Messages, each beginning with a key, under the files where the values stand."""
        by_file: dict[Path, list[str]] = {self.file: []}
        for fault in faults:
            file, line = self.place(fault.partition(": ")[0])
            of_file = line and not str(file).startswith(SET)
            by_file.setdefault(file, []).append(f"{fault} (line {line})" if of_file else fault)
        for file, messages in by_file.items():
            if messages:
                how = "over" if str(file).startswith(SET) else "extended by"
                extended = "" if file == self.file else f" ({how} {self.file})"
                yield listed(f"{file}{extended}", messages)


def _step(content: Any, key: str) -> tuple[Place, Any, str] | None:
    """One step towards `key`, by the longest name that fits: place, value and rest of `key`."""
    for name in sorted(mapping(content), key=lambda name: -len(str(name))):
        if key == str(name) or key.startswith((f"{name}.", f"{name}[")):
            inner, rest = content[name], key[len(str(name)) :].removeprefix(".")
            match = _INDEX.match(rest)
            if match and isinstance(inner, list) and int(match[1]) < len(inner):
                index = int(match[1])
                place = content.places.get((name, index), content.places[name])
                return place, inner[index], rest[match.end() :]
            return content.places[name], inner, rest
    return None


def name_of_study(file: Path) -> str:
    """A study's name: that of its file, or of the folder of a `study.yaml`."""
    return file.resolve().parent.name if file.name == ALONE else file.stem


def read(file: Path) -> Written:
    """A YAML file that stands alone. Raises StudyError if it cannot be read or is no mapping."""
    try:
        content = parsed(file.read_bytes(), str(file))
    except OSError as error:
        raise StudyError(f"{file}: cannot be read: {error.strerror}") from error
    if not isinstance(content, Section):
        raise StudyError(f"{file}: must be a mapping of keys to values, not {as_written(content)}")
    return Written(file, content)


def read_study(study: str, config_folder: Path, overrides: Sequence[str] = ()) -> Written:
    """The study called `study` in `config_folder`/studies, or in the YAML file `study`, whole.

    `overrides` such as `rl.steps=10` are merged over it (`overridden`). Raises StudyError if the
    study, or one that it extends, is missing or cannot be read.
    """
    folder = config_folder / "studies"
    file = next(filter(_is_study, (folder / f"{study}.yaml", Path(study))), None)
    if file is None:
        raise StudyError(f"study: {_no_study(study, folder)}")
    content = _whole(file, folder, ())
    for override in overrides:
        content = overridden(content, override)
    return Written(file, content)


def _no_study(study: str, folder: Path) -> str:
    """Why `study` names none: a path is wrong in another way than a name."""
    path, here = Path(study), Path.cwd()
    if option := moved(path.stem, folder):
        return f"{study!r} has moved: study={option}"
    if os.path.exists(path):
        return f"{study!r} is no YAML file; a study's name ends in .yaml or .yml"
    if len(path.parts) > 1 or path.suffix in (".yaml", ".yml"):
        files = [*Path().glob("*.y*ml"), *Path().glob("*/*.y*ml"), *folder.glob("*.yaml")]
        files = [file for file in files if _looks_like_a_study(file)]
        names = [str(f.relative_to(here) if f.is_relative_to(here) else f) for f in files]
        near = [path.stem] if path.stem in _names(folder) else []
        near += difflib.get_close_matches(study, names, n=1, cutoff=0.5)
        ways = "`sage-rlvr studies` lists what there is, `sage-rlvr new` writes one"
        hint = f"; did you mean {near[0]!r}?" if near else f"; {ways}"
        return f"the file {study!r} does not exist (seen from {here}){hint}"
    what, names = f"{study!r} is neither a study in {folder} nor a YAML file", _names(folder)
    if not difflib.get_close_matches(study, names):
        what += f" (a target stands behind the study, as in `sage-rlvr run smoke {study}`)"
    return what + nearest(study, names)


def moved(name: str, folder: Path) -> str:
    """What `study=` takes for the study that was `name` in `folder`; empty if there is none.

    A settled follow-up is beside its results, `reports/{question}/{name}/study.yaml`.
    """
    if name in RENAMED:
        return RENAMED[name]
    files = [*folder.parents[1].glob(f"reports/*/{name}/{ALONE}")] if name else []
    return os.path.relpath(files[0]) if files else ""


def overridden(content: Section, override: str) -> Section:
    """A study with one value set on the command line: `models.tiny.rl.steps=10`, `seeds=[1, 2]`.

    A path that begins with a section of models, `rl.steps`, is about every model that has it;
    `evaluation` is the study's and that of each model with its own. Raises StudyError if it is no
    setting; its value is validated with the rest.
    """
    key, equals, text = override.partition("=")
    path = [part.strip() for part in key.split(".")]
    name = f"{SET} {override}"
    if not equals or not all(path):
        raise StudyError(f"{name}: must be KEY=VALUE, such as --set rl.steps=10")
    models = mapping(content.get("models"))
    allowed = {*Study.model_fields, *Model.model_fields} - {EXTENDS}
    if path[0] not in allowed:
        near = inside(path[0], Study, Model)[:3]
        raise StudyError(f"{name}: no setting {path[0]!r}{nearest(path[0], allowed, near)}")
    if path[0] == "models" and path[1:] and path[1] not in models:
        raise StudyError(f"{name}: no model {path[1]!r}{nearest(path[1], models)}")
    places = [path] if path[0] in Study.model_fields else []
    if path[0] in Model.model_fields and len(path) > 1:
        having = [each for each, model in models.items() if mapping(mapping(model).get(path[0]))]
        places += [["models", each, *path] for each in having]
    elif not places:
        places = [["models", each, *path] for each in models]
    if not places:
        raise StudyError(f"{name}: no model of this study has a section {path[0]!r}")
    for place in places:
        above = parsed(text.encode(), name)
        for part in reversed(place):
            above = placed({part: above}, {part: (name, 1)})
        content = _merged(content, above, [Study])
    return content


def extended(study: str, config_folder: Path) -> Path | None:
    """The file of the study that `study` extends, if it does; both as `read_study`."""
    file = read_study(study, config_folder).file
    own = read(file).content
    return _parent(file, config_folder / "studies", own) if EXTENDS in own else None


def lineage(study: str, config_folder: Path) -> Iterator[Path]:
    """The files of the studies that `study` extends, the nearest first; as `read_study`."""
    while parent := extended(study, config_folder):
        yield parent
        study = str(parent)


def _parent(file: Path, folder: Path, own: Section) -> Path:
    """The study that `own`, the content of `file`, extends: beside `file`, or in `folder`."""
    name = _extends(own, EXTENDS)
    beside = Path(os.path.normpath(file.parent / name))
    for place in (beside, folder / name, folder / f"{name}.yaml"):
        if _is_study(place):
            return place
    what = f"neither a YAML file in {file.parent} nor a study in {folder}"
    raise _misplaced(own, EXTENDS, f"{name!r} is {what}{nearest(name, _names(folder))}")


def _whole(file: Path, folder: Path, extending: tuple[Path, ...]) -> Section:
    """A study merged over what it extends; `extending` are the files on the way."""
    own = read(file).content
    if EXTENDS not in own:
        return _with_models(own, {})
    parent, chain = _parent(file, folder, own), (*extending, file)
    if parent.resolve() in [each.resolve() for each in chain]:
        raise _misplaced(own, EXTENDS, _circle(*chain, parent))
    below = _whole(parent, folder, chain)
    merged = _with_models(_merged(below, _without_extends(own), [Study]), below)
    return _of_own_methods(merged, own, below)


def _of_own_methods(study: Section, own: Section, below: Section) -> Section:
    """The study without methods that `own` no longer trains, in the exhibits that it takes over.

    They are those that `own` leaves out of a model's `algorithms` in `below`. An exhibit that this
    leaves with fewer than two to compare is left out itself.
    """
    exhibits, changed = study.get("exhibits"), mapping(own.get("exhibits"))
    if not isinstance(exhibits, Section):
        return study

    def trained(section: Section, model: Any) -> list[Any] | None:
        listed = mapping(mapping(section.get("models")).get(model)).get("algorithms")
        return listed if isinstance(listed, list) else None

    kept: dict[Any, Any] = {}
    for name, exhibit in exhibits.items():
        section = mapping(exhibit)
        now, before = (trained(each, section.get("model")) for each in (own, below))
        out = [] if changed.get(name) or not now else [x for x in before or () if x not in now]
        shown = section.get("algorithms", section.get("algorithm"))
        if not isinstance(shown, list):
            kept |= {} if shown in out else {name: exhibit}
            continue
        left = [one for one in shown if one not in out]
        if left == shown or len(left) > 1:
            kept[name] = placed({**exhibit, "algorithms": left}, exhibit.places)
    return placed({**study, "exhibits": placed(kept, exhibits.places)}, study.places)


def _with_models(study: Section, below: Mapping[Any, Any]) -> Section:
    """The study with each model that extends another, also one of `below`, merged over it.

    `below` is the study that this one extends, whose models it can take out.
    """
    models = study.get("models")
    if not isinstance(models, Section):
        return study
    known = {**mapping(below.get("models")), **models}

    def whole(name: str, extending: tuple[str, ...]) -> Any:
        own = known[name]
        if not isinstance(own, Section) or EXTENDS not in own:
            return own
        place, chain = f"models.{name}.{EXTENDS}", (*extending, name)
        other = _extends(own, place)
        if other not in known:
            what = f"{other!r} is not a model of this study{nearest(other, known)}"
            raise _misplaced(own, place, what)
        if other in chain:
            raise _misplaced(own, place, _circle(*chain, other))
        return _merged(whole(other, chain), _without_extends(own), [Model])

    each = placed({name: whole(name, ()) for name in models}, models.places)
    return placed({**study, "models": each}, study.places)


def _without_extends(section: Section) -> Section:
    return placed({k: v for k, v in section.items() if k != EXTENDS}, section.places)


def _extends(section: Section, key: str) -> str:
    if not isinstance(name := section[EXTENDS], str):
        raise _misplaced(section, key, "must be text, the name of what is extended")
    return name


def _circle(*names: object) -> str:
    return f"a circle, which must be broken: {' extends '.join(map(str, names))}"


def _misplaced(section: Section, key: str, message: str) -> StudyError:
    """A fault of what `section` extends; `key` is where that stands."""
    file, line = section.places[EXTENDS]
    return StudyError(f"{file}: {key}: {message} (line {line})")


def _is_study(file: Path) -> bool:
    return file.suffix in (".yaml", ".yml") and os.path.isfile(file)  # no error for a long name


def _looks_like_a_study(file: Path) -> bool:
    """Whether a YAML file has a key that only studies have."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return re.search(r"^(extends|problems|models):", text, re.MULTILINE) is not None


def _names(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.yaml")]


def _merged(below: Any, above: Any, kinds: Sequence[Any]) -> Any:
    """`above` over `below`: mappings key by key, anything else whole.

    `null` takes out a key that stands below, unless `kinds`, the types that this section can have,
    give `null` a meaning of its own there, as for `lora`; `others: null` all keys that `above` does
    not name. A new key stands beside the keys of `below` that it is written beside, for the order
    of exhibits is that of the report. A claim replaces another whole.
    """
    if not isinstance(below, Section) or not isinstance(above, Section):
        return _over_nothing(above)
    if OTHERS not in below and above.get(OTHERS, below) is None:
        below = placed({k: v for k, v in below.items() if k in above}, below.places)
        above = placed({k: v for k, v in above.items() if k != OTHERS}, above.places)
    content, order = dict(below), list(below)
    position = next((order.index(name) for name in above if name in below), len(order))
    for name, value in above.items():
        if name not in below:
            order.insert(position, name)
            content[name] = _over_nothing(value)
        else:
            position = order.index(name)
            if value is None and not _means_something(name, kinds):
                order.remove(name)
                continue
            inside = _inside(name, kinds)
            whole = AskedClaim in inside
            content[name] = value if whole else _merged(below[name], value, inside)
        position += 1
    replaced = {name for name in above if isinstance(below.get(name), list)}
    places = {
        key: place
        for key, place in below.places.items()
        if not isinstance(key, tuple) or key[0] not in replaced  # items of a list
    }
    return placed({name: content[name] for name in order}, {**places, **above.places})


def _over_nothing(value: Any) -> Any:
    """A value with no section below it: `others: null` takes nothing out there."""
    if not isinstance(value, Section) or value.get(OTHERS, value) is not None:
        return value
    return placed({k: v for k, v in value.items() if k != OTHERS}, value.places)


def _fields(name: str, kinds: Sequence[Any]) -> list[FieldInfo]:
    """The fields called `name` of the sections of these kinds."""
    of_sections = [kind.model_fields for kind in kinds if is_model(kind)]
    return [fields[name] for fields in of_sections if name in fields]


def _means_something(name: str, kinds: Sequence[Any]) -> bool:
    """Whether `name: null` differs from leaving the key out."""
    return any(
        type(None) in typing.get_args(field.annotation)
        and (field.is_required() or field.get_default() is not None)
        for field in _fields(name, kinds)
    )


def _inside(name: str, kinds: Sequence[Any]) -> list[Any]:
    """The types that the value under a key can have, in a section of one of `kinds`."""
    values = [typing.get_args(kind)[1] for kind in kinds if typing.get_origin(kind) is dict]
    values += [field.annotation for field in _fields(name, kinds)]
    return [member for value in values for member in members(value)]
