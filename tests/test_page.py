"""The page: it is self-contained, marks what is missing, and hostile text stays text."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from pages import (
    HOSTILE,
    Markings,
    a_page,
    a_page_with_claims,
    parsed,
    svgs,
    with_a_case,
    words_of,
)
from report_frames import (
    ROOT,
    a_study,
)

from sage.claims.tests import load_claims
from sage.exhibits import kind_class, load_study
from sage.exhibits.making import write_table
from sage.rendering.documents import read_document
from sage.rendering.numbers import duration, grouped, p_text, points
from sage.report import browser
from sage.report.partial import comparable, write_partial
from sage.results import Results


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
        always = ["theory", "hyperparameters", "contamination", "chance", "grading", "support"]
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
        """As computed for the row's own loss: GRPO takes means."""
        study, csv = a_study(), tmp_path / "estimators.csv"
        write_table(study.part(), "estimators", "", [], tmp_path, csv)
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
            guide_effects={"estimators": effects},
        )
        section = page[page.index('id="exhibit-table1"') : page.index('id="exhibit-table2"')]
        assert "<dd>Branch (k3, mean): own direction</dd>" in section
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
            ("report/tables/grading.csv", "grading"),
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
