"""The logbook of a study: a page for each claim, as trackio reads it.

The form is that of open reproductions on trackio (0.43): `pages/index.md` with a table of the
pages, `pages/{page}/page.md` with cells, each behind a comment with its type and id, and
`metadata.json`.
`trackio logbook sync` adds the viewer, `trackio logbook serve` shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pandas as pd

from sage.rendering.numbers import interval_of_points, p_text, points
from sage.runtime.files import text_sum
from sage.tools.publish.cards import TOY, cell, table
from sage.tools.publish.material import ARXIV, PAPER, SOURCE, Material

Outcome = Literal["verified", "falsified", "toy", "inconclusive"]

OUTCOMES: Mapping[str, Outcome] = {
    "supported": "verified",
    "contradicted": "falsified",
    "inconclusive": "inconclusive",
    "untested at this dose": "inconclusive",
    "not testable": "inconclusive",
    "not run": "inconclusive",
}
"""By the ledger's verdict. `no difference` depends on what the claim says: see `outcome`."""

FOLDER = ".trackio/logbook"


def pages(material: Material) -> dict[str, str]:
    """The logbook's files by their path."""
    claims = list(by_claim(material.claims))
    written = {}
    rows: list[tuple[str, ...]] = []
    for name, rows_of_claim in claims:
        first = rows_of_claim.iloc[0]
        page, verdict = slug(name), outcome(rows_of_claim, material.is_toy())
        rows.append((f"[{cell(str(first['text']))}](#/{page})", verdict, str(first["verdict"])))
        written[f"pages/{page}/page.md"] = claim_page(material, name, rows_of_claim)
    title = f"Repro: {PAPER}"
    written["pages/summary/page.md"] = summary_page(material, claims)
    rows.insert(0, ("[Summary](#/summary)", "", ""))
    written["pages/index.md"] = (
        f"# {title}\n\nPaper: [{SOURCE}]({SOURCE})\n\n## Pages\n\n"
        f"{table(('Page', 'Status', 'Verdict of the study'), rows)}\n"
    )
    made = material.ended().isoformat()
    paper = {"arxiv_id": ARXIV, "openreview_id": None, "url": SOURCE, "title": PAPER}
    head = {"space_id": None, "emoji": "🎯", "created_at": made, "paper": paper}
    tags = ["reproduction", "sage", "rlvr", *(["toy"] if material.is_toy() else [])]
    written["metadata.json"] = json.dumps({**head, "tags": tags}, indent=2, ensure_ascii=False)
    return {f"{FOLDER}/{path}": text for path, text in sorted(written.items())}


def outcome(claim: pd.DataFrame, toy: bool) -> Outcome:
    """The claim's verdict in the logbooks' words.

    A decided claim of a toy study is `toy`: it says what happened there, not in the paper. Where
    the study shows that there is no difference, a claim of one is falsified.
    """
    verdict = str(claim.iloc[0]["verdict"])
    word = OUTCOMES.get(verdict, "falsified" if verdict == "no difference" else "inconclusive")
    return "toy" if toy and word != "inconclusive" else word


def summary_page(material: Material, claims: list[tuple[str, pd.DataFrame]]) -> str:
    """Outcomes counted, and scope, hardware, time and cost."""
    counts: dict[str, int] = {}
    for _, rows in claims:
        word = outcome(rows, material.is_toy())
        counts[word] = counts.get(word, 0) + 1
    said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    body = [f"**Outcome of {len(claims)} claims: {said}.**"]
    if material.is_toy():
        body.append(TOY)
    body.append(table(("At a glance", ""), list(material.at_a_glance().items())))
    body.append("Commits: " + (", ".join(material.commits()) or "not recorded"))
    command = f"snakemake --cores all --config study={material.study.option}"
    return page(
        "Summary",
        [
            ("markdown", "Replication report", "\n\n".join(body), {"pinned": True}),
            ("code", "How to run it", f"````bash\n{command}\n````", {"language": "bash"}),
        ],
        material,
    )


def claim_page(material: Material, name: str, rows: pd.DataFrame) -> str:
    """What the claim says, its outcome, every test, and what limits it."""
    first = rows.iloc[0]
    word = outcome(rows, material.is_toy())
    body = [
        f"**Claim.** {cell(str(first['text']))} ({cell(str(first['source']))})",
        f"**Outcome: {word}.** The study's verdict is **{first['verdict']}**.",
    ]
    if _has(first["because"]):
        body.append(f"Why: {cell(str(first['because']))}")
    if material.is_toy():
        body.append(TOY)
    tests = [_test(row) for row in rows.to_dict("records")]
    head = ("Test", "Where", "Effect", "95 % interval", "p", "Runs", "Verdict")
    command = f"snakemake report --cores all --config study={material.study.option}"
    return page(
        cell(str(first["text"])),
        [
            ("markdown", "Outcome", "\n\n".join(body), {}),
            ("markdown", "Tests", table(head, tests), {}),
            ("code", "Command", f"````bash\n{command}\n````", {"language": "bash"}),
        ],
        material,
        name,
    )


def page(
    title: str,
    cells: list[tuple[str, str, str, dict[str, Any]]],
    material: Material,
    name: str = "",
) -> str:
    """A page of cells: type, title, body and further entries of each."""
    made = material.ended().isoformat()
    blocks = [f"# {title}\n"]
    for kind, heading, body, more in cells:
        key = text_sum(f"{material.study.name}/{name}/{heading}")[:12]
        head = {"type": kind, "id": f"cell_{key}", "created_at": made, "title": heading, **more}
        if more.get("pinned"):
            head["pinned_at"] = made
        marker = f"<!-- trackio-cell\n{json.dumps(head, ensure_ascii=False)}\n-->"
        blocks.append(f"\n---\n{marker}\n{body}\n")
    return "\n".join(blocks)


def by_claim(claims: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each claim's rows, in the ledger's order."""
    for name, rows in claims.groupby("claim", sort=False):
        yield str(name), rows


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _test(row: dict[Any, Any]) -> tuple[str, ...]:
    in_points = row["unit"] == "points"
    effect, low, high = (float(row[key]) for key in ("effect", "low", "high"))
    known = effect == effect
    said = points(effect) if in_points else f"{effect:.3g}"
    between = interval_of_points(low, high) if in_points else f"{low:.3g} to {high:.3g}"
    return (
        f"{row['says']} ({row['role']})" if _has(row["role"]) else str(row["says"]),
        str(row["place"]) if _has(row["place"]) else "",
        said if known else str(row["reason"]) if _has(row["reason"]) else "not run",
        between if known else "",
        p_text(float(row["p"])) if known else "",
        str(int(row["runs"])) if _has(row["runs"]) else "",
        str(row["place_verdict"]) if _has(row["place_verdict"]) else "",
    )


def _has(value: Any) -> bool:
    return value is not None and value == value and str(value) != ""
