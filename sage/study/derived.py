"""Methods that take over the keys of another: `pkpo_branch: {base: pkpo, guide: branch}`.

Entries are merged as they are written, before the types see them. A key stands in place of that of
the base as a whole. A guide, or `kl: reverse`, added to a method without a KL term brings the
paper's term: reverse, estimated by k3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from sage.faults import as_written, mapping
from sage.fields import nearest

Entries = Mapping[Any, Any]

KEY = "base"
"""The key that names the method whose keys are taken over."""

PAPER_TERM = {"kl": "reverse", "estimator": "k3"}


def whole_methods(
    entries: Entries, others: Entries | None = None
) -> tuple[dict[Any, Any], list[str]]:
    """The entries, each with what it takes over, and faults that begin with an entry's name.

    A base is one of the `entries`, or of `others`, all whole; an entry without it is left out.
    """
    known = {**(others or {}), **entries}
    faults = {}

    def whole(name: str, above: tuple[str, ...] = ()) -> Any:
        own, base = known[name], mapping(known[name]).get(KEY)
        if KEY not in mapping(own):
            return own
        if not isinstance(base, str) or base not in known:
            what = f"{as_written(base)} is no method{nearest(str(base), known)}"
            faults[name] = f"{name}.{KEY}: {what}"
        elif base in (*above, name):
            circle = " takes over ".join([*above, name, base])
            faults[name] = f"{name}.{KEY}: a circle, which must be broken: {circle}"
        else:
            below = whole(base, (*above, name))
            return _merged(below, own) if isinstance(below, dict) and KEY not in below else own
        return own

    merged = {name: whole(name) for name in entries}
    found = {name: one for name, one in merged.items() if KEY not in mapping(one)}
    return found, [*faults.values()]


def of_their_own(faults: Iterable[str], entries: Entries) -> list[str]:
    """Faults of entries, without those that an entry only has from its base."""
    every = list(faults)
    bases = {name: own[KEY] for name, own in entries.items() if KEY in mapping(own)}
    taken = {
        fault
        for fault in every
        for name, base in bases.items()
        if fault.startswith((f"{name}.", f"{name}:")) and base + fault[len(name) :] in every
    }
    return [fault for fault in every if fault not in taken]


def _merged(base: Entries, own: Entries) -> dict[Any, Any]:
    no_term = base.get("kl") == "none" and own.get("kl", "reverse") == "reverse"
    term = PAPER_TERM if no_term and (own.get("guide") or own.get("kl")) else {}
    changed = {key: value for key, value in own.items() if key != KEY}
    whole = {**deepcopy(dict(base)), **term, **changed}
    return whole if "title" in own else {**whole, "title": _title(base, term, changed)}


def _title(base: Entries, term: Entries, changed: Entries) -> str:
    """The base's title and what is changed: `PKPO + Branch`, `GRPO (kl_coefficient 0.2)`."""
    title, words = str(base.get("title")), []
    if guide := changed.get("guide"):
        word = _word(guide).rpartition(":")[2]
        title += f" + {word[:1].upper()}{word[1:]}"
    elif term:
        title += " + KL"
    for key, value in changed.items():
        if not (key == "guide" and value) and (key, value) not in term.items():
            words.append(f"{key} {_word(value)}")
    return title + (f" ({', '.join(words)})" if words else "")


def _word(value: Any) -> str:
    """A value in a title: a choice by its kind."""
    value = mapping(value).get("kind", value)
    return "none" if value is None else value if isinstance(value, str) else as_written(value)
