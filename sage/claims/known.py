"""What was known of a study's policies when its claims were written down.

A policy is known by its settings and its seed, whatever the study or the folder is called. Kept
runs are listed in `reports/known.jsonl`, a line each, which `sage-rlvr keep` adds; a run that takes
the place of another leaves its line there. Other folders of results say by their registration what
they train, and by the manifests of policies what they have trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sage.claims.tests import Claim
from sage.runtime.files import write_text_atomic
from sage.runtime.manifest import settings_sum
from sage.study import BASE, ResolvedStudy

FILE = "known.jsonl"

Design = Mapping[str, Any]
"""What a study trains, as an entry of a registration has it (`registration.design`)."""

Policy = tuple[str, int]
"""The sum of its settings, and its seed."""


@dataclass(frozen=True)
class Earlier:
    """A run, when it ended (ISO 8601, UTC), and the seeds of its policies by the sum of their
    settings, 16 digits of SHA-256."""

    run: str
    ended: str
    policies: Mapping[str, Sequence[int]]


def sum_of(design: Design, model: str, method: str) -> str:
    """The sum of the settings that decide a trained policy, but for its seed."""
    settings = design["models"][model]["settings"]
    own = {**design["models"][model]["methods"][method]}
    own.pop("seeds", None)
    problems = design.get("problems", {}).get((settings.get("rl") or {}).get("problems"), {})
    return settings_sum({"model": settings, "problems": problems, "method": own})[:16]


def trained_by(design: Design) -> dict[tuple[str, str], tuple[str, list[int]]]:
    """The sum and the seeds of each trained method, by model and method."""
    return {
        (model, method): (sum_of(design, model, method), [*own["seeds"]])
        for model, known in design.get("models", {}).items()
        for method, own in known["methods"].items()
        if method != BASE
    }


def earlier_of(design: Design, run: str, ended: str) -> Earlier:
    """A run that has trained all of its design."""
    policies: dict[str, list[int]] = {}
    for total, seeds in trained_by(design).values():
        policies[total] = sorted({*policies.get(total, []), *seeds})
    return Earlier(run, ended, policies)


def kept_earlier(reports: Path) -> list[Earlier]:
    """The runs that FILE of `reports` lists; none where there is no such file."""
    file = reports / FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [Earlier(**json.loads(line)) for line in lines]


def add(reports: Path, run: Earlier) -> None:
    """Add a kept run to FILE of `reports`, by the time of its end, unless it is there."""
    runs = kept_earlier(reports)
    if run not in runs:
        lines = (json.dumps(asdict(one)) for one in sorted([*runs, run], key=lambda one: one.ended))
        write_text_atomic(reports / FILE, "".join(f"{line}\n" for line in lines))


def trained_earlier(folders: Iterable[Path]) -> list[Earlier]:
    """What folders of results have trained, by their registration; one without says nothing, nor
    does one that cannot be read: its own run says so."""
    found = []
    for file in (folder / "registered.json" for folder in folders):
        try:
            (*_, last) = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for (model, method), (total, seeds) in trained_by(last).items():
            for seed in seeds:
                made = file.parent / "models" / model / method / f"seed{seed}" / "manifest.json"
                if made.is_file():
                    ended = json.loads(made.read_text(encoding="utf-8"))["ended"]
                    found.append(Earlier(file.parent.as_posix(), ended, {total: [seed]}))
    return found


def known_of(
    claims: Mapping[str, Claim],
    study: ResolvedStudy,
    design: Design,
    runs: Sequence[Earlier],
    times: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """What was known, at the `times` of claims, of the contrasts that decide them; a claim of which
    nothing was known is left out.

    `runs` of the trained policies `of` a method were known, where each method of the contrast has
    some; they are those of the method of which the least was known. `since` is the end of the run,
    `in`, with which all that was known then was known.
    """
    first: dict[Policy, Earlier] = {}
    for run in sorted(runs, key=lambda run: run.ended, reverse=True):
        first |= {(total, seed): run for total, seeds in run.policies.items() for seed in seeds}
    trained, found = trained_by(design), {}
    for name, claim in claims.items():
        test = claim.primary
        if test.exhibit not in study.study.exhibits or name not in times:
            continue
        shares = []
        for method in dict.fromkeys((test.method, test.other)):
            own = [trained.get((model, method), ("", [])) for model in test.models(study)]
            policies = [(total, seed) for total, seeds in own for seed in seeds]
            there = [one for at in policies if (one := first.get(at)) and one.ended < times[name]]
            if policies:
                shares.append((len(there) / len(policies), there, len(policies)))
        if shares and (least := min(shares, key=lambda share: share[0]))[0]:
            last = max((run for _, there, _ in shares for run in there), key=lambda run: run.ended)
            known = {"since": last.ended, "in": last.run}
            found[name] = {**known, "runs": len(least[1]), "of": least[2]}
    return found
