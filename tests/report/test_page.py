"""The page: it is self-contained, marks what is missing, and hostile text stays text."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pages import (
    FILES,
    HOSTILE,
    RESULTS,
    Markings,
    a_content,
    a_page,
    a_page_with_claims,
    parsed,
    svgs,
    with_a_case,
    with_findings,
    words_of,
)
from report_frames import COMPARISONS, EXHIBITS, METRICS, ROOT, a_study, changed, pass_at_k

from sage.claims.tests import load_claims
from sage.exhibits import kind_class, load_study, write_piece
from sage.rendering.documents import read_document
from sage.rendering.numbers import NONE
from sage.rendering.table import Head, filled, table_of
from sage.report import browser
from sage.report.loader import PageContent, read_sources
from sage.report.make import comparable, write_partial
from sage.report.page import render_page
from sage.report.provenance import bibtex, made_from
from sage.report.sections import Part, Section, said_often
from sage.results import Results
from sage.study.types import Paper


def plain(page: str) -> str:
    """The page without marks for breaking lines."""
    return re.sub(r"<wbr>|</?span[^>]*>", "", page)


class TestPage:
    def test_the_same_content_gives_the_same_page(self, page: str, tmp_path: Path) -> None:
        assert a_page(with_a_case(a_study()), tmp_path) == page

    def test_nothing_is_loaded_from_elsewhere(self, page: str) -> None:
        assert "@import" not in page
        markings = Markings(page)
        assert markings.values("src", "srcset", "data", "action") == []
        assert "link" not in markings.tags
        links = [link for link in markings.values("href") if "://" in link]
        assert links == ["https://arxiv.org/abs/2605.18864"]
        assert page.count("://") == len(links)
        assert all(link.startswith("#") for link in re.findall(r"url\(([^)]*)\)", page))

    def test_only_the_pages_own_script_may_run(self, page: str) -> None:
        (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src &#39;sha256-{digest}&#39;" in page
        assert "innerHTML" not in script

    def test_without_samples_there_is_nothing_to_browse(self, tmp_path: Path) -> None:
        page = a_page(with_a_case(a_study()), tmp_path, excerpts="")
        (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
        assert "excerpts" not in script
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
        always = ["theory", "hyperparameters", "contamination", "chance", "grading", "support"]
        record = ["samples", "problems", "settings", "runs"]
        assert sections == ["warnings", *exhibits, *always, *record]

    def test_a_study_that_reproduces_no_paper_shows_none(self, page: str, tmp_path: Path) -> None:
        own = a_page(changed(with_a_case(a_study()), paper=None), tmp_path)
        for of_paper in ('id="theory"', "a reproduction of"):
            assert of_paper in page
            assert of_paper not in own
        assert 'id="hyperparameters"' in own

    def test_models_without_methods_are_told_one_by_one(self) -> None:
        curves, study = EXHIBITS["figure3"], a_study(algorithms=())
        tiny = study.study.models["tiny"]
        models = {"tiny": tiny, "other": tiny.model_copy(update={"title": "Other"})}
        exhibits = {name: curves.model_copy(update={"model": name}) for name in models}
        study = changed(study, models=models, exhibits=exhibits)
        rows = pass_at_k([row for row in METRICS if row[0] == "base"])
        metrics = {"pass_at_k": pd.concat([rows, rows.assign(model="other")])}
        figures = dict.fromkeys(models, svgs()["figure3"])
        sources = read_sources(ROOT / "reports")
        content = PageContent(metrics=metrics, figures=figures, sources=sources)
        tree = parsed(render_page(study, content, FILES, RESULTS.page))
        opening = tree.find(".//div[@id='findings']")
        known = "reaches pass@1 of 30.0 % (95 % interval 20.0–40.0) and pass@4 of 70.0 %"
        for name, sentence in zip(("Tiny", "Other"), opening.findall("p"), strict=False):
            assert words_of(sentence).startswith(f"{name} {known}")
        heads = [words_of(head) for head in tree.findall(".//h2")]
        assert [head for head in heads if "Curves" in head] == ["Curves, Tiny", "Curves, Other"]
        assert tree.find(".//details[@class='methods screen-only']") is None
        assert len(tree.findall(".//table[@class='results by-k']")) == 2

    def test_the_page_opens_with_what_was_found(self, page: str) -> None:
        """Without tested claims: the study's own comparisons, and a row for each method."""
        opening = parsed(page).find(".//div[@id='findings']")
        lede, second, third = [words_of(item) for item in opening.findall("p")][:3]
        # easy +30 and hard +2 with p = 0.001 and 0.9; the mean's interval is wide
        assert lede == (
            "GRPO gains 16.0 points of pass@1 over its base (95 % interval +8.8 to +23.2), mean of "
            "2 benchmarks."
        )
        assert second == (
            "Branch has clearly more pass@1 than GRPO: +19.0 points (95 % interval +11.8 to +26.2)."
        )
        assert third == "Each method was trained once, so this is true of these runs alone."
        (table,) = opening.findall(".//table")
        assert table.get("id") == "summary"
        assert table.get("data-sortable") is not None
        rows = table.findall("tbody/tr")
        assert [words_of(row.find("th")) for row in rows] == ["Base", "GRPO", "Branch"]
        assert words_of(rows[-1][-1]) == "more pass@1"

    def test_where_nothing_is_significant_the_page_says_so(self, tmp_path: Path) -> None:
        alike = COMPARISONS.assign(var_problems=1.0, var_below=1.0, var_above=1.0, p=0.9)
        study = with_a_case(a_study())
        metrics = {"pass_at_k": pass_at_k(METRICS), "comparisons": alike}
        opening = parsed(a_page(study, tmp_path, metrics=metrics)).find(".//div[@id='findings']")
        lede, second = [words_of(item) for item in opening.findall("p")][:2]
        assert "does not clearly change pass@1 over its base (+16.0 points, 95 %" in lede
        assert second.startswith("Branch is not clearly better or worse than GRPO: +19.0 points")

    def test_claims_open_the_page_with_their_verdicts_apart(self, tmp_path: Path) -> None:
        claims = load_claims(ROOT / "config/claims.yaml")
        study = with_a_case(a_study())
        tree = parsed(a_page_with_claims(study, tmp_path))
        (forest,) = tree.findall(".//div[@id='findings']/table[@class='forest']")
        rows = forest.findall("tbody/tr")
        said = [words_of(row.find("th/small[@class='claimed']")) for row in rows]
        here = [one for one in claims.values() if one.primary.exhibit in study.study.exhibits]
        drawn = [one for one in here if one.primary.unit == "points"]
        drawn.sort(key=lambda claim: not claim.headline)
        assert said == [f"Claim: {claim.claim}" for claim in drawn]
        assert {words_of(row[-1]) for row in rows} == {"inconclusive"}
        assert [words_of(cell) for cell in rows[0][2:4]] == ["+1.0", "−1.0 to +3.0"]

    def test_claims_are_the_papers_or_the_studys_own(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        for place, (asked, whose) in enumerate(((study.study.claims, "paper"), ({}, "study"))):
            page = a_page_with_claims(changed(study, claims=asked), tmp_path / str(place))
            assert f"<h2>Claims of the {whose}</h2>" in page
            assert ("(<code>config/claims.yaml</code>)" in page) == (whose == "paper")

    def test_a_study_without_training_lists_no_claim_that_needs_it(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        content = replace(a_content(study, tmp_path), policies={})
        claims = with_findings(content.metrics["claims"])
        first = claims["claim"].iloc[0]
        claims["verdict"] = claims["verdict"].where(claims["claim"] == first, "not run")
        content = replace(content, metrics={**content.metrics, "claims": claims})
        models = {"tiny": study.model("tiny").model_copy(update={"rl": None})}
        bare = changed(study, models=models, exhibits={"table1": study.study.exhibits["table1"]})
        trained, untrained = (
            render_page(one, content, FILES, RESULTS.page) for one in (study, bare)
        )
        assert 'class="untested"' in trained
        assert 'class="untested"' not in untrained
        assert f'id="claim-{first}"' in untrained
        sections = ({*re.findall(r'<section id="([^"]+)"', page)} for page in (trained, untrained))
        of_training = {"theory", "hyperparameters", "contamination", "support"}
        gone = set.difference(*sections)
        assert {one for one in gone if not one.startswith("exhibit-")} == of_training

    def test_the_exhibit_that_leads_stands_before_the_claims(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        settings = {"kind": "tradeoff", "title": "Both at once", "model": "tiny"}
        lead = kind_class("tradeoff").model_validate(settings)
        study = changed(study, exhibits={**study.study.exhibits, "both": lead})
        drawn = a_page_with_claims(study, tmp_path, figures={**svgs(), "both": svgs()["figure3"]})
        assert drawn.index('id="figure-both"') < drawn.index('<section id="claims"')
        assert drawn.count('id="exhibit-both"') == 1

    def test_the_day_and_the_commit_are_those_of_the_jobs(self) -> None:
        jobs = [{"started": "2026-11-24T10:00:00"}, {"ended": "2026-11-25T10:00:00"}]
        commits = [{"git_commit": "0123456789abc"}, {"git_commit": "ab"}]
        for known, named in ((0, ""), (1, "0123456789"), (2, "2 commits")):
            kept = dict(enumerate([*jobs, *commits[:known]]))
            assert made_from(PageContent(measurements=kept)) == ("2026-11-25", named)

    def test_another_paper_or_none_is_the_studys_own(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        paper = Paper(title="Another", authors="Noether and Hilbert", year=1918, arxiv="1234.56789")
        own, none = (
            a_page(changed(study, paper=one), tmp_path / str(place))
            for place, one in enumerate((paper, None))
        )
        assert "https://arxiv.org/abs/1234.56789" in own
        assert "@misc{noether1918," in own
        several = paper.model_copy(update={"authors": "Ann Ab, Bob Bc, and Cy Cd"})
        assert "author = {Ann Ab and Bob Bc and Cy Cd}" in bibtex(several)
        assert "SAGE: Shaping" not in own + none
        assert "arxiv.org" not in none

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
        """As computed for the row's own loss: GRPO takes means."""
        study, csv = a_study(), tmp_path / "estimators.csv"
        write_piece(study.seen_by(), "estimators", "", [], tmp_path, csv)
        effects = pd.read_csv(csv)
        by_row = effects.set_index(["loss", "guide", "estimator"])
        for guide in ("random", "token", "branch"):
            assert by_row.loc[("sum", guide, "k1_reward"), "relative_distance"] < 1e-10
            assert by_row.loc[("mean", guide, "k1_reward"), "relative_distance"] > 1e-3
        assert by_row.loc[("sum", "branch", "k2"), "effect"] == "none"
        table = read_document(csv.with_suffix(".json"))
        page = a_page(
            with_a_case(study),
            tmp_path,
            tables={"estimators": table},
            guide_effects=effects,
        )
        assert page.count("Branch (k3, mean): own direction") == 1  # once for all sections
        assert "0 (rounding)" in page[page.index('id="theory"') :]

    def test_captions_are_short_and_what_several_have_is_said_once(self, page: str) -> None:
        tree = parsed(page)
        captions = [words_of(one) for one in tree.iter() if one.tag in ("caption", "figcaption")]
        assert max(len(caption.split()) for caption in captions) <= 40
        section = tree.find(".//section[@id='exhibit-table1']")
        (more,) = section.findall("details[@class='more']/div/p")
        assert words_of(more).startswith("Each method was trained once, so the intervals do not ")
        assert tree.find(".//details[@id='reading']") is None  # nothing is said twice
        parts = [
            Part(name, "Short.", "p", "t", more=["Of both.", f"Of {name} alone."])
            for name in ("one", "two")
        ]
        sections = [Section(part.anchor, "", "T", "t", parts=[part]) for part in parts]
        assert said_often(sections) == ["Of both."]

    def test_columns_without_a_value_are_not_shown(self) -> None:
        columns = [("A", "x", lambda row: row["x"]), ("A", "Δ", lambda _: NONE)]
        columns += [("B", "y", lambda _: "")]
        made = table_of("Method", columns, [("", [("one", {"x": "1"}), ("two", {"x": NONE})])])
        table = filled(made)
        assert table.heads == (Head("A", ("x",)),)
        assert [[cell.text for cell in row.cells] for row in table.groups[0].rows] == [
            ["1"],
            [NONE],
        ]

    def test_bold_and_ties_are_as_the_table_marks_them(self, page: str) -> None:
        assert "<strong>90.0</strong><small>85.0–95.0</small>" in page
        assert '75.0<sup class="tie"' in page

    def test_every_exhibit_names_its_file_and_its_command(self, page: str) -> None:
        text = plain(page)
        for file in (
            "report/tables/table1.csv",
            "report/figures/figure3.svg",
            "metrics/case_study/case.json",
            "report/tables/grading.csv",
            "report/index.html",
        ):
            assert f"<code>results/smoke/{file}</code>" in text
        assert "<code>snakemake --cores all report --config study=smoke</code>" in text
        assert '<a class="file" href="tables/table1.csv">' in page

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
        claims = load_claims(ROOT / "config/claims.yaml")
        path = write_partial(study, results, ROOT / "reports", claims)
        page = path.read_text()
        assert "A partial report." in page
        assert "Not trained yet" in page
        assert 'id="figure-figure5"' in page  # the theory needs no run
        assert page.count("<strong>Not run.</strong>") >= len(study.study.exhibits)
        Markings(page)
