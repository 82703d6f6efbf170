"""The report as one self-contained HTML page: no request, figures, styles and script inlined.

`write_page` reads files and writes one; `render_page` turns their content into the page. Text is
formatted in the modules below, markup is the templates' (`reports/`), and every table and figure
names the file it came from and the command that makes it. Model output is text everywhere: the
templates escape it, and the one script, named by its hash in the page's policy, writes text only.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from sage.claims.view import ledger_view
from sage.reporting import background, runs, views
from sage.reporting.cautions import cautions
from sage.reporting.content import PageContent, read_content
from sage.reporting.layout import PageFiles
from sage.reporting.sections import exhibit_sections
from sage.reporting.wording import row_title
from sage.runtime.files import write_text_atomic
from sage.study import ResolvedStudy

TEMPLATE, STYLE, SCRIPT = "template.html.j2", "style.css", "browser.js"


def write_page(
    study: ResolvedStudy, files: PageFiles, page_path: Path, partial_report: bool = False
) -> None:
    """Read what the page is made from, as far as it is there, and write it to `page_path`."""
    content = read_content(study, files)
    write_text_atomic(page_path, render_page(study, content, files, page_path, partial_report))


def render_page(
    study: ResolvedStudy,
    content: PageContent,
    files: PageFiles,
    page_path: Path,
    partial_report: bool = False,
) -> str:
    """The page as HTML text; the same content gives the same text.

    `files` and `page_path` are only named, not read or written. Raises ValueError for metrics
    that lack columns or pooled rows, and for excerpts that are not JSON.
    """
    environment = Environment(
        loader=DictLoader({k: v for k, v in content.sources.items() if k.endswith(".j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "command": partial(views.command, study),
        "title_of": partial(row_title, study),
        "case_paths": {name: path.as_posix() for name, path in files.cases.items()},
    }
    environment.filters |= {"breakable": views.breakable, "shown": views.shown}
    script = content.sources.get(SCRIPT, "") if content.excerpts else ""
    return environment.get_template(TEMPLATE).render(
        study=study,
        partial_report=partial_report,
        facts=runs.study_facts(study),
        policy=content_policy(script),
        style=Markup(content.sources.get(STYLE, "")),
        palette=Markup(views.palette_css()),
        script=Markup(script),
        excerpts=json_block(content.excerpts) if content.excerpts else None,
        claims=ledger_view(content.metrics.get("claims"), study),
        claims_path=files.metrics["claims"].as_posix(),
        cautions=cautions(study, content, files),
        exhibits=exhibit_sections(study, content, files),
        background=_background(study, content, files),
        problem_sets=runs.problem_sets(study, content.problems, files.problems),
        settings=runs.all_settings(study),
        run_tables=runs.run_tables(study, content, files),
        versions=runs.recorded(content, "versions"),
        hardware=runs.recorded(content, "hardware"),
        excerpts_path=files.excerpts.as_posix(),
        page_path=page_path.as_posix(),
    )


def content_policy(script: str) -> str:
    """The page's Content-Security-Policy: nothing is loaded, and no script runs but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(text: str) -> Markup:
    """JSON text for a script element: no character in it can end the element or start another.

    Raises ValueError for text that is not JSON.
    """
    json.loads(text)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _background(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Any]:
    return [
        background.theory_section(content, files),
        background.settings_section(study, content, files),
        background.contamination_section(study, content, files),
        background.grading_section(study, content, files),
        background.support_section(study, content, files),
    ]
