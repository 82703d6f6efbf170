"""Pages of a small study for tests: their content, their markup, a browser that opens them."""

import re
import subprocess
from dataclasses import replace
from functools import cache, partial
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import html5lib
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from report_frames import (
    COMPARISONS,
    HISTORIES,
    METRICS,
    ROOT,
    a_study,
    changed,
    figure_of,
    pass_at_k,
)

from sage.claims.evidence import Measured
from sage.claims.ledger import ledger
from sage.claims.registration import read_entries, register
from sage.claims.tests import load_claims
from sage.evaluation.histories import history_frame
from sage.exhibits import write_piece
from sage.exhibits.case_study import CaseStudy, CaseStudyText, Solution
from sage.problems.record import Problem, write_problems
from sage.rendering.documents import read_document
from sage.rendering.style import draw_figure
from sage.rendering.table import PageTable
from sage.report import browser
from sage.report.loader import PageContent, PageFiles, read_sources
from sage.report.page import render_page
from sage.results import Results, Run
from sage.study import ResolvedStudy

HOSTILE = (
    "</script ><script>document.title='taken'</script><img src=x onerror=alert(1)>"
    "<!--<script &amp;\u2028 \x00"
)
RESULTS = Results(Path("results/smoke"))
FILES = PageFiles(RESULTS, RESULTS, ROOT / "reports")
GRPO = Run("tiny", "grpo", 1)
SVG = "{http://www.w3.org/2000/svg}"
RATES = pd.DataFrame(
    [
        ("tiny", algorithm, seed, "easy", status, share, count)
        for algorithm, seed, count, shares in (
            ("base", 0, 100, (0.5, 0.2, 0.3, 0.0)),
            ("grpo", 1, 100, (0.8, 0.1, 0.1, 0.0)),
            ("grpo", 2, 300, (0.4, 0.5, 0.1, 0.08)),
        )
        for status, share in zip(("correct", "wrong", "unparsed", "truncated"), shares, strict=True)
    ],
    columns=["model", "algorithm", "train_seed", "benchmark", "status", "share", "n_samples"],
)
MEASURED = Measured(
    COMPARISONS.assign(algorithm="branch", other="grpo", low=-0.1, high=0.1, p=0.2, n_problems=40)
)
MANIFEST = {
    "versions": {"python": "3.13", "trl": "1.16.0"},
    "started": "2026-11-24T10:00:00+00:00",
    "git_commit": "0123456789abcdef+changes",
    "hardware": {"cpu": "A <fast> one", "memory_gib": 15.6, "gpu": None},
    "wall_seconds": 3725.0,
    "tokens": 1_234_567,
    "peak_memory_gib": 1.25,
}


def with_a_case(study: ResolvedStudy) -> ResolvedStudy:
    exhibits = {
        **study.study.exhibits,
        "case_study": CaseStudyText(
            kind="case_study", title="One problem", model="tiny", benchmark="easy"
        ),
    }
    return changed(study, exhibits=exhibits)


def a_problem(name: str, text: str = "1+1") -> Problem:
    return Problem(name, text, "2", "math", "1", "generator", "seed 1")


def sample_rows(problems: int = 3, each: int = 6) -> pd.DataFrame:
    """Graded samples: of each problem's, two are correct, two wrong, one unparsed, one cut off."""
    statuses = ["correct", "wrong", "correct", "wrong", "unparsed", "timeout"]
    return pd.DataFrame(
        [
            {
                "problem_id": f"p{problem}",
                "eval_seed": 0,
                "sample_index": index,
                "completion": f"try {index} of p{problem} {HOSTILE}",
                "answer": None if index % 6 == 4 else f"<b>{index}</b>",
                "status": statuses[index % 6],
                "n_tokens": 10 + index,
                "finish_reason": "length" if index % 6 == 5 else "stop",
            }
            for problem in range(problems)
            for index in range(each)
        ]
    )


def write_samples(
    folder: Path, algorithms: tuple[str, ...] = ("base", "grpo"), rows: pd.DataFrame | None = None
) -> list[Path]:
    """Sample files of the benchmark `easy`, in row groups of four."""
    table, paths = pa.Table.from_pandas(sample_rows() if rows is None else rows), []
    for algorithm in algorithms:
        path = folder / f"samples/tiny/{algorithm}/seed{int(algorithm != 'base')}/easy.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path, row_group_size=4)
        paths.append(path)
    return paths


def some_excerpts(folder: Path) -> str:
    problems = folder / "problems/easy.jsonl"
    write_problems([a_problem(f"p{i}", f"{i} + 1 {HOSTILE}") for i in range(3)], problems)
    output = folder / "samples.json"
    browser.write_excerpts(write_samples(folder), {"easy": problems}, output)
    return output.read_text()


def a_table(study: ResolvedStudy, name: str, folder: Path) -> PageTable:
    """An accuracy table as its rule leaves it for the page."""
    measured = folder / "measured"
    measured.mkdir(parents=True, exist_ok=True)
    reading = pd.DataFrame(columns=["model", "algorithm", "train_seed", "benchmark", "metric"])
    for key, frame in {
        "pass_at_k": pass_at_k(METRICS),
        "comparisons": COMPARISONS,
        "paper_reading": reading,
    }.items():
        frame.to_parquet(measured / f"{key}.parquet")
    csv = folder / f"{name}.csv"
    write_piece(study, name, "", [measured], ROOT / "reports/paper", csv)
    return read_document(csv.with_suffix(".json"))


@cache
def svgs() -> dict[str, str]:
    """Figure 3 and the training curves, drawn once."""
    study = with_a_case(a_study())
    with TemporaryDirectory() as folder:
        drawn = {}
        frames = {"pass_at_k": pass_at_k(METRICS), "histories": history_frame(HISTORIES)}
        for name in ("figure3", "training"):
            path = Path(folder, f"{name}.svg")
            draw_figure(partial(figure_of, study, name, **frames), path)
            drawn[name] = path.read_text()
        return drawn


def a_content(study: ResolvedStudy, folder: Path) -> PageContent:
    """Content with a few exhibits that are there, a hostile case, and much that is not."""
    solutions = tuple(
        Solution(name, f"so {HOSTILE}", "2", 0, 1, 3, 4) for name in study.methods_of("case_study")
    )
    asked = load_claims(ROOT / "config/claims.yaml")
    claims = ledger(asked, study, MEASURED)
    register(study, asked, folder / "registered.json", folder / "none.json")
    entries = read_entries(folder / "registered.json")
    return PageContent(
        metrics={
            "pass_at_k": pass_at_k(METRICS),
            "comparisons": COMPARISONS,
            "rates": RATES,
            "claims": claims,
        },
        tables={"table1": a_table(study, "table1", folder)},
        figures=svgs(),
        cases={"case_study": CaseStudy(a_problem("p1", HOSTILE), solutions, 1, 3)},
        excerpts=some_excerpts(folder),
        problems={"easy": [a_problem("1")]},
        policies={GRPO: MANIFEST},
        registered=[entry | {"time": MANIFEST["started"]} for entry in entries],
        sources=read_sources(ROOT / "reports"),
    )


def with_findings(claims: pd.DataFrame) -> pd.DataFrame:
    """The ledger as if each test of each claim had found something."""
    found = claims.assign(
        verdict="inconclusive", place="easy", effect=0.01, low=-0.01, high=0.03, p=0.2, n=40
    )
    return found.assign(
        over="problems", runs=3, bases=1, place_verdict="inconclusive", detectable=0.05
    )


def a_page_with_claims(study: ResolvedStudy, folder: Path, **changed: Any) -> str:
    """A page on which each test of each claim has found something."""
    content = replace(a_content(study, folder), **changed)
    metrics = {**content.metrics, "claims": with_findings(content.metrics["claims"])}
    return render_page(study, replace(content, metrics=metrics), FILES, RESULTS.page)


def a_page(study: ResolvedStudy, folder: Path, **changed: Any) -> str:
    content = replace(a_content(study, folder), **changed)
    return render_page(study, content, FILES, RESULTS.page)


class Markings(HTMLParser):
    """Collects elements and attributes of a page and checks that tags are closed in order."""

    VOID = ("meta", "wbr", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def values(self, *names: str) -> list[str]:
        return [value for _, name, value in self.attributes if name in names]


def parsed(page: str) -> ElementTree.Element:
    """The page as a tree. Raises html5lib's ParseError at the first fault."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def words_of(element: ElementTree.Element | None) -> str:
    return "" if element is None else "".join(element.itertext()).strip()


def heading_levels(page: str) -> list[int]:
    return [int(tag[1]) for tag in Markings(page).tags if re.fullmatch("h[1-6]", tag)]


def not_skipping(levels: list[int]) -> bool:
    return all(below - above <= 1 for above, below in pairwise([0, *levels]))


def opened(chromium: str, page: str, folder: Path) -> tuple[str, str]:
    """The page's markup after its script has run, and what the browser complained of."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    switches = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    switches += "--disable-background-networking --disable-component-update --disable-sync "
    switches += "--enable-logging=stderr --virtual-time-budget=5000 --dump-dom"
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [chromium, *switches.split(), profile, path.resolve().as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
