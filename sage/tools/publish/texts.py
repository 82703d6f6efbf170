"""Cards for the Hugging Face hub and the logbook, from the templates in reports/publish.

The logbook has the form of open reproductions on trackio (0.43): `pages/index.md` with a table of
the pages, `pages/{page}/page.md` with cells, each behind a comment with its type and id, and
`metadata.json`. `trackio logbook sync` adds the viewer, `trackio logbook serve` shows it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from huggingface_hub import DatasetCardData, EvalResult, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sage.rendering.labels import row_title
from sage.rendering.numbers import duration, interval, interval_of_points, p_text, percent, points
from sage.results import Run
from sage.runtime.files import text_sum
from sage.study.bases import HubBase
from sage.tools.publish.material import ARXIV, PAPER, SOURCE, Material

TEMPLATES = Path(__file__).resolve().parents[3] / "reports" / "publish"
TOY = (
    "**Toy.** The base is a small model that the study made or fitted for any machine. "
    "Its numbers say nothing about the paper's models."
)

Outcome = Literal["verified", "falsified", "toy", "inconclusive"]
_OUTCOMES: dict[str, Outcome] = {
    "supported": "verified",
    "contradicted": "falsified",
    "no difference": "falsified",
}

FOLDER = ".trackio/logbook"


def cell(text: object) -> str:
    """Text that cannot end a cell of a table in Markdown."""
    return " ".join(str(text).replace("|", "\\|").split())


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown; the texts are the study's own
    )
    environment.filters["cell"] = cell
    return environment


def _text(template: str, material: Material, **values: Any) -> str:
    same = {"study": material.study, "paper": PAPER, "source": SOURCE}
    toy = TOY if material.is_toy() else ""
    return _templates().get_template(f"{template}.md.j2").render(same, toy=toy, **values)


def model_card(material: Material, run: Run) -> str:
    """The card of a trained policy: method, data, scores with intervals, cost."""
    study, scores = material.study, material.scores_of(run)
    model, rl = study.model(run.model), study.rl(run.model)
    algorithm, manifest = study.algorithms[run.algorithm], material.manifest_of(run)
    head = ModelCardData(
        library_name="peft",
        pipeline_tag="text-generation",
        base_model=model.base.repository if isinstance(model.base, HubBase) else None,
        tags=["sage", "rlvr", "grpo", "trl", *material.toy_tag()],
        model_name=material.model_name(run),
        eval_results=[
            EvalResult(
                task_type="text-generation",
                dataset_type=row["benchmark"],
                dataset_name=row["benchmark"],
                metric_type="pass@k",
                metric_name=f"pass@{row['k']}",
                metric_value=float(row["value"]),
            )
            for row in scores.to_dict("records")
        ],
    )
    return _text(
        "model",
        material,
        head=head,
        title=f"{model.title}, {row_title(study, run.algorithm)}, seed {run.seed}",
        algorithm=algorithm,
        beta=rl.kl_coefficient if algorithm.kl_coefficient is None else algorithm.kl_coefficient,
        rl=rl,
        seed=run.seed,
        time=duration(manifest.get("wall_seconds")),
        commit=manifest.get("git_commit") or "unknown",
        scores=_score_table(scores),
    )


def dataset_card(material: Material) -> str:
    """The card of the graded samples."""
    samples = {name: m for name, m in material.manifests.items() if name.startswith("samples/")}
    head = DatasetCardData(
        tags=["sage", "rlvr", "pass-at-k", *material.toy_tag()],
        task_categories=["text-generation"],
        configs=[
            {"config_name": benchmark, "data_files": f"samples/*/*/*/{benchmark}.parquet"}
            for benchmark in material.study.benchmark_sets()
        ],
    )
    return _text(
        "samples",
        material,
        head=head,
        policies=len({name.rsplit("/", 1)[0] for name in samples}),
        files=len(samples),
        tokens=sum(int(manifest.get("tokens") or 0) for manifest in samples.values()),
    )


def _score_table(scores: pd.DataFrame) -> str:
    """A row for each benchmark, a column for each k, in Markdown."""
    said = [
        f"{percent(row['value'])} ({interval(row['low'], row['high'])})"
        for row in scores.to_dict("records")
    ]
    columns = "pass@" + scores["k"].astype(str)
    wide = scores.assign(said=said, column=columns).pivot(
        index="benchmark", columns="column", values="said"
    )
    names = list(columns[scores["k"].sort_values().index].unique())
    rows = [("Benchmark", *names), ("---",) * (1 + len(names))]
    rows += [tuple(map(str, row)) for row in wide[names].fillna("").itertuples()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def outcome(verdict: str, toy: bool) -> Outcome:
    """The ledger's verdict in the logbooks' words.

    A decided claim of a toy study is `toy`: it says what happened there, not in the paper.
    """
    word = _OUTCOMES.get(verdict, "inconclusive")
    return "toy" if toy and word != "inconclusive" else word


def pages(material: Material) -> dict[str, str]:
    """The logbook's files by their path: index, summary, a page for each claim, metadata."""
    made, written, toy = material.ended().isoformat(), {}, material.is_toy()

    def marker(claim: str, kind: str, heading: str, **more: Any) -> str:
        """The comment before a cell."""
        key = text_sum(f"{material.study.name}/{claim}/{heading}")[:12]
        head = {"type": kind, "id": f"cell_{key}", "created_at": made, "title": heading, **more}
        return f"<!-- trackio-cell\n{json.dumps(head, ensure_ascii=False)}\n-->"

    claims = []
    ledger = material.claims.astype(object).where(material.claims.notna(), "")
    for name, rows in ledger.groupby("claim", sort=False):
        first = rows.iloc[0]
        word = outcome(first["verdict"], toy)
        place = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")
        claims.append((place, first["text"], word, first["verdict"]))
        written[f"pages/{place}/page.md"] = _text(
            "claim",
            material,
            marker=marker,
            claim=name,
            title=first["text"],
            first=first,
            outcome=word,
            tests=[_test(row) for row in rows.to_dict("records")],
        )
    written["pages/index.md"] = _text("index", material, claims=claims)
    written["pages/summary/page.md"] = _text(
        "summary",
        material,
        marker=marker,
        made=made,
        total=len(claims),
        outcomes=sorted(Counter(word for _, _, word, _ in claims).items()),
        at_a_glance=material.at_a_glance(),
        commits=material.commits(),
    )
    paper = {"arxiv_id": ARXIV, "openreview_id": None, "url": SOURCE, "title": PAPER}
    head = {"space_id": None, "emoji": "🎯", "created_at": made, "paper": paper}
    tags = ["reproduction", "sage", "rlvr", *material.toy_tag()]
    written["metadata.json"] = json.dumps({**head, "tags": tags}, indent=2, ensure_ascii=False)
    return {f"{FOLDER}/{path}": text for path, text in sorted(written.items())}


def _test(row: dict[Any, Any]) -> tuple[str, ...]:
    """One test of a claim: what, where, effect, interval, p, runs, verdict."""
    says = f"{row['says']} ({row['role']})" if row["role"] else row["says"]
    said, between, p = row["reason"] or "not run", "", ""
    if row["effect"] != "":
        effect, low, high = (float(row[key] or "nan") for key in ("effect", "low", "high"))
        in_points = row["unit"] == "points"
        said = points(effect) if in_points else f"{effect:.3g}"
        if row["low"] != "":  # one run of each method has no interval
            between = interval_of_points(low, high) if in_points else f"{low:.3g} to {high:.3g}"
        p = p_text(float(row["p"] if row["p"] != "" else "nan"))
    runs = "" if row["runs"] == "" else str(int(row["runs"]))
    return says, row["place"], said, between, p, runs, row["place_verdict"]
