"""What GitHub, catalogues, editors and readers expect of the repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import ROOT, copy_project, pytest_collection_modifyitems, snakemake_in

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "reports/*/README.md")
    for path in ROOT.glob(pattern)
    if path.is_file() and not path.relative_to(ROOT).as_posix().startswith("results")
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pages_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in _LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(other), f"{page.name}: {target}"


NEED_NO_CORES = (" -n", "--list", "--lint", "--report", "--workflow-profile")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_can_be_typed_as_they_stand(page: Path) -> None:
    """Snakemake runs no target without --cores; the list of changes only names targets."""
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```.*?^```", text, re.M | re.S))
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    commands = [line for line in blocks.splitlines() if re.search(r"(^|[ /])snakemake -?\w", line)]
    commands += [span for span in spans if re.match(r"\S*snakemake\s", span)]
    allowed = ("--cores", *NEED_NO_CORES)
    if page.name != "CHANGELOG.md":
        assert [one for one in commands if not any(word in one for word in allowed)] == []


def pages_of(nav: list[dict[str, Any]]) -> list[str]:
    """The pages of a navigation and its groups."""
    entries = [entry for named in nav for entry in named.values()]
    return [
        page
        for entry in entries
        for page in (pages_of(entry) if isinstance(entry, list) else [entry])
    ]


def test_the_site_has_the_reports_of_kept_runs(site: Any) -> None:
    listed = site.kept_list()
    assert site.kept_pages()
    for page in site.kept_pages():
        link = page.relative_to(ROOT).as_posix()
        assert f"## [{page.parent.name}]({link})" in listed
    assert site.relinked("[a](reports/mini/mini/index.html)", site.KEPT) == (
        "[a](reports/mini/mini/index.html)"
    )


def test_the_site_shows_the_head_of_each_rival(site: Any) -> None:
    page = site.rivals()
    files = sorted((ROOT / "sage/rivals").glob("[a-z]*.py"))
    assert re.findall(r"^Code: `(.*)`$", page, re.M) == [str(f.relative_to(ROOT)) for f in files]
    assert "\n## PKPO\n\nPKPO (arXiv 2505.15201, Eq. 33: s^(loo-1)): an unbiased gradient" in page
    assert "\n    A = 0                                     for a wrong one\n" in page


def test_the_site_has_every_page_once(site: Any) -> None:
    shown = pages_of(loaded("mkdocs.yml")["nav"])
    docs = [str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")]
    assert sorted(shown) == sorted([*docs, *site.ELSEWHERE, site.KEPT, site.RIVALS, *site.KEYS])
    assert shown[0] == "reports/README.md"
    assert all((ROOT / name).is_file() for name in (*site.ELSEWHERE, *site.PICTURES, *site.FILES))


def test_the_site_has_what_its_pages_link(site: Any) -> None:
    pages = [*(ROOT / name for name in site.ELSEWHERE), *ROOT.glob("docs/**/*.md")]
    within = {*pages, *(ROOT / name for name in (*site.PICTURES, *site.FILES)), *site.kept_pages()}
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in _LINK.findall(text):
            name = target.partition("#")[0]
            if name and "://" not in name:
                assert (page.parent / name).resolve() in within, f"{page.name}: {target}"


@pytest.mark.parametrize(
    ("place", "link", "expected"),
    [
        ("README.md", "docs/running.md#faults", "running.md#faults"),
        ("running.md", "../README.md#on-a-cluster", "README.md#on-a-cluster"),
        ("config/README.md", "../docs/running.md", "../running.md"),
        ("config/README.md", "#exhibits", "#exhibits"),
        ("method.md", "../reports/README.md", "reports/README.md"),
        ("reports/dose/README.md", "../mini/README.md", "../mini/README.md"),
        ("README.md", "https://example.org/a", "https://example.org/a"),
    ],
)
def test_links_are_moved_with_their_pages(site: Any, place: str, link: str, expected: str) -> None:
    assert site.relinked(f"[text]({link})", place) == f"[text]({expected})"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_of_pages_are_there(page: Path, site: Any) -> None:
    for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        assert str((page.parent / target).resolve().relative_to(ROOT)) in site.PICTURES


def test_hooks_have_the_pins_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = set(project["optional-dependencies"]["test"])
    hooks = [hook for repo in loaded(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    used = [pin for hook in hooks for pin in hook.get("additional_dependencies", [])]
    assert len(used) >= 3
    assert set(used) <= pins
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= hook.keys()
        re.compile(hook.get("files", ""))


@pytest.mark.parametrize("workflow", ["checks", "links", "next"])
def test_workflows_of_github_call_what_there_is(workflow: str) -> None:
    content = loaded(f".github/workflows/{workflow}.yml")
    assert content[True]  # YAML 1.1 reads `on` as a truth value
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for word in re.findall(r"\bmake ([\w-]+)(?!\w*=)", step.get("run", "")):
                assert word in targets or f"make {word}=" in step["run"], step["run"]
            for path in re.findall(r"\b(?:tests|workflow)/[\w./]+\.py", step.get("run", "")):
                assert (ROOT / path).is_file(), path
    if workflow == "checks":
        versions = content["jobs"]["tests"]["strategy"]["matrix"]["python"]
        floor = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
        assert f">={versions[0]}" == floor


def test_issue_forms_have_fields_with_labels() -> None:
    forms = [p for p in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config"]
    assert len(forms) == 2
    for form in forms:
        content = yaml.safe_load(form.read_text())
        assert content["name"]
        assert content["description"]
        ids = [field["id"] for field in content["body"]]
        assert len(ids) == len(set(ids))
        assert all(field["attributes"]["label"] for field in content["body"])


def test_the_citation_has_the_version_and_licence_of_the_project() -> None:
    citation = loaded("CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert {"message", "title", "authors"} <= citation.keys()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {citation['version']} ({citation['date-released']})\n" in changes


def test_files_that_need_the_smoke_study_come_last_but_for_the_first() -> None:
    def tests(name: str, *needs: bool) -> list[Any]:
        return [
            SimpleNamespace(path=Path(name), fixturenames=["project"] if need else [], number=i)
            for i, need in enumerate(needs)
        ]

    items = [
        *tests("late", False, True, True),
        *tests("small", False),
        *tests("soon", True, False),
        *tests("large", False, False),
    ]
    pytest_collection_modifyitems(items)
    assert [(item.path.name, item.number) for item in items] == [
        *[("soon", 0), ("soon", 1)],
        *[("large", 0), ("large", 1)],
        ("small", 0),
        *[("late", 0), ("late", 1), ("late", 2)],
    ]


def test_what_the_workflow_catalogue_asks_for_is_there() -> None:
    """Standardized usage: a main file, rules, instructions for the configuration, a usage file."""
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme
    assert "workflow" in readme
    assert (ROOT / "workflow/Snakefile").is_file()
    assert list((ROOT / "workflow/rules").glob("*.smk"))
    assert (ROOT / "config/README.md").is_file()
    assert (ROOT / "LICENSE").is_file()
    usage = loaded(".snakemake-workflow-catalog.yml")["usage"]
    assert usage["mandatory-flags"]["flags"].startswith("--config study=")
    assert any(usage["software-stack-deployment"].values())


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_catalogues_main_file_plans_the_same_jobs(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "sage")
    plans = [
        snakemake_in(folder)("-n", *arguments, "--config", "study=smoke")
        for arguments in ([], ["-s", "workflow/Snakefile"])
    ]
    assert plans[0].returncode == plans[1].returncode == 0, plans[1].stdout
    own, catalogues = (dict(re.findall(r"^(\w+) +(\d+)$", plan.stdout, re.M)) for plan in plans)
    assert int(own["total"]) > 20
    own["whole_study"] = own.pop("all")
    assert catalogues == own


def test_the_container_has_what_the_set_up_reads() -> None:
    recipe = (ROOT / "container/sage.def").read_text()
    files = re.search(r"%files\n(.*?)\n\n", recipe, re.S)
    assert files
    sources = [line.split()[0] for line in files[1].splitlines()]
    assert all((ROOT / source).exists() for source in sources)
    assert {"pyproject.toml", "sage", "workflow/install.py"} <= set(sources)
    assert "container/sage.sif" in (ROOT / "Snakefile").read_text()
