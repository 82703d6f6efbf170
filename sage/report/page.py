"""The report as one self-contained HTML page: no requests; figures, style and script are inlined.

`write_page` reads files and writes one; `render_page` turns their content into the page. The other
modules of this package format text; the templates (`reports/`) write the markup. Every table and
figure names its file and the command that makes it. Model output is always text: the templates
escape it, and the only script, named by its hash in the page's policy, writes only text.
Links lead to the files beside the page, and to the paper and the code; none is followed by itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from sage.claims import CONTRASTS
from sage.claims.registration import registration
from sage.claims.view import counted, ledger_view, primary_lines, untested_guides
from sage.rendering import markup
from sage.rendering.labels import method_title
from sage.rendering.lines import LineStyle, line_styles
from sage.report import provenance
from sage.report.browser import with_titles
from sage.report.loader import PageContent, PageFiles, read_content
from sage.report.opening import findings_of, opening
from sage.report.sections import exhibit_sections, said_often, study_sections
from sage.report.warnings import warnings
from sage.runtime.common_work import taken_over
from sage.runtime.files import write_text_atomic
from sage.study import ResolvedStudy
from sage.tasks import task_of

TEMPLATE, STYLE = "template.html.j2", "style.css"
SCRIPTS = ("page.js", "browser.js")
"""The second only where there are samples to browse."""


def write_page(
    study: ResolvedStudy, files: PageFiles, page_path: Path, partial_report: bool = False
) -> None:
    """Read the page's files, as far as they exist, and write the page to `page_path`."""
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
    without the needed columns or pooled rows, and for excerpts that are not JSON.
    """
    shared = {
        "command": partial(markup.command, study),
        "title_of": partial(method_title, study),
    }
    excerpts = with_titles(content.excerpts, study) if content.excerpts else ""
    started = [str(manifest["started"]) for manifest in content.policies.values()]
    asked = registration(content.registered, started)
    ledger = content.metrics.get("claims")
    claims = ledger_view(ledger, study, asked)
    tested = [claim for claim in claims if claim.verdict != "not run"]
    trains = any(model.rl for model in study.study.models.values())
    early = sorted(
        (claim for claim in tested if not claim.exploratory), key=lambda claim: not claim.headline
    )
    opens = [] if ledger is None else primary_lines(ledger, study, early)
    lead, exhibits = exhibit_sections(study, content, files)
    always = study_sections(study, content, files)
    date, commit = provenance.made_from(content)
    return rendered(
        TEMPLATE,
        content.sources,
        page_path,
        scripts=SCRIPTS[: 2 if excerpts else 1],
        shared=shared,
        study=study,
        partial_report=partial_report,
        facts=provenance.study_facts(study),
        date=date,
        commit=commit,
        repository=content.repository,
        bibtex=provenance.bibtex(study.study.paper) if study.study.paper else "",
        excerpts=json_block(excerpts) if excerpts else None,
        excerpts_note=json.loads(excerpts).get("note", "") if excerpts else "",
        trains=trains,
        methods=methods_shown(study),
        claims=claims if trains else tested,
        tested=tested,
        counted=counted(claims if trains else tested),
        opening=opening(
            study,
            content.metrics.get("comparisons"),
            content.metrics.get("pass_at_k"),
            opens,
            len(early) - len(opens),
            findings_of(study, content.told),
            content.metrics.get("chance"),
            untested_guides(ledger),
        ),
        comparisons_path=files.made.metrics("comparisons").as_posix(),
        measured="pass_at_k" in content.metrics,
        lead=lead,
        claims_path=files.made.metrics("claims", "csv").as_posix(),
        registered=asked.of_study(study),
        registered_path=files.results.registered.as_posix(),
        contrasts_path=files.made.figure(CONTRASTS).as_posix(),
        warnings=warnings(study, content),
        exhibits=exhibits,
        study_sections=always,
        common=said_often([*([lead] if lead else []), *exhibits, *always]),
        problem_sets=provenance.problem_sets(study, content.problems, files.results),
        settings=provenance.all_settings(study),
        run_tables=provenance.run_tables(study, content, files),
        taken=taken_over(files.results.folder),
        versions=provenance.recorded(content, "versions"),
        hardware=provenance.recorded(content, "hardware"),
        excerpts_path=files.made.excerpts.as_posix(),
        page_path=page_path.as_posix(),
    )


def methods_shown(study: ResolvedStudy) -> list[tuple[str, str, LineStyle]]:
    """Name, title and line style of the methods that exhibits show, without an ablation's."""
    names = dict.fromkeys(row for name in study.study.exhibits for row in study.methods_of(name))
    styles = line_styles(study)
    kept = [name for name in names if name not in study.variants]
    return [(name, method_title(study, name), styles[name]) for name in kept]


def rendered(
    template: str,
    sources: Mapping[str, str],
    page: Path,
    /,
    scripts: Sequence[str] = SCRIPTS[:1],
    shared: Mapping[str, Any] = MappingProxyType({}),
    **content: Any,
) -> str:
    """A page from one of the templates in `sources`, with style, colours and `scripts` inside;
    macros see what is `shared` as well."""
    script = "\n".join(sources.get(name, "") for name in scripts)
    environment = Environment(
        loader=DictLoader({k: v for k, v in sources.items() if k.endswith(".j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": markup.breakable,
        "gold": lambda answer, kind: task_of(kind).readable(answer),
        "visible": markup.visible,
        "line_key": markup.line_key,
        "beside": partial(beside, page),
    }
    environment.globals |= shared
    return environment.get_template(template).render(
        policy=content_policy(script),
        script=Markup(script),
        style=Markup(sources.get(STYLE, "")),
        palette=Markup(markup.palette_css()),
        **content,
    )


def beside(page: Path, path: str) -> str:
    """A file's address relative to the page's folder."""
    return Path(os.path.relpath(path, page.parent)).as_posix()


def content_policy(script: str) -> str:
    """The page's Content-Security-Policy: nothing is loaded, and only this script runs."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(text: str) -> Markup:
    """JSON text for a script element: none of its characters can end the element or start one."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
