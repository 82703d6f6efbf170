"""MkDocs hook: pages of the site that are elsewhere in the repository, so no text is there twice.

Their links are relative to the repository, those of docs/ to that folder; both are made relative to
the site, in which docs/ is the root. The reports of kept runs are in the site as they are, with a
page that lists them.
"""

import json
import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config/README.md")
PICTURES = (
    "reports/strata.svg",
    "reports/kept/mini/tradeoff.svg",
    "reports/kept/dose/dose_plus.svg",
    "reports/kept/dose/dose_minus.svg",
    "reports/kept/equal_accuracy/free_rivals.svg",
)
FILES = (
    "CITATION.cff",
    "LICENSE",
    "examples/sage_minimal.py",
    "examples/train.ipynb",
    "examples/explore.ipynb",
)
KEPT = "kept.md"
"""The page that lists the reports of kept runs."""

_LINK = re.compile(r"(\]\()([^)\s#:]+)([#)])")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, the pictures that they show and the files that they link."""
    from mkdocs.structure.files import File

    for name in (*ELSEWHERE, *PICTURES, *FILES):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for page in kept_pages():
        name = page.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(page)))
    files.append(File.generated(config, KEPT, content=kept_list()))
    return files


def kept_pages() -> list[Path]:
    """The reports of kept runs that have one."""
    return sorted(ROOT.glob("reports/kept/*/index.html"))


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


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make the links of a page relative to the site."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, place: str) -> str:
    """Links of the page at `place` in the site, such as README.md or method.md."""
    source = place if place in (*ELSEWHERE, KEPT) else f"docs/{place}"

    def moved(match: re.Match[str]) -> str:
        target = normpath(join(dirname(source), match[2]))
        return f"{match[1]}{relpath(in_site(target), dirname(place) or '.')}{match[3]}"

    return _LINK.sub(moved, markdown)


def in_site(path: str) -> str:
    """Where a file of the repository is in the site."""
    return path.removeprefix("docs/")
