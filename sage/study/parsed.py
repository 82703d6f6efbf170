"""YAML as mappings that remember file and line of each key; what is none is named in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from sage.faults import as_written

Place = tuple[str, int]
"""A file and a line of it."""


class StudyError(ValueError):
    """The configuration is not usable; the message lists every fault."""


class Section(dict[Any, Any]):
    """A mapping of a file, with the place of each key, and of each (key, index) of a list in it."""

    places: Mapping[Any, Place]


yaml.SafeDumper.add_representer(Section, yaml.SafeDumper.represent_dict)


def placed(content: Mapping[Any, Any], places: Mapping[Any, Place]) -> Section:
    section = Section(content)
    section.places = places
    return section


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_OTHER_BASE = re.compile(r"[+-]?0[0-9_]+|.*:.*")
_KINDS = {
    "timestamp": "a date; for text, put it in quotes",
    "int": "a number that can be read; for text, put it in quotes",
    "float": "a number; for text, put it in quotes",
    "bool": "true or false; for text, put it in quotes",
    "str": "text that can be shown: take the control characters out",
}
"""What a value of YAML must be, by its tag, and the way out."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, unused-ignore]
    """Reads mappings as those above; `file` is the name that places have."""

    file: str

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Any value; what its type refuses, such as a date that no month has, has its place."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int | float) and _OTHER_BASE.fullmatch(node.value):
                raise ValueError  # YAML 1.1 reads 010 as 8 and 1:30 as 90
            if isinstance(value, int):
                str(value)  # refuses one of thousands of digits
            if isinstance(value, str) and _CONTROL.search(value):
                raise ValueError  # no figure and no page can show it
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"{as_written(node.value)} is not {_KINDS.get(kind, kind)}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error
        return value

    def section(self, node: yaml.MappingNode) -> Iterator[Section]:
        places: dict[Any, Place] = {}
        section = placed({}, places)
        yield section  # filled later, as an anchor may stand within it
        section.update(self.construct_mapping(node))
        for key, value in node.value:
            name = self.construct_object(key, deep=True)
            places[name] = self.file, key.start_mark.line + 1
            for index, each in enumerate(value.value if value.id == "sequence" else ()):
                places[name, index] = self.file, each.start_mark.line + 1


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.section)


def parsed(text: bytes, file: str) -> Any:
    """What stands in a text of YAML; StudyError, which names `file`, if it is none."""
    try:
        loader = _Loader(text)
        loader.file = file
        try:
            node = loader.get_single_node()
            _refuse_twice(node, set())
            return node and loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise _not_yaml(file, text, error) from error


def _refuse_twice(node: yaml.Node | None, done: set[int]) -> None:
    """Refuse a key that occurs twice in a mapping: YAML keeps the last."""
    if node is None or isinstance(node, yaml.ScalarNode) or id(node) in done:
        return
    done.add(id(node))
    seen = set()
    for each in node.value:
        if isinstance(node, yaml.MappingNode):
            key, each = each
            if str(key.value) in seen:
                problem = f"key {key.value!r} occurs twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(key.value))
        _refuse_twice(each, done)


_IN_WORDS = {
    "mapping values are not allowed": "a colon with a space behind it stands within text; put the "
    "text in quotes: 'first: second'",
    "found undefined alias": "*{word} stands for nothing: no &{word} comes before it",
    "found character '\\t'": "a tab; YAML is indented with spaces",
    "found character that cannot start any": "{rest!r} cannot begin a value; put it in quotes",
    "did not find expected key": "this line is indented in another way than those it belongs to, "
    "the colon behind its key is missing, or a quote above is not closed",
    "did not find expected ',' or": "a bracket is not closed, here or a line above, or a comma is "
    "missing",
    "could not find expected ':'": "the colon behind a key is missing, here or a line above",
}
"""What the parser of YAML says, and what people can do about it."""


def _not_yaml(file: str, text: bytes, error: Exception) -> StudyError:
    mark, said = getattr(error, "problem_mark", None), str(getattr(error, "problem", error))
    if mark is None:
        if isinstance(error, yaml.reader.ReaderError):
            said = f"byte {error.position} is not UTF-8; save the file as UTF-8"
        return StudyError(f"{file}: not valid YAML: {said}")
    lines = text.decode(errors="replace").splitlines()
    if said == "found unexpected end of stream":  # it says where the text ends
        mark, said = getattr(error, "context_mark", None) or mark, "a quote is not closed"
    elif (line := _open_quote(lines, mark)) is not None:
        return StudyError(f"{file}, line {line + 1}: not valid YAML: a quote is not closed")
    rest = lines[mark.line][mark.column :] if mark.line < len(lines) else ""
    if rest.startswith("\t"):
        said = "found character '\\t'"
    word = re.match(r"\*?([\w.-]*)", rest)
    for start, meant in _IN_WORDS.items():
        if said.startswith(start):
            said = meant.format(rest=rest[:20], word=word[1] if word else "")
    place = f", line {mark.line + 1}, column {mark.column + 1}"
    return StudyError(f"{file}{place}: not valid YAML: {said}")


def _open_quote(lines: Sequence[str], mark: yaml.Mark) -> int | None:
    """The line of the quote that one right before the mark has closed, if that is another line: the
    one in between was meant to close it."""
    before = lines[mark.line][: mark.column].rstrip() if mark.line < len(lines) else ""
    for number in range(mark.line - 1, -1, -1) if before[-1:] in ("'", '"') else ():
        opened = re.match(r"[^'\"#]*[:-] +(['\"])([^'\"]*)$", lines[number])
        if opened and opened[1] == before[-1]:
            return number
    return None
