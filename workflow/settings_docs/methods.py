"""The table of docs/method.md: each method of algorithms.yaml.

It is read off the registries: the source of a kind is the paper that the first lines of its class,
or the head of a rival's file, name.
"""

from __future__ import annotations

import inspect
import re
import sys
from itertools import chain
from pathlib import Path

import yaml

from sage.study.algorithms import Algorithm
from sage.study.choices import RIVALS, Choice
from sage.study.derived import whole_methods

SOURCE = re.compile(r"arXiv \d{4}\.\d{5}|ACL Findings 2026, 641|\bEq\. [\d, ]*\d")
_BLOCK = re.compile(r"(<!-- begin generated: methods -->\n).*?(<!-- end generated -->)", re.S)
_ARXIV = "arXiv "


def filled(text: str, config: Path) -> str:
    """`text` with the table written anew."""
    entries = yaml.safe_load((config / "algorithms.yaml").read_text(encoding="utf-8"))
    whole, _ = whole_methods(entries)
    methods = {name: Algorithm.model_validate(entry) for name, entry in whole.items()}
    table = _table(
        [
            ["method", "what is drawn", "what is credited", "what is paid", "source"],
            *([f"`{name}`", *_row(method)] for name, method in methods.items()),
        ]
    )
    return _BLOCK.sub(lambda match: match[1] + table + match[2], text)


def _row(method: Algorithm) -> list[str]:
    """What is drawn, credited and paid by a method, and the sources of its choices."""
    drawn = "G completions a prompt"
    if method.planner:
        drawn += f", then as {_named(method.planner)}"
    if method.filter:
        drawn += (
            f", groups that {_named(method.filter)} keeps, refilled {method.filter.max_refills}×"
        )
    clips = "" if (method.clip_low, method.clip_high) == (0.2, 0.2) else _clips(method)
    shared = f", per token by {_named(method.credit)}" if method.credit else ""
    credited = f"{_named(method.advantage)}{shared}; loss {method.loss}{clips}"
    if method.mask_truncated:
        credited += ", truncated completions without loss"
    paid = " + ".join(map(_named, method.rewards))
    if method.kl != "none":
        anchor = f"q·π_ref, q {_named(method.guide)}" if method.guide else "π_ref"
        if method.guide and method.guide.clamp != [0.6, 1.4]:
            anchor += f" in {method.guide.clamp}"
        beta = "β" if method.kl_coefficient is None else f"{method.kl_coefficient:g}"
        paid += f" − {beta} · {_named(method.estimator)} to {anchor}"
    if method.fidelity == "released":
        paid += "; π_ref before SFT, schedules by loss calls"
    if method.entropy_bonus:
        paid += f" + {method.entropy_bonus:g} · entropy"
    named = (_sources(choice) for *_, choice in method.choices())
    return [drawn, credited, paid, _cited(dict.fromkeys(chain.from_iterable(named)))]


def _said(named: object) -> str:
    return (inspect.getdoc(named) or "").partition("\n\n")[0]


def _sources(choice: Choice) -> list[str]:
    """The papers of a kind: its class names them, or the head of a rival's file."""
    made = choice.family.find(choice.kind)
    head = sys.modules[made.__module__] if made.__module__.startswith(RIVALS) else None
    return SOURCE.findall(_said(made)) or SOURCE.findall(_said(head))


def _named(choice: Choice | None) -> str:
    """A choice with the settings that it states."""
    assert choice is not None
    settings = ", ".join(f"{name} {value}" for name, value in choice.settings.items())
    return f"`{choice.kind}`" + (f" ({settings})" if settings else "")


def _clips(method: Algorithm) -> str:
    ends = ["none" if clip is None else f"{clip:g}" for clip in (method.clip_low, method.clip_high)]
    return f", clip {' / '.join(ends)}"


def _cited(sources: dict[str, None]) -> str:
    return ", ".join(
        f"[{each.removeprefix(_ARXIV)}](https://arxiv.org/abs/{each.removeprefix(_ARXIV)})"
        if each.startswith(_ARXIV)
        else each
        for each in sources
    )


def _table(rows: list[list[str]]) -> str:
    head, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *rest]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
