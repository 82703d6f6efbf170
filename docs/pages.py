"""MkDocs hook: pages of the site that are elsewhere in the repository, so no text is there twice.

Their links are relative to the repository, those of docs/ to that folder; both are made relative to
the site, in which docs/ is the root. The reports of kept runs are in the site as they are, with a
page that lists them. The pages that explain every key of a file are made of config/schemas, and the
page of other methods of what the files of sage/rivals say at their head.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOUND = sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("reports/**/README.md"))
"""The pages of what was found: all questions, and each."""

ELSEWHERE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config/README.md", *FOUND)
PICTURES = sorted(
    {
        normpath(join(dirname(name), picture))
        for name in ("README.md", *FOUND)
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / name).read_text("utf-8"))
    }
)
_LINK = re.compile(r"(\]\()([^)\s#:]+)([#)])")

FILES = sorted(
    {
        normpath(join(folder, link))
        for folder, text in (
            *((dirname(name), (ROOT / name).read_text("utf-8")) for name in ELSEWHERE),
            *(("docs", file.read_text("utf-8")) for file in ROOT.glob("docs/**/*.md")),
        )
        for _, link, _ in _LINK.findall(text)
        if Path(link).suffix != ".md" and Path(link).name != "index.html"
    }
    - {*PICTURES}
)
"""The files that pages link: tables, a licence, examples."""

KEPT = "kept.md"
"""The page that lists the reports of kept runs."""
RIVALS = "rivals.md"
"""The page of methods of other papers."""

KEYS = {
    "keys/config.md": "config/config.yaml",
    "keys/study.md": "config/studies/{name}.yaml",
    "keys/algorithms.md": "config/algorithms.yaml",
    "keys/benchmarks.md": "config/benchmarks.yaml",
    "keys/patterns.md": "config/patterns.yaml",
}
"""The pages that explain keys, each with the file that has them."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, the pictures that they show and the files that they link."""
    from mkdocs.structure.files import File

    for name in (*ELSEWHERE, *PICTURES, *FILES):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for page in kept_pages():
        name = page.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(page)))
    files.append(File.generated(config, KEPT, content=kept_list()))
    for name in KEYS:
        files.append(File.generated(config, name, content=keys_page(name)))
    files.append(File.generated(config, RIVALS, content=rivals()))
    return files


def kept_pages() -> list[Path]:
    """The reports of kept runs that have one."""
    return sorted(ROOT.glob("reports/*/*/index.html"))


def kept_list() -> str:
    """The page that lists them: name, date, commit and what is to be known of each."""
    lines = ["# Reports of kept runs", ""]
    lines += ["Each is one file that loads nothing from elsewhere. Newer code may show more.", ""]
    for page in kept_pages():
        run = json.loads((page.parent / "run.json").read_text(encoding="utf-8"))
        commits = run["git_commit"] if isinstance(run["git_commit"], list) else [run["git_commit"]]
        commit = " and ".join(each[:10] for each in commits)
        link = page.relative_to(ROOT).as_posix()
        lines += [f"## [{page.parent.name}]({link})", ""]
        lines += [f"{run['ended'][:10]}, commit {commit}.", "", run["note"], ""]
    return "\n".join(lines)


def keys_page(name: str) -> str:
    """The page of KEYS with that name: a table of keys for each section that the file can have."""
    file = ROOT / f"config/schemas/{Path(name).stem}.schema.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    sections = {"": schema} if "properties" in schema else {}
    for title, section in schema.get("$defs", {}).items():
        # Those of a study that extends another differ only in that no key is required; the
        # sections that choose between the two have no keys of their own.
        if not title.startswith("part of ") and "if" not in section:
            sections[_title(title)] = section
    lines = [f"# {KEYS[name]}", ""]
    for title in sorted(sections, key=lambda title: title != "Study"):
        section = sections[title]
        lines += [f"## {title}", ""] if title else []
        lines += [section.get("description", ""), ""]
        if rows := list(_rows(section)):
            lines += ["| key | takes | meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _title(definition: str) -> str:
    """What a definition is called, without what tells it from that of a study that extends."""
    return definition.removeprefix("whole ")


def _rows(section: Any, before: str = "") -> Iterator[str]:
    """A row for each key of a section, and for the keys of a section that is written inside it."""
    for key, value in section.get("properties", {}).items():
        said = value.get("description", "")
        if said == section.get("description"):  # of the key that chooses this kind of section
            said = "selects this kind"
        meaning = said.replace("\n\n", ". ").replace("|", "\\|")
        required = ", required" if key in section.get("required", ()) else ""
        yield f"| `{before}{key}` | {_form(value)}{required} | {meaning} |"
        for inner in (value, value.get("items", {})):
            for part in (inner, *inner.get("anyOf", ())):
                yield from _rows(part, f"{before}{key}.")


def _form(value: Any) -> str:
    """What a value looks like, in words."""
    if "$ref" in value:
        title = _title(value["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if choices := value.get("anyOf", value.get("oneOf")):
        return " or ".join(dict.fromkeys(map(_form, choices)))
    if allowed := [value["const"]] if "const" in value else value.get("enum"):
        return ", ".join(f"`{each}`" for each in allowed)
    if "items" in value:
        return f"list of {_form(value['items'])}"
    for inner in (value.get("additionalProperties"), *value.get("patternProperties", {}).values()):
        if isinstance(inner, dict):
            return f"by name: {_form(inner)}"
    if "properties" in value:
        return "section"
    if "Class" in value.get("description", ""):
        return "`module:Class`"
    return _WORDS.get(value.get("type"), "any value")


_WORDS = {
    "boolean": "`true`, `false`",
    "integer": "integer",
    "number": "number",
    "string": "text",
    "null": "`null`",
    "object": "section",
}


def rivals() -> str:
    """The page of the rivals: the head of each file, under the name of the method."""
    lines = ["# Methods of other papers", "", "Other ways to keep coverage, one file a paper.", ""]
    for file in sorted((ROOT / "sage/rivals").glob("[a-z]*.py")):
        head = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        lines += [
            f"## {head.partition(' (')[0]}",
            "",
            head,
            "",
            f"Code: `sage/rivals/{file.name}`",
            "",
        ]
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make the links of a page relative to the site."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, place: str) -> str:
    """Links of the page at `place` in the site, such as README.md or method.md."""
    source = place if place in (*ELSEWHERE, KEPT, RIVALS, *KEYS) else f"docs/{place}"

    def moved(match: re.Match[str]) -> str:
        target = normpath(join(dirname(source), match[2]))
        return f"{match[1]}{relpath(in_site(target), dirname(place) or '.')}{match[3]}"

    return _LINK.sub(moved, markdown)


def in_site(path: str) -> str:
    """Where a file of the repository is in the site."""
    return path.removeprefix("docs/")
