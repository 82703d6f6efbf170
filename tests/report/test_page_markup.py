"""The page as a browser and a screen reader take it: markup, colours, its script at work."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import (
    HOSTILE,
    SVG,
    Markings,
    a_content,
    a_page,
    a_page_with_claims,
    heading_levels,
    not_skipping,
    opened,
    parsed,
    svgs,
    with_a_case,
    with_findings,
    words_of,
)
from report_frames import ROOT, a_study

from sage.claims.tests import load_claims
from sage.rendering.lines import PALETTE, LineStyle
from sage.rendering.markup import figure_html
from workflow.page_screens import SIZES, screens

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
location.hash = "#settings";
const table = document.querySelector("#table-table1");
const first = () => table.querySelector("tbody tr th").textContent;
const before = first();
const heads = [...table.querySelectorAll("thead button")];
heads[1].click();
seen.push([before, first(), heads[1].parentElement.getAttribute("aria-sort")]);
const [body] = document.querySelector("#table-runs-1").tBodies;
const times = ["59 s", "1 h 02 min", "45 min 10 s", "–"];
const rows = [...body.rows].filter((row) => !row.matches(".group")).slice(0, times.length);
rows.forEach((row, at) => { row.cells[2].textContent = times[at]; });
body.replaceChildren(...rows);
document.querySelectorAll("#table-runs-1 thead button")[2].click();
seen.push([...body.rows].map((row) => row.cells[2].textContent));
seen.push(document.querySelector("#browser bdi").textContent);
dispatchEvent(new Event("beforeprint"));
seen.push(document.querySelectorAll("details:not([open])").length);
dispatchEvent(new Event("afterprint"));
seen.push(document.querySelectorAll("details:not([open])").length > 3);
document.querySelector("a[href='#settings']").click();
document.body.dataset.seen = JSON.stringify(seen);
"""


CHOOSER = """
const seen = [];
const one = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const drawn = (at) => !at.closest(".off");
const shown = (selector) => all(selector).filter(drawn);
const texts = (selector) => shown(selector).map((at) => at.textContent);
const look = () => seen.push([
  ...["base", "grpo", "branch"].map((name) => shown(`[data-method=${name}]`).length),
  texts("#table-table1 tbody th").join(), texts(".legend li").join(),
  one(".methods [role=status]").textContent, location.hash]);
const columns = () => [...one("table.by-k").rows].map((row) => [...row.cells]
  .filter(drawn).map((cell) => cell.firstChild.textContent || cell.textContent).join(" "));
const later = (act) => new Promise((done) => { act(); setTimeout(done, 100); });
(async () => {
  look();
  one(".methods summary").click();
  one(".methods [value=branch]").click();
  look();
  await later(() => { location.hash = "#%E0&without=branch,%E0"; });
  await later(() => { location.hash = "#settings"; });
  look();
  await later(() => { location.hash = "#runs&without=grpo,base"; });
  look();
  one(".methods button:last-of-type").click();
  seen.push(shown(".panels > svg").length);
  one(".methods button").click();
  look();
  const range = one(".slider input");
  const choose = (place) => {
    range.value = place;
    range.dispatchEvent(new Event("input"));
    return [range.getAttribute("aria-valuetext"), one(".at-k").getAttribute("d"), ...columns()];
  };
  seen.push(choose(2), choose(0));
  document.body.dataset.seen = JSON.stringify(seen);
})();
"""
"""Unchecks methods, follows links, and moves the slider over k."""


TABS = """
const all = [...document.querySelectorAll(".part")];
const shown = () => all.filter((part) => !part.hidden).map((part) => part.id).join();
const seen = [shown()];
const later = (act) => new Promise((done) => { act(); setTimeout(done, 100); });
(async () => {
  for (const link of ["exhibits", "settings", "exhibit-table1"]) {
    await later(() => { document.querySelector(`nav a[href='#${link}']`).click(); });
    seen.push(shown());
  }
  await later(() => { history.back(); });
  seen.push(shown());
  all[1].dispatchEvent(new Event("beforematch"));
  seen.push(shown());
  await later(() => { location.hash = ""; });
  seen.push(shown());
  dispatchEvent(new Event("beforeprint"));
  document.body.dataset.seen = JSON.stringify(seen);
})();
"""
"""Goes from part to part and back."""


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
        links = {link[1:] for link in markings.values("href") if link.startswith("#")}
        links |= set(re.findall(r"url\(#([^)]*)\)", page))
        named = "aria-labelledby", "aria-describedby", "aria-controls", "for", "headers"
        links |= {word for value in markings.values(*named) for word in value.split()}
        assert links <= set(ids)

    def test_headings_skip_no_level(self, page: str) -> None:
        levels = heading_levels(page)
        assert levels.count(1) == 1
        assert not_skipping(levels)

    def test_every_figure_is_told_or_hidden(self, page: str) -> None:
        tree = parsed(page)
        figures = tree.findall(".//div[@class='panels']")
        assert len(figures) == len(svgs())
        assert all(one.get("role") == "img" and one.get("aria-label") for one in figures)
        assert all(svg.get("aria-hidden") == "true" for svg in tree.findall(f".//{SVG}svg"))

    def test_every_table_has_a_caption_and_heads_that_say_of_what(self, page: str) -> None:
        tables = parsed(page).findall(".//table")
        assert tables
        for table in tables:
            assert words_of(table.find("caption"))
            heads = table.findall(".//th")
            assert all(head.get("scope") and words_of(head) for head in heads)

    def test_claims_that_were_not_tested_have_no_section(self, page: str) -> None:
        tree = parsed(page)
        assert tree.find(".//section[@id='claims']") is None
        assert "paper’s claims" not in words_of(tree.find(".//div[@id='findings']"))

    def test_some_that_were_not_tested_take_one_line(self, tmp_path: Path) -> None:
        study = with_a_case(a_study())
        claims = a_content(study, tmp_path / "frame").metrics["claims"]
        some = with_findings(claims).where(claims["claim"] == "forward_kl", claims)
        metrics = a_content(study, tmp_path / "more").metrics | {
            "claims": some.astype(claims.dtypes)
        }
        tree = parsed(a_page(study, tmp_path / "page", metrics=metrics))
        assert len(tree.findall(".//table[@class='ledger']")) == 1
        (line,) = tree.findall(".//ul[@class='untested']")
        asked = set(load_claims(ROOT / "config/claims.yaml")) - {"forward_kl"}
        assert {item.get("id") for item in line} == {f"claim-{name}" for name in asked}
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
        others = re.sub(r":root\s*\{[^}]*\}", "", style)
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", others)  # no colour but these


def driven(chromium: str, page: str, driver: str, folder: Path) -> tuple[str, list[Any]]:
    """The page's markup after its script and `driver` have run, and what the latter has seen."""
    digest = base64.b64encode(hashlib.sha256(driver.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ")
    page = page.replace("</body>", f"<script>{driver}</script></body>")
    markup, complaints = opened(chromium, page, folder)
    assert complaints == ""
    (seen,) = [
        json.loads(value) for _, name, value in Markings(markup).attributes if name == "data-seen"
    ]
    return markup, seen


class TestInABrowser:
    def test_the_browser_filters_and_compares_and_nothing_runs_or_loads(
        self, chromium: str, page: str, tmp_path: Path
    ) -> None:
        markup, seen = driven(chromium, page, DRIVER, tmp_path)
        all_, without_correct, problem, completion, heads, inside, reached, loaded, title, *more = (
            seen
        )
        assert (all_, without_correct) == (12, 8)
        assert problem == f"2 + 1 {HOSTILE}"
        assert completion == f"try 1 of p2 {HOSTILE}"
        assert heads == ["Base", "GRPO"]
        assert (inside, loaded, reached) == (0, 0, True)
        assert title == "A study"
        times = ["–", "1 h 02 min", "45 min 10 s", "59 s"]
        assert more == [["Base", "Branch", "descending"], times, "<b>1</b>", 0, True]
        assert not_skipping(heading_levels(markup))

    def test_a_method_can_leave_all_figures_and_tables_and_k_is_chosen(
        self, chromium: str, page: str, tmp_path: Path
    ) -> None:
        _, seen = driven(chromium, page, CHOOSER, tmp_path)
        before, unchecked, linked, other, none_left, again, last, first = seen
        (base, grpo, branch), of_all = before[:3], ["all 3", ""]
        assert min(before[:3]) > 3
        # legends of the curves and of the training curves, which have no base
        assert before[3:] == ["Base,GRPO,Branch", "Base,GRPO,Branch,GRPO,Branch", *of_all]
        left = [base, grpo, 0, "Base,GRPO", "Base,GRPO,GRPO", "2 of 3"]
        assert unchecked == [*left, "#&without=branch"]
        assert linked == [*left, "#settings&without=branch"]
        assert other[:3] == [0, 0, branch]
        assert other[3:] == ["Branch", "Branch,Branch", "1 of 3", "#runs&without=base,grpo"]
        assert none_left == 0
        assert again == [*before[:5], "all 3", "#runs"]
        assert last[0] == "4"
        assert last[2:5] == ["Method pass@4", "Easy", "Base 70.0"]
        assert last[8:10] == ["Base –", "GRPO –"]  # none was measured on Hard
        assert first[0] == "1"
        assert first[1] != last[1]
        assert first[2] == "Method pass@1"

    def test_one_part_is_shown_at_a_time(self, chromium: str, page: str, tmp_path: Path) -> None:
        _, seen = driven(chromium, page, TABS, tmp_path)
        assert seen == ["findings", "exhibits", "made", "exhibits", "made", "exhibits", "findings"]

    @pytest.mark.usefixtures("chromium")
    def test_its_screens_are_counted_and_it_fits_a_phone(self, page: str, tmp_path: Path) -> None:
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        wide, narrow = (screens(path, *size) for size in SIZES)
        for counted in (wide, narrow):
            every = counted.pop("all")
            assert [*counted] == ["findings", "exhibits", "sampled", "made"]
            assert every == pytest.approx(sum(counted.values()))
        assert (wide["findings"] <= 4, narrow["findings"] <= 8) == (True, True)

    def test_a_script_that_is_not_the_pages_own_is_refused(
        self, chromium: str, page: str, tmp_path: Path
    ) -> None:
        injected = page.replace("</body>", "<script>document.title='taken'</script></body>")
        markup, complaints = opened(chromium, injected, tmp_path)
        assert "Content Security Policy" in complaints
        assert "<title>taken" not in markup


FIGURE = (
    '<?xml version="1.0"?><svg viewBox="0 0 200 50" xmlns="http://www.w3.org/2000/svg" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"><g id="figure_1">'
    '<g id="panel_1" data-box="0 0 100 50"><defs>'
    f'<path id="a" d="M 1.23 2" style="stroke: {PALETTE["ink"][0]}"/></defs>\n'
    '<g id="unused"><use xlink:href="#a"/></g><text>0.00125 #25292e</text></g>'
    '<g id="panel_2" data-box="100 0 80 50"><text>B</text></g>'
    '<g id="legend_1" data-box="0 40 200 10"><text>GRPO</text></g></g></svg>'
)


def test_a_figure_is_a_panel_after_the_other_in_the_colours_of_the_theme() -> None:
    keys = {"GRPO": LineStyle("blue", (), "o")}
    html = figure_html(FIGURE, "p", 'a "label"', keys)
    tree = ElementTree.fromstring(f"<body>{html}</body>")
    panels, legend = tree
    assert panels.get("aria-label") == 'a "label"'
    assert panels.get("style") == "--panel:95px"
    assert [svg.get("viewBox") for svg in panels] == ["0 0 100 50", "100 0 80 50"]
    assert '<path d="M 1.23 2" style="stroke: var(--fig-ink)" id="p-a" />' in html
    assert '<g><use href="#p-a" /></g><text>0.00125 #25292e</text>' in html
    assert ["".join(item.itertext()) for item in legend] == ["GRPO"]
    assert "var(--fig-blue)" in html


def test_a_legend_of_other_things_stays_as_it_was_drawn() -> None:
    panels = ElementTree.fromstring(figure_html(FIGURE, "p", "a", {}))
    assert [svg.get("viewBox") for svg in panels][-1] == "0 40 200 10"


def test_a_figure_that_was_drawn_by_other_means_is_refused() -> None:
    with pytest.raises(ValueError, match="no panels"):
        figure_html('<svg xmlns="http://www.w3.org/2000/svg"/>', "p", "a", {})
