"""The page of `sage-rlvr dose`: one sentence, two figures, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure

from sage.evaluation.guide_dose import Measured, Read
from sage.exhibits.guide_dose import DEFINITIONS
from sage.rendering import style
from sage.rendering.lines import PALETTE
from sage.report.loader import read_sources
from sage.report.page import rendered
from sage.runtime.files import write_text_atomic
from sage.study.choices import Guide
from sage.tools.samples_page import REPORTS, drawn

TEMPLATE = "dose.html.j2"


def figure(found: Measured, read: Read) -> Figure:
    """beta a_k against k with its interval, and log q against length within prompts."""
    both = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = both.subplots(1, 2)
    by_k, scale = found.by_k, 100 * found.row["kl_coefficient"]
    colour = PALETTE["blue"][0]
    left.fill_between(by_k["k"], scale * by_k["low"], scale * by_k["high"], color=colour, alpha=0.2)
    left.plot(by_k["k"], scale * by_k["value"], color=colour, marker="o", ms=4)
    left.axhline(0, color=PALETTE["grey"][0], lw=0.8)
    style.powers_of_two(left, by_k["k"])
    left.set(xlabel="k", ylabel="β × alignment (points of pass@k)", title="Alignment")
    away, longer = (each - each.mean(dim=1, keepdim=True) for each in (found.log_q, read.lengths))
    for correct, name, face in ((0.0, "wrong", "none"), (1.0, "right", colour)):
        chosen = read.right == correct
        right.scatter(
            longer[chosen].numpy(),
            away[chosen].numpy(),
            s=9,
            facecolor=face,
            edgecolor=colour if correct else PALETTE["grey"][0],
            linewidth=0.6,
            alpha=0.7,
            label=name,
            zorder=2 + correct,
        )
    right.set(xlabel="tokens, less the problem's mean", ylabel="log q, less the problem's mean")
    right.set(title="Completions")
    right.legend(loc="upper left", frameon=False)
    return both


def write_page(
    model: str,
    guide: Guide,
    found: Measured,
    read: Read,
    facts: Sequence[tuple[str, str]],
    told: str,
    page: Path,
) -> None:
    """One self-contained page, in the style of a study's."""
    made = asdict(guide.made)
    settings = [f"{name.replace('_', ' ')} {value}" for name, value in made.items()]
    settings.append(f"clamp {guide.clamp[0]:g} to {guide.clamp[1]:g}")
    settings.append(f"β {found.row['kl_coefficient']:g}")
    label = "alignment against k, and log q against length; the numbers are in the table below"
    text = rendered(
        TEMPLATE,
        read_sources(REPORTS),
        page,
        title=f"{guide.kind.capitalize()} guide on {Path(model).name}",
        sentence=told,
        settings=", ".join(settings),
        facts=facts,
        figure=drawn(lambda: figure(found, read), "dose", label, {}),
        definitions=DEFINITIONS,
    )
    write_text_atomic(page, text)
