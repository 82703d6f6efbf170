"""YAML files as they are written: their content, and the file and line of every value.

A study can build on another (`extends`), and a model on another of its study. Both are merged as
trees of YAML nodes, which remember where they stand, so a message about a value names its place.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from sage.fields import nearest
from sage.study.faults import as_written, is_model, listed, members
from sage.study.models import Model
from sage.study.types import Study

EXTENDS, SET = "extends", "--set"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INDEX = re.compile(r"\[(\d+)\]\.?")

_Pairs = dict[str, tuple[yaml.Node, yaml.Node]]
"""The keys of a mapping as text, each with its node and that of its value."""


class StudyError(ValueError):
    """The configuration is not usable; the message lists every fault."""


@dataclass(frozen=True)
class Written:
    """A YAML file whose content is a mapping, with what it extends merged in."""

    file: Path
    tree: yaml.MappingNode

    @cached_property
    def content(self) -> dict[Any, Any]:
        """The content as plain data."""
        try:
            content: dict[Any, Any] = yaml.constructor.SafeConstructor().construct_document(
                self.tree
            )
        except yaml.YAMLError as error:
            raise _not_yaml(self.file, error) from error
        return content

    def place(self, key: str) -> tuple[Path, int | None]:
        """File and line of the value under `key`, such as `models.tiny.seeds.grpo[1]`.

        Of a value that is not there: the place of the section that lacks it; the line is None for
        the whole file.
        """
        node: Any = self.tree
        mark, rest = None, key
        while step := _step(node, rest):
            mark, node, rest = step
        return (Path(mark.name), mark.line + 1) if mark else (self.file, None)

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


def read(file: Path) -> Written:
    """A YAML file that stands alone. Raises StudyError if it cannot be read or is no mapping."""
    try:
        with open(str(file), "rb") as stream:  # marks take the stream's name, which is to be text
            loader = _LOADER(stream)
            try:
                tree = loader.get_single_node()
                _flatten(tree, loader, set())
            finally:
                loader.dispose()
    except yaml.YAMLError as error:
        raise _not_yaml(file, error) from error
    except OSError as error:
        raise StudyError(f"{file}: cannot be read: {error.strerror}") from error
    if not isinstance(tree, yaml.MappingNode):
        content = yaml.constructor.SafeConstructor().construct_document(tree) if tree else None
        raise StudyError(f"{file}: must be a mapping of keys to values, not {as_written(content)}")
    return Written(file, tree)


def read_study(study: str, config_folder: Path, overrides: Sequence[str] = ()) -> Written:
    """The study called `study` in `config_folder`/studies, or in the YAML file `study`, whole.

    `overrides` such as `rl.steps=10` are merged over it (`overridden`). Raises StudyError if the
    study, or one that it extends, is missing or cannot be read.
    """
    folder = config_folder / "studies"
    file = next(filter(_is_study, (folder / f"{study}.yaml", Path(study))), None)
    if file is None:
        raise StudyError(f"study: {_no_study(study, folder)}")
    tree = _whole(file, folder, ())
    for override in overrides:
        tree = overridden(tree, override)
    return Written(file, tree)


def _no_study(study: str, folder: Path) -> str:
    """Why `study` names none: a path is wrong in another way than a name."""
    path = Path(study)
    if path.exists():
        return f"{study!r} is no YAML file; a study's name ends in .yaml or .yml"
    if len(path.parts) > 1 or path.suffix in (".yaml", ".yml"):
        near = difflib.get_close_matches(study, map(str, _yaml_files(folder)), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"the file {study!r} does not exist (seen from {Path.cwd()}){hint}"
    what = f"{study!r} is neither a study in {folder} nor a YAML file"
    return what + nearest(study, _names(folder))


def _yaml_files(folder: Path) -> Iterator[Path]:
    """Studies that a mistyped path may have meant: beside the Snakefile, and those of `folder`."""
    for path in (*Path().glob("*.y*ml"), *Path().glob("*/*.y*ml"), *folder.glob("*.yaml")):
        yield path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def overridden(tree: yaml.MappingNode, override: str) -> yaml.MappingNode:
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
    models = _pairs(_value(tree, "models"))
    allowed = {*Study.model_fields, *Model.model_fields} - {EXTENDS}
    if path[0] not in allowed:
        raise StudyError(f"{name}: no setting {path[0]!r}{nearest(path[0], allowed)}")
    if path[0] == "models" and path[1:] and path[1] not in models:
        raise StudyError(f"{name}: no model {path[1]!r}{nearest(path[1], models)}")
    places = [path] if path[0] in Study.model_fields else []
    if path[0] in Model.model_fields and len(path) > 1:
        sections = ((each, _value(models[each][1], path[0])) for each in models)
        places += [["models", each, *path] for each, section in sections if _pairs(section)]
    elif not places:
        places = [["models", each, *path] for each in models]
    if not places:
        raise StudyError(f"{name}: no model of this study has a section {path[0]!r}")
    try:
        value = _LOADER(_NamedText(text, name)).get_single_node()
    except yaml.YAMLError as error:
        raise _not_yaml(Path(name), error) from error
    for place in places:
        above: Any = value or _LOADER(_NamedText("null", name)).get_single_node()
        for part in reversed(place):
            above = _mapping(above, {part: (_scalar(part, above), above)})
        merged = _merged(tree, above, [Study])
        assert isinstance(merged, yaml.MappingNode)
        tree = merged
    return tree


class _NamedText(io.StringIO):
    """Text with a name, which YAML's marks take."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


def _scalar(text: str, like: yaml.Node) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, like.start_mark, like.end_mark)


def extended(study: str, config_folder: Path) -> Path | None:
    """The file of the study that `study` extends, if it does; both as `read_study`."""
    folder = config_folder / "studies"
    file = read_study(study, config_folder).file
    _, named = _without_extends(read(file).tree)
    return None if named is None else _parent(file, folder, _text(named, EXTENDS))


def _parent(file: Path, folder: Path, name: str) -> Path | None:
    """The study `name`, beside `file` or in `folder`."""
    beside = Path(os.path.normpath(file.parent / name))
    places = [beside, folder / name, folder / f"{name}.yaml"]
    return next((place for place in places if _is_study(place)), None)


def _whole(file: Path, folder: Path, extending: tuple[Path, ...]) -> yaml.MappingNode:
    """The tree of a study, merged over what it extends; `extending` are the files on the way."""
    tree = read(file).tree
    own, named = _without_extends(tree)
    if named is None:
        return _with_models(own, _pairs(None))
    name = _text(named, EXTENDS)
    parent = _parent(file, folder, name)
    if parent is None:
        what = f"neither a YAML file in {file.parent} nor a study in {folder}"
        raise _misplaced(named, EXTENDS, f"{name!r} is {what}{nearest(name, _names(folder))}")
    chain = [*extending, file]
    if parent.resolve() in [each.resolve() for each in chain]:
        circle = " extends ".join(map(str, [*chain, parent]))
        raise _misplaced(named, EXTENDS, f"a circle, which must be broken: {circle}")
    below = _whole(parent, folder, tuple(chain))
    return _with_models(_merged(below, own, [Study]), _pairs(_value(below, "models")))


def _with_models(tree: yaml.Node, below: _Pairs) -> yaml.MappingNode:
    """The tree with each model that extends another merged over it.

    `below` are the models of the study that this one extends: one can be extended though this
    study takes it out.
    """
    pairs, models = _pairs(tree), _value(tree, "models")
    known = {**below, **_pairs(models)}

    def whole(name: str, extending: tuple[str, ...]) -> yaml.Node:
        own, named = _without_extends(known[name][1])
        if named is None:
            return own
        place, other = f"models.{name}.{EXTENDS}", _text(named, f"models.{name}.{EXTENDS}")
        if other not in known:
            what = f"{other!r} is not a model of this study{nearest(other, known)}"
            raise _misplaced(named, place, what)
        chain = (*extending, name)
        if other in chain:
            circle = " extends ".join([*chain, other])
            raise _misplaced(named, place, f"a circle, which must be broken: {circle}")
        return _merged(whole(other, chain), own, [Model])

    if isinstance(models, yaml.MappingNode):
        each = {name: (key, whole(name, ())) for name, (key, _) in _pairs(models).items()}
        pairs["models"] = pairs["models"][0], _mapping(models, each)
    return _mapping(tree, pairs)


def _without_extends(section: yaml.Node) -> tuple[Any, yaml.Node | None]:
    """A section without its key `extends`, and what stands there."""
    named, pairs = _value(section, EXTENDS), _pairs(section)
    pairs.pop(EXTENDS, None)
    return (section if named is None else _mapping(section, pairs)), named


def _text(node: yaml.Node, key: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.tag.endswith(":str"):
        raise _misplaced(node, key, "must be text, the name of what is extended")
    return str(node.value)


def _misplaced(node: yaml.Node, key: str, message: str) -> StudyError:
    mark = node.start_mark
    return StudyError(f"{mark.name}: {key}: {message} (line {mark.line + 1})")


def _is_study(file: Path) -> bool:
    return file.suffix in (".yaml", ".yml") and file.is_file()


def _names(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.yaml")]


def _merged(below: yaml.Node, above: yaml.Node, kinds: Sequence[Any]) -> yaml.Node:
    """`above` over `below`: mappings key by key, anything else whole.

    `null` takes out a key that stands below, unless `kinds`, the types that this section can have,
    give `null` a meaning of its own there, as for `lora`. A new key stands beside the keys of
    `below` that it is written beside, for the order of exhibits is that of the report.
    """
    if not isinstance(below, yaml.MappingNode) or not isinstance(above, yaml.MappingNode):
        return above
    pairs = _pairs(below)
    order = list(pairs)
    changed = [name for name in _pairs(above) if name in pairs]
    position = order.index(changed[0]) if changed else len(order)
    for name, (key, value) in _pairs(above).items():
        if name not in pairs:
            order.insert(position, name)
            pairs[name] = key, value
        else:
            position = order.index(name)
            if value.tag.endswith(":null") and not _means_something(name, kinds):
                order.remove(name)
                continue
            pairs[name] = key, _merged(pairs[name][1], value, _inside(name, kinds))
        position += 1
    return _mapping(above, {name: pairs[name] for name in order})


def _means_something(name: str, kinds: Sequence[Any]) -> bool:
    """Whether `name: null` differs from leaving the key out."""
    fields = [kind.model_fields[name] for kind in kinds if is_model(kind) and _has(kind, name)]
    return any(
        type(None) in typing.get_args(field.annotation)
        and (field.is_required() or field.get_default() is not None)
        for field in fields
    )


def _inside(name: str, kinds: Sequence[Any]) -> list[Any]:
    """The types that the value under a key can have, in a section of one of `kinds`."""
    inner: list[Any] = []
    for kind in kinds:
        if is_model(kind) and _has(kind, name):
            inner += members(kind.model_fields[name].annotation)
        elif typing.get_origin(kind) is dict:
            inner += members(typing.get_args(kind)[1])
    return inner


def _has(kind: Any, name: str) -> bool:
    return name in kind.model_fields


def _pairs(node: yaml.Node | None) -> _Pairs:
    """Keys and values of a mapping; none of anything else."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {str(key.value): (key, value) for key, value in pairs}


def _value(node: yaml.Node, name: str) -> yaml.Node | None:
    return _pairs(node)[name][1] if name in _pairs(node) else None


def _mapping(like: yaml.Node, pairs: _Pairs) -> yaml.MappingNode:
    """A mapping that stands where `like` does."""
    marks = like.start_mark, like.end_mark
    return yaml.MappingNode("tag:yaml.org,2002:map", list(pairs.values()), *marks)


def _flatten(node: yaml.Node | None, loader: Any, done: set[int]) -> None:
    """Replace `<<` by what it stands for; refuse a key that occurs twice: YAML keeps the last."""
    if node is None or isinstance(node, yaml.ScalarNode) or id(node) in done:
        return
    done.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _flatten(each, loader, done)
        return
    seen: list[Any] = []
    for key, value in node.value:
        if key.value in seen:
            raise yaml.MarkedYAMLError(
                problem=f"key {key.value!r} occurs twice", problem_mark=key.start_mark
            )
        seen.append(key.value)
        _flatten(value, loader, done)
    loader.flatten_mapping(node)


def _step(node: yaml.Node, key: str) -> tuple[Any, yaml.Node, str] | None:
    """One step from a node towards `key`: the mark and node of what is there, the rest of the key.

    Names may hold dots, so the longest that fits is taken.
    """
    if isinstance(node, yaml.SequenceNode):
        match = _INDEX.match(key)
        if match is None or int(match[1]) >= len(node.value):
            return None
        inner = node.value[int(match[1])]
        return inner.start_mark, inner, key[match.end() :]
    pairs = _pairs(node)
    fitting = [name for name in pairs if key == name or key.startswith((f"{name}.", f"{name}["))]
    if not fitting:
        return None
    name = max(fitting, key=len)
    return pairs[name][0].start_mark, pairs[name][1], key[len(name) :].removeprefix(".")


_IN_WORDS = {
    "mapping values are not allowed": "a colon with a space behind it stands within text; put the "
    "text in quotes: 'first: second'",
    "found undefined alias": "*{word} stands for nothing: no &{word} comes before it",
    "found character '\\t'": "a tab; YAML is indented with spaces",
    "found character that cannot start any": "{rest!r} cannot begin a value; put it in quotes",
    "did not find expected key": "this line is indented in another way than those it belongs to, "
    "or the colon behind its key is missing",
    "could not find expected ':'": "the colon behind a key is missing, here or a line above",
}
"""What the parser of YAML says, and what people can do about it."""


def _not_yaml(file: Path, error: yaml.YAMLError) -> StudyError:
    mark, said = getattr(error, "problem_mark", None), str(getattr(error, "problem", error))
    if mark is None:
        return StudyError(f"{file}: not valid YAML: {error}")
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    lines = text.splitlines()
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    word = re.match(r"\*?([\w.-]*)", rest)
    for start, meant in _IN_WORDS.items():
        if said.startswith(start):
            said = meant.format(rest=rest[:20], word=word[1] if word else "")
    place = f", line {mark.line + 1}, column {mark.column + 1}"
    return StudyError(f"{file}{place}: not valid YAML: {said}")
