"""The page: it is self-contained, marks what is missing, and hostile text stays text."""

import base64
import hashlib
import json
import math
import re
import shutil
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
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_frames import (
    COMPARISONS,
    HISTORIES,
    METRICS,
    ROOT,
    a_study,
    figure_of,
    pass_at_k,
)

from sage.analysis.case_study import CaseStudy, Solution
from sage.analysis.dynamics import history_frame
from sage.claims.ledger import Measured, ledger
from sage.claims.tests import load_claims
from sage.exhibits import PAPER, kind_class, load_study, tables_of
from sage.exhibits.case_study import CaseStudyText
from sage.exhibits.making import write_table
from sage.exhibits.paper_values import COLUMNS as PAPER_COLUMNS
from sage.exhibits.paper_values import compared, paper_values, read_mapping
from sage.problems.record import Problem, write_problems
from sage.rendering.lines import PALETTE
from sage.rendering.markup import inline_svg
from sage.rendering.numbers import duration, grouped, p_text, points
from sage.rendering.style import draw_figure
from sage.rendering.table import PageTable, read_document
from sage.report import browser
from sage.report.loader import PageContent, PageFiles, read_sources
from sage.report.page import render_page
from sage.report.partial import comparable, write_partial
from sage.report.study_sections import grading_table
from sage.report.warnings import (
    changes,
    commit_notices,
    grading_notices,
    twin_notices,
    warnings,
)
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
    return study.model_copy(update={"study": study.study.model_copy(update={"exhibits": exhibits})})


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


def write_samples(folder: Path, algorithms: tuple[str, ...] = ("base", "grpo")) -> list[Path]:
    """Sample files of the benchmark `easy`, in row groups of four."""
    paths = []
    for algorithm in algorithms:
        path = folder / f"samples/tiny/{algorithm}/seed{int(algorithm != 'base')}/easy.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pandas(sample_rows()), path, row_group_size=4)
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
    write_table(study, name, "", measured, ROOT / "reports/paper", csv)
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
        Solution(name, f"so {HOSTILE}", "2", 0, 1, 3, 4) for name in study.rows_of("case_study")
    )
    claims = ledger(load_claims(ROOT / "config/claims.yaml"), study, MEASURED)
    return PageContent(
        metrics={"pass_at_k": pass_at_k(METRICS), "rates": RATES, "claims": claims},
        tables={"table1": a_table(study, "table1", folder)},
        figures=svgs(),
        cases={"case_study": CaseStudy(a_problem("p1", HOSTILE), solutions, 1, 3)},
        excerpts=some_excerpts(folder),
        problems={"easy": [a_problem("1")]},
        policies={GRPO: MANIFEST},
        sources=read_sources(ROOT / "reports"),
    )


def a_page_with_claims(study: ResolvedStudy, folder: Path) -> str:
    """A page on which each test of each claim has found something."""
    content = a_content(study, folder)
    found = content.metrics["claims"].assign(
        verdict="inconclusive", place="easy", effect=0.01, low=-0.01, high=0.03, p=0.2, n=40
    )
    found = found.assign(over="problems", runs=3, place_verdict="inconclusive", detectable=0.05)
    content = replace(content, metrics={**content.metrics, "claims": found})
    return render_page(study, content, FILES, RESULTS.page)


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


def css_colours(style: str) -> dict[str, dict[str, str]]:
    """The colours that the style names, on light ground and on dark."""
    found: dict[str, dict[str, str]] = {"light": {}, "dark": {}}
    for dark, block in re.findall(r"(dark\)\s*\{\s*)?:root\s*\{([^}]*)\}", style):
        names = dict(re.findall(r"--([\w-]+):\s*([^;]+);", block))
        found["dark"] |= names
        found["light"] |= {} if dark else names
    for names in found.values():
        for name, value in names.items():
            names[name] = names[value[6:-1]] if value.startswith("var(") else value
    return found


def contrast(one: str, other: str) -> float:
    """The contrast of two colours such as #25292e, 1 to 21 (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot((0.2126, 0.7152, 0.0722), linear))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return a_page(with_a_case(a_study()), tmp_path_factory.mktemp("page"))


def plain(page: str) -> str:
    """The page without marks for breaking lines."""
    return re.sub(r"<wbr>|</?span[^>]*>", "", page)


class TestPage:
    def test_the_same_content_gives_the_same_page(self, page: str, tmp_path: Path) -> None:
        assert a_page(with_a_case(a_study()), tmp_path) == page

    def test_nothing_is_loaded_from_elsewhere(self, page: str) -> None:
        assert "://" not in page
        assert "@import" not in page
        markings = Markings(page)
        assert markings.values("src", "srcset", "data", "action") == []
        assert all(link.startswith("#") for link in markings.values("href"))
        assert all(link.startswith("#") for link in re.findall(r"url\(([^)]*)\)", page))

    def test_only_the_pages_own_script_may_run(self, page: str) -> None:
        (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src &#39;sha256-{digest}&#39;" in page
        assert "innerHTML" not in script

    def test_without_samples_no_script_may_run(self, tmp_path: Path) -> None:
        page = a_page(with_a_case(a_study()), tmp_path, excerpts="")
        assert "script-src &#39;none&#39;" in page
        assert "<script" not in page
        assert "The completions for this page have not been chosen yet." in page

    def test_hostile_text_stays_text(self, page: str) -> None:
        markings = Markings(page)
        assert markings.tags.count("script") == 2  # the data and the browser
        assert "img" not in markings.tags
        assert not [name for _, name, _ in markings.attributes if name.startswith("on")]
        assert "so &lt;/script &gt;&lt;script&gt;" in page
        assert "\x00" not in page

    def test_the_data_of_the_browser_is_what_was_chosen(self, page: str) -> None:
        (block,) = re.findall(r'id="excerpts">(.*?)</script>', page, flags=re.DOTALL)
        assert not set("<>&\u2028") & set(block)
        data = json.loads(block)
        shown = data["runs"][1]["cells"]["2"]["shown"]
        assert shown[0][:3] == ["correct", f"try 0 of p2 {HOSTILE}", "<b>0</b>"]
        assert [one[0] for one in shown].count("wrong") == 2
        assert data["problems"]["easy"][2]["text"] == f"2 + 1 {HOSTILE}"

    def test_text_that_is_not_json_is_refused(self) -> None:
        with pytest.raises(ValueError, match="Expecting value"):
            browser.with_titles("</script>", a_study())

    def test_titles_are_escaped(self, tmp_path: Path) -> None:
        page = a_page(with_a_case(a_study(title="<i>alert</i>")), tmp_path)
        assert "<i>" not in page
        assert page.count("&lt;i&gt;alert") == 3  # title, heading, settings

    def test_sections_follow_the_study_and_then_what_every_report_has(self, page: str) -> None:
        sections = re.findall(r'<section id="([^"]+)"', page)
        exhibits = [f"exhibit-{name}" for name in with_a_case(a_study()).study.exhibits]
        always = ["theory", "hyperparameters", "contamination", "grading", "support"]
        record = ["samples", "problems", "settings", "runs"]
        assert sections == ["findings", "claims", "warnings", *exhibits, *always, *record]

    def test_the_page_opens_with_what_was_found(self, tmp_path: Path) -> None:
        """A sentence for each headline claim, then the exhibit that leads, which stands nowhere
        else."""
        claims = load_claims(ROOT / "config/claims.yaml")
        page = a_page_with_claims(with_a_case(a_study()), tmp_path / "with_claims")
        opening = parsed(page).find(".//section[@id='findings']")
        sentences = [words_of(item) for item in opening.findall("ul/li")]
        headlines = [claim.claim for claim in claims.values() if claim.headline]
        assert len(sentences) == len(headlines) > 0
        for sentence, claim in zip(sentences, headlines, strict=True):
            assert claim in sentence
        assert "Claims: " in words_of(opening)
        study = with_a_case(a_study())
        lead = kind_class("tradeoff").model_validate(
            {"kind": "tradeoff", "title": "Both at once", "model": "tiny"}
        )
        exhibits = {**study.study.exhibits, "both": lead}
        study = study.model_copy(
            update={"study": study.study.model_copy(update={"exhibits": exhibits})}
        )
        drawn = a_page(study, tmp_path, figures={**svgs(), "both": svgs()["figure3"]})
        assert drawn.index('id="figure-both"') < drawn.index('<section id="claims"')
        assert 'id="exhibit-both"' not in drawn

    def test_an_exhibit_says_what_its_numbers_are_of(self, page: str) -> None:
        section = page[page.index('id="exhibit-table1"') : page.index('id="exhibit-table2"')]
        for term, text in (
            ("Problems", "Easy: 1; Hard"),
            ("Samples", "4 per problem"),
            ("Training seeds", "1"),
            ("Training runs", "1 of 2"),
        ):
            assert f"<dt>{term}</dt><dd>{text}</dd>" in section
        assert "One problem is worth 2.5 points" in section

    def test_an_exhibit_says_what_the_guides_of_its_rows_do(self, tmp_path: Path) -> None:
        """As computed for the row's own loss: only k1_reward and a sum follow Eq. 4."""
        study, csv = a_study(), tmp_path / "estimators.csv"
        write_table(study.part(), "estimators", "", tmp_path, tmp_path, csv)
        found = pd.read_csv(csv).set_index(["loss", "guide", "estimator"])
        for guide in ("random", "token", "branch"):
            assert found.loc[("sum", guide, "k1_reward"), "relative_distance"] < 1e-10
            assert found.loc[("mean", guide, "k1_reward"), "relative_distance"] > 1e-3
        assert found.loc[("sum", "branch", "k2"), "effect"] == "none"
        own = found.loc[("mean", "branch", "k3")]  # of GRPO, which takes means
        table = read_document(csv.with_suffix(".json"))
        page = a_page(with_a_case(study), tmp_path, tables={"estimators": table})
        section = page[page.index('id="exhibit-table1"') : page.index('id="exhibit-table2"')]
        share, cosine = (
            f"{own[key]:.2f}".replace("-", "\u2212") for key in ("guide_norm", "guide_cosine")
        )
        said = f"own direction, {share} of Eq. 4’s size, cosine {cosine}"
        assert f"<dd>Branch (k3, mean): {said}</dd>" in section
        assert "0 (rounding)" in page[page.index('id="theory"') :]

    def test_bold_and_ties_are_as_the_table_marks_them(self, page: str) -> None:
        assert "<strong>90.0</strong><small>85.0–95.0</small>" in page
        assert '75.0<sup class="tie"' in page

    def test_every_exhibit_names_its_file_and_its_command(self, page: str) -> None:
        text = plain(page)
        for file, target in (
            ("report/tables/table1.csv", "table1"),
            ("report/figures/figure3.svg", "figure3"),
            ("metrics/case_study/case.json", "case_study"),
            ("metrics/rates.parquet", "metrics"),
            ("report/index.html", "report"),
        ):
            assert f"<code>results/smoke/{file}</code>" in text
            command = f"snakemake --cores all {target} --config study=smoke"
            assert f"<code>{command}</code>" in text

    def test_what_is_not_there_is_said_to_be_not_run(self, page: str) -> None:
        section = plain(page[page.index('id="exhibit-table2"') : page.index('id="exhibit-table5"')])
        assert "<strong>Not run.</strong>" in section
        assert "results/smoke/report/tables/table2.csv" in section
        assert "snakemake --cores all table2 --config study=smoke" in section
        assert page.count("<strong>Not run.</strong>") > 5

    def test_runs_are_shown_with_their_cost(self, page: str) -> None:
        assert "0123456789+changes" in page
        assert "1 h 02 min" in page
        assert "1\u202f234\u202f567" in page
        assert "<td>none</td>" in page
        assert "A &lt;fast&gt; one" in page

    def test_a_problem_that_no_row_shares_leaves_no_case(self, tmp_path: Path) -> None:
        page = a_page(with_a_case(a_study()), tmp_path, cases={"case_study": None})
        assert "No problem was solved by every method" in page


class TestMarkup:
    def test_it_is_valid_html(self, page: str) -> None:
        assert len(parsed(page).findall(".//section")) > 10

    def test_a_figure_is_xml_by_itself(self) -> None:
        for svg in svgs().values():
            assert ElementTree.fromstring(svg).tag == f"{SVG}svg"

    def test_ids_are_unique_and_every_reference_finds_one(self, page: str) -> None:
        markings = Markings(page)
        ids = markings.values("id")
        assert len(ids) == len(set(ids))
        links = {link[1:] for link in markings.values("href")}
        links |= set(re.findall(r"url\(#([^)]*)\)", page))
        named = "aria-labelledby", "aria-describedby", "aria-controls", "for", "headers"
        links |= {word for value in markings.values(*named) for word in value.split()}
        assert links <= set(ids)

    def test_headings_skip_no_level(self, page: str) -> None:
        levels = heading_levels(page)
        assert levels.count(1) == 1
        assert not_skipping(levels)

    def test_every_figure_is_told_or_hidden(self, page: str) -> None:
        figures = parsed(page).findall(f".//{SVG}svg")
        told = [svg for svg in figures if svg.get("aria-hidden") != "true"]
        assert len(told) == len(svgs())
        assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in told)

    def test_every_table_has_a_caption_and_heads_that_say_of_what(self, page: str) -> None:
        tables = parsed(page).findall(".//table")
        assert tables
        for table in tables:
            assert words_of(table.find("caption"))
            heads = table.findall(".//th")
            assert all(head.get("scope") and words_of(head) for head in heads)

    def test_claims_that_were_not_tested_take_one_line(self, page: str) -> None:
        claims = load_claims(ROOT / "config/claims.yaml")
        tree = parsed(page)
        opening = words_of(tree.find(".//section[@id='findings']"))
        assert "None of the paper's main claims has been tested in this study." in opening
        assert not tree.findall(".//table[@class='ledger']")
        (line,) = tree.findall(".//ul[@class='untested']")
        assert [item.get("id") for item in line] == [f"claim-{name}" for name in claims]
        assert all("not run" in words_of(item) for item in line)

    def test_the_rows_of_a_claim_are_as_wide_as_its_head(self, tmp_path: Path) -> None:
        page = a_page_with_claims(with_a_case(a_study()), tmp_path)
        tables = parsed(page).findall(".//table[@class='ledger']")
        assert len(tables) == len(load_claims(ROOT / "config/claims.yaml"))
        for table in tables:
            columns = len(table.findall("thead/tr/*"))
            assert columns > 6
            (body,) = table.findall("tbody")
            spans = [int(cell.get("rowspan", 1)) - 1 for cell in body.findall("tr/th")]
            cells = sum(int(cell.get("colspan", 1)) for cell in body.findall("tr/*"))
            assert cells + sum(spans) == columns * len(body.findall("tr"))

    def test_what_scrolls_is_reached_by_keyboard_and_named(self, page: str) -> None:
        tree = parsed(page)
        boxes = tree.findall(".//div[@class='scroll']")
        names = [box.get("aria-labelledby") for box in boxes]
        assert boxes
        assert len(names) == len(set(names) - {None})
        for box in [*boxes, *tree.findall(".//pre")]:
            assert box.get("tabindex") == "0"
        assert set(Markings(page).values("tabindex")) == {"0"}

    def test_every_control_has_a_label(self, page: str) -> None:
        tree = parsed(page)
        for control in ("select", "input"):
            labelled = tree.findall(f".//label/{control}")
            assert labelled
            assert len(labelled) == len(tree.findall(f".//{control}"))
        assert tree.get("lang") == "en"

    @pytest.mark.parametrize("ground", ["light", "dark"])
    def test_all_text_stands_out_from_its_ground(self, page: str, ground: str) -> None:
        style = page[page.index("<style>") : page.index("</style>")]
        colours = css_colours(style)[ground]
        used = set(re.findall(r"(?<![-\w])color:\s*var\(--([\w-]+)\)", style))
        figure_texts = re.findall(r"<text [^>]*>", page)
        fills = [re.search(r"fill: var\(--([\w-]+)\)", text) for text in figure_texts]
        assert fills
        assert all(fills)  # text without a colour is black, on dark ground too
        used |= {fill[1] for fill in fills if fill}
        grounds = set(re.findall(r"background:\s*var\(--([\w-]+)\)", style))
        assert {"ink", "muted", "link"} <= used
        assert {"paper", "wash"} <= grounds
        low = {
            (text, below): ratio
            for text in used
            for below in grounds
            if (ratio := contrast(colours[text], colours[below])) < 4.5
        }
        assert low == {}
        assert "#" not in re.sub(r":root\s*\{[^}]*\}", "", style)  # no colour but these


class TestWarnings:
    def test_missing_runs_are_named(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        content = replace(a_content(study, tmp_path), policies={GRPO: MANIFEST})
        untrained, unseen = warnings(study, content)[:2]
        assert untrained.text == "Not trained yet: 4 runs."  # branch and three cells
        assert "Branch, seed 1" in untrained.lines[0]
        assert unseen.lines[0].startswith("Tiny, Easy: Base, GRPO, seed 1")

    def test_other_settings_than_the_studys_are_named(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        rl = study.model("tiny").rl.model_dump(mode="json")
        then = {
            "rl": rl | {"steps": 7, "checkpoint_every": 9},  # the latter changes no result
            "algorithm": study.algorithms["grpo"].model_dump(mode="json") | {"title": "Old"},
        }
        manifest = MANIFEST | {"settings": then}
        content = replace(a_content(study, tmp_path), policies={GRPO: manifest})
        found = warnings(study, content)
        (stale,) = [one for one in found if "settings that differ" in one.text]
        assert stale.lines == [f"tiny/grpo/seed1: rl.steps 7 → {rl['steps']}"]

    def test_changes_are_found_at_any_depth(self) -> None:
        then = {"a": {"b": 1, "c": [1, 2]}, "gone": 1}
        now = {"a": {"b": 2, "c": [1, 2]}, "new": None}
        assert changes(then, now) == ["a.b 1 → 2", "gone 1 → none"]

    def test_shares_above_the_limits_are_warned_of(self) -> None:
        study = a_study(seeds=(1, 2))
        table = grading_table(RATES, study, "tiny")
        assert table.set_index("algorithm").loc["grpo", "correct"] == pytest.approx(0.5)
        found = grading_notices(table, study, "tiny")
        assert [notice.lines for notice in found] == [
            ["Easy: GRPO 6.0\u202f%"],
            ["Easy: Base 30.0\u202f%"],
        ]

    def test_a_single_training_seed_is_warned_of(self, tmp_path: Path) -> None:
        for seeds, said in (((1,), True), ((1, 2), False)):
            study = with_a_case(a_study(seeds=seeds))
            content = a_content(study, tmp_path / str(len(seeds)))
            texts = [one.text for one in warnings(study, content)]
            assert any("trained once" in text for text in texts) is said

    def test_rows_that_are_one_computation_are_named(self) -> None:
        rows = [
            (row, seed, "easy", k, value)
            for row, values in {
                "grpo": (0.5, 0.7),
                "bnpo": (0.5, 0.7),
                "branch": (0.5, 0.8),
            }.items()
            for seed in (1, -1)
            for k, value in zip((1, 4), values, strict=True)
        ]
        columns = ["algorithm", "train_seed", "benchmark", "k", "value"]
        frame = pd.DataFrame(rows, columns=columns).assign(model="tiny")
        study = a_study(algorithms=("grpo", "bnpo", "branch"))
        (notice,) = twin_notices(frame, study)
        assert notice.lines == ["Tiny: GRPO = BNPO"]
        apart = frame.assign(value=frame["value"].where(frame["k"] != 4, frame.index / 100))
        assert twin_notices(apart, study) == []
        nothing = frame.assign(value=0.0)  # where none solves anything, no wonder
        assert twin_notices(nothing, study) == []

    def test_commits_that_differ_and_changes_are_named(self) -> None:
        one, two = {"git_commit": "aaa"}, {"git_commit": "bbb+changes"}
        differ, changed = commit_notices({"x": one, "y": two})
        assert differ.lines == ["aaa, bbb"]
        assert changed.lines == ["y"]


class TestPaper:
    def test_the_papers_numbers_are_found_by_model_and_benchmark(self) -> None:
        study = load_study("paper", ROOT / "config")
        values = paper_values(ROOT / "reports/paper", study)
        assert {*values["benchmark"]} <= {"", *study.study.problems}
        assert not values[["algorithm", "quantity", "value"]].isna().any(axis=None)
        found = values.set_index(["kind", "model", "benchmark", "algorithm", "quantity"])["value"]
        model = "qwen_math_7b"
        assert found["accuracy", model, "minerva", "grpo", "pass@256"] == 0.477
        assert found["accuracy", "r1_distill_7b", "amc23", "base", "pass@64"] == 0.955
        assert found["patterns", model, "aime", "grpo_branch", "proof_by_contradiction"] == 0.033
        assert found["gradient_norms", model, "", "grpo_no_kl", "mid"] == 0.010
        cell = "grpo_branch-threshold2-ratio0.3"
        assert found["ablation", model, "amc23", cell, "pass@256"] == 0.983
        assert found["ablation", model, "amc23", "grpo_branch", "pass@1"] == 0.433

    def test_other_studies_have_no_numbers_of_the_paper(self) -> None:
        assert paper_values(ROOT / "reports/paper", a_study()).empty

    def test_the_papers_value_is_inside_if_noise_alone_could_part_them(self) -> None:
        """Five seeds with deviations 0.01 and 0.02: a standard error of 0.01 at 5.88 degrees of
        freedom, so 2.459 times that to each side."""
        paper = pd.DataFrame(
            [("accuracy", "m", "b", row, "pass@1", 0.30, 0.01, 5) for row in ("x", "y", "z")],
            columns=PAPER_COLUMNS,
        )
        measured = pd.DataFrame(
            [("x", 0.35, 0.02, 5), ("y", 0.32, 0.02, 5), ("z", 0.35, None, 1)],
            columns=["algorithm", "value", "measured_std", "measured_seeds"],
        ).assign(quantity="pass@1")
        both = compared(paper, measured, ["algorithm", "quantity"])
        assert both["difference"].tolist() == pytest.approx([0.05, 0.02, 0.05])
        assert both["low"].tolist()[:2] == pytest.approx([0.05 - 0.02459, 0.02 - 0.02459], abs=1e-5)
        assert both["high"].tolist()[0] == pytest.approx(0.05 + 0.02459, abs=1e-5)
        assert both["low"].isna().tolist() == [False, False, True]
        assert both["inside"].tolist() == [False, True, None]

    def test_a_value_without_deviations_has_a_difference_and_no_more(self) -> None:
        paper = pd.DataFrame(
            [("gradient_norms", "m", "", "x", "mid", 0.30, None, None)],
            columns=PAPER_COLUMNS,
        )
        measured = pd.DataFrame([("x", "mid", 0.4)], columns=["algorithm", "quantity", "value"])
        (row,) = compared(paper, measured, ["algorithm", "quantity"]).to_dict("records")
        assert row["difference"] == pytest.approx(0.1)
        assert math.isnan(row["low"])
        assert row["inside"] is None

    def test_a_model_of_the_paper_has_its_numbers_beside(self, tmp_path: Path) -> None:
        """An exhibit of a model that the mapping names gets a table of its own for it."""
        study, results = a_study(), Results(tmp_path / "results")
        paper = tmp_path / "reports/paper"
        paper.mkdir(parents=True)
        (paper / "mapping.yaml").write_text("tiny:\n  - {file: t.csv, kind: accuracy, seeds: 5}\n")
        (paper / "t.csv").write_text(
            "benchmark,algorithm,quantity,value,std\neasy,grpo,pass@1,0.55,0.01\n"
        )
        a_table(study, "table1", tmp_path)
        reading = pd.DataFrame(
            [("grpo", -1, "easy", 1, 0.62, 0.02, 5)],
            columns=["algorithm", "train_seed", "benchmark", "k", "value", "std", "n_eval_seeds"],
        ).assign(model="tiny", metric="pass@k")
        reading.to_parquet(tmp_path / "measured/paper_reading.parquet")
        csv = results.table("table1_paper")
        write_table(study, "table1", PAPER, tmp_path / "measured", paper, csv)
        (row,) = pd.read_csv(csv).to_dict("records")
        assert (row["value"], row["measured"], row["difference"]) == pytest.approx(
            (0.55, 0.62, 0.07)  # by the paper's estimator; the unbiased one gives 0.6
        )
        cells = read_document(csv.with_suffix(".json")).table.groups[0].rows[0].cells
        assert [cell.text for cell in cells] == ["55.0", "62.0", "+7.0", "no"]
        assert [*tables_of(study, "table1", paper)] == ["table1", "table1_reading", "table1_paper"]
        assert [*tables_of(study, "table5", paper)] == ["table5"]

    def test_a_faulty_mapping_is_an_error_that_names_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "mapping.yaml").write_text("m:\n  - {file: a.csv, kind: tale}\n")
        with pytest.raises(ValueError, match=r"mapping.yaml: .*\n.*kind"):
            read_mapping(tmp_path)


class TestBrowser:
    def test_the_first_of_each_status_are_chosen(self) -> None:
        choice = browser.choose(browser.candidates(sample_rows()), ["p0", "p2"], (1, 2, 1))
        assert choice.index.tolist() == [0, 1, 3, 4, 12, 13, 15, 16]
        assert {*zip(choice["correct"], choice["drawn"], strict=True)} == {(2, 6)}

    def test_only_the_chosen_texts_are_read(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path)[0]
        texts = browser.read_texts(path, pd.Index([0, 5, 17]))
        assert [text.split(" <")[0] for text, _ in texts] == [
            f"try {index} of p{problem} {HOSTILE}".split(" <")[0]
            for index, problem in ((0, 0), (5, 0), (5, 2))
        ]

    def test_problems_are_spread_over_the_benchmark(self) -> None:
        problems = [a_problem(str(place)) for place in range(10)]
        assert [p.problem_id for p in browser.spread(problems, 4)] == ["0", "3", "6", "9"]
        assert browser.spread(problems, 10) == problems

    def test_what_does_not_fit_is_left_out_evenly(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = len(some_excerpts(tmp_path / "whole").encode())
        monkeypatch.setattr(browser, "BUDGET", whole // 2)
        text = some_excerpts(tmp_path / "half")
        data = json.loads(text)
        assert len(text.encode()) <= whole // 2
        assert all(run["cells"] for run in data["runs"])  # every row still has something

    def test_what_can_never_fit_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(browser, "BUDGET", 100)
        with pytest.raises(ValueError, match="do not fit 100 bytes"):
            some_excerpts(tmp_path)

    def test_long_texts_are_cut_and_marked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(browser, "LONGEST", 5)
        data = json.loads(some_excerpts(tmp_path))
        shown = data["runs"][0]["cells"]["0"]["shown"][0]
        assert (shown[1], shown[7]) == ("try 0", 1)


class TestPartial:
    def test_rows_without_the_common_seed_are_left_out(self) -> None:
        def path(row: str, seed: int) -> Path:
            return Path(f"samples/m/{row}/seed{seed}/b.parquet")

        there = [path("base", 0), path("x", 1), path("x", 2), path("y", 1), path("z", 2)]
        assert comparable(there) == there[:4]

    @pytest.mark.slow
    def test_an_empty_folder_still_has_a_report(self, tmp_path: Path) -> None:
        study = load_study("smoke", ROOT / "config")
        results = Results(tmp_path / "smoke")
        path = write_partial(study, results, ROOT / "reports", ROOT / "config/claims.yaml")
        page = path.read_text()
        assert "A partial report." in page
        assert "Not trained yet" in page
        assert 'id="figure-figure5"' in page  # the theory needs no run
        assert page.count("<strong>Not run.</strong>") >= len(study.study.exhibits)
        Markings(page)


DRIVER = """
const pick = (name) => document.querySelector(`#browser [name=${name}]`);
const change = (element) => element.dispatchEvent(new Event("change", { bubbles: true }));
const count = () => document.querySelectorAll("#browser .completion").length;
const seen = [count()];
const box = document.querySelector("#browser [value=correct]");
box.checked = false;
change(box);
seen.push(count());
pick("problem").selectedIndex = 2;
change(pick("problem"));
seen.push(document.querySelector("#browser .statement pre").textContent);
seen.push(document.querySelector("#browser .side pre").textContent);
seen.push([...document.querySelectorAll("#browser h3")].map((head) => head.textContent));
seen.push(document.querySelectorAll("#browser img, #browser script").length);
seen.push([...document.querySelectorAll("#browser pre")].every((text) => text.tabIndex === 0));
seen.push(performance.getEntriesByType("resource").length);
seen.push(document.title);
document.body.dataset.seen = JSON.stringify(seen);
"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("no chromium is installed to open the page with")
    return found


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


class TestInABrowser:
    def test_the_browser_filters_and_compares_and_nothing_runs_or_loads(
        self, chromium: str, page: str, tmp_path: Path
    ) -> None:
        digest = base64.b64encode(hashlib.sha256(DRIVER.encode()).digest()).decode()
        driven = page.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ")
        driven = driven.replace("</body>", f"<script>{DRIVER}</script></body>")
        markup, complaints = opened(chromium, driven, tmp_path)
        assert complaints == ""
        (seen,) = [
            json.loads(value)
            for _, name, value in Markings(markup).attributes
            if name == "data-seen"
        ]
        all_, without_correct, problem, completion, heads, inside, reached, loaded, title = seen
        assert (all_, without_correct) == (12, 8)
        assert problem == f"2 + 1 {HOSTILE}"
        assert completion == f"try 1 of p2 {HOSTILE}"
        assert heads == ["Base", "GRPO"]
        assert (inside, loaded, reached) == (0, 0, True)
        assert title == "A study · SAGE report"
        assert not_skipping(heading_levels(markup))

    def test_a_script_that_is_not_the_pages_own_is_refused(
        self, chromium: str, page: str, tmp_path: Path
    ) -> None:
        injected = page.replace("</body>", "<script>document.title='taken'</script></body>")
        markup, complaints = opened(chromium, injected, tmp_path)
        assert "Content Security Policy" in complaints
        assert "<title>taken" not in markup


def test_inlined_figures_follow_the_theme_and_keep_their_text() -> None:
    svg = (
        '<?xml version="1.0"?><svg viewBox="0 0 100 50" xmlns="http://www.w3.org/2000/svg">'
        f'<path id="a" d="M 1.23456 2" style="stroke: {PALETTE["ink"][0]}"/>'
        '<use xlink:href="#a"/><text>0.00125 #25292e</text></svg>'
    )
    assert inline_svg(svg, "p", 'a "label"') == (
        '<svg viewBox="0 0 100 50" role="img" aria-label="a &#34;label&#34;" '
        'style="min-width:95px;max-width:155px">'
        '<path id="p-a" d="M 1.23 2" style="stroke: var(--fig-ink)"/>'
        '<use href="#p-a"/><text>0.00125 #25292e</text></svg>'
    )


def test_numbers_and_times_are_readable() -> None:
    assert grouped(1234567) == "1\u202f234\u202f567"
    assert [duration(t) for t in (None, 9.6, 61, 3725)] == ["–", "10 s", "1 min 01 s", "1 h 02 min"]
    assert [points(v) for v in (0.0512, -0.0512, -0.0001)] == ["+5.1", "−5.1", "+0.0"]
    assert [p_text(p) for p in (0.0001, 0.0312, 0.31, float("nan"))] == [
        "< 0.001",
        "0.031",
        "0.31",
        "–",
    ]
