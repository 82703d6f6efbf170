"""What a study asks, written down before it is trained: `registered.json` of its results.

Before a run it may be in git, in `reports/{question}/{study}/registered.json`; while the study
runs, it is beside its results and begins with the entries of that file; after it `sage-rlvr keep`
puts it beside what was found.

The file is a list, with which each run of the workflow begins, before any job. A study or a claim
that changes adds an entry; none is ever changed or removed. A claim that was written or changed
after training began is exploratory, and so is one where most policies of its contrast were known
before, from another run (`sage.claims.known`): an entry says which, under `known`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sage.claims.known import Earlier, known_of
from sage.claims.tests import Claim
from sage.runtime.faults import Damaged
from sage.runtime.files import write_json_atomic
from sage.runtime.manifest import git_commit, settings_sum, stamp
from sage.study import BASE, ResolvedStudy
from sage.study.kept import first_names
from sage.study.models import UNCOUNTED

Entry = dict[str, Any]


def register(
    study: ResolvedStudy,
    claims: Mapping[str, Claim],
    file: Path,
    committed: Path | None,
    earlier: Sequence[Earlier] = (),
    kept: Sequence[Entry] = (),
) -> None:
    """Add what the study asks now to `file`, beside its results, unless the last entry says it.

    A `file` that does not exist begins with the entries of `committed`, if there is one. `earlier`
    are runs that may have trained the same, and `kept` the entries of a kept run of the study: a
    claim that is there was written down then. Raises Damaged for files that were not written here.
    """
    known = next((one for one in (file, committed) if one and one.is_file()), None)
    entries = read_entries(known) if known else []
    asked = {"claims": claims_asked(claims, study), **design(study)}
    last = entries[-1] if entries else {}
    if any(last.get(key) != value for key, value in asked.items()):
        there: Entry = {"trained": _count(file.parent, "models/*/*/seed*", "scratch/*/*/seed*")}
        there["sampled"] = _count(file.parent, "samples/*/*/*/[!.]*.parquet")
        now = stamp(time.time())
        times = {
            name: min((e["time"] for e in kept if _sum_in(e, name) == one["sha256"]), default=now)
            for name, one in asked["claims"].items()
        }
        there["known"] = known_of(claims, study, asked, earlier, times)
        entries.append({"time": now, "commit": git_commit(), **there, **asked})
    elif known == file:
        return
    write_json_atomic(file, entries)


def committed(study: str, reports: Path, kept: bool = False) -> Path | None:
    """The registration in `reports` of a study that was not run yet, or of its `kept` run."""
    files = sorted(reports.glob(f"*/{study}/registered.json"))
    return next((file for file in files if (file.parent / "run.json").exists() == kept), None)


def read_entries(file: Path) -> list[Entry]:
    """The entries of a registration, the oldest first. Raises Damaged for any other file."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        if not all({"time", "commit", "trained", "claims"} <= entry.keys() for entry in entries):
            raise ValueError("an entry without time, commit, trained or claims")
    except (ValueError, AttributeError, TypeError) as error:
        raise Damaged(
            file,
            f"not a registration ({error})",
            way_out="put back a copy of it, from an archive or a backup of the study or from git; "
            "where none is left, move the file away: claims count as exploratory then",
        ) from error
    return list(entries)


def summary(file: Path) -> str:
    """The entries of a registration as text, a line each."""
    lines = [
        f"{_said(one)}: {len(one['claims'])} claims, {len(one['models'])} models, "
        f"{one['trained']} trained policies and {one['sampled']} files of samples then"
        f"{''.join(f'; {name}: {_known_said(known)}' for name, known in _known(one).items())}"
        for one in read_entries(file)
    ]
    return "\n".join([*lines, str(file)])


def design(study: ResolvedStudy) -> Entry:
    """The models with their methods, seeds and primary k, and the problem sets, as plain data."""
    return {
        "models": {name: _of_model(study, name) for name in study.study.models},
        "problems": {name: _of_problems(study, name) for name in study.problem_sets()},
        "bases": study.study.bases,
    }


def claims_asked(claims: Mapping[str, Claim], study: ResolvedStudy) -> dict[str, Entry]:
    """The claims that the study has an exhibit for, in words, each with its `claim_sum`."""
    return {
        name: {
            "claim": claim.claim,
            "test": _test(claim.primary.model_dump(mode="json", exclude_none=True)),
            "measures": claim.primary.subject(study),
            "sha256": claim_sum(claim, study),
        }
        for name, claim in claims.items()
        if claim.primary.exhibit in study.study.exhibits
    }


def claim_sum(claim: Claim, study: ResolvedStudy) -> str:
    """The SHA-256 of a claim, its margin and k, and all settings that its numbers depend on.

    These are the model's, the compared methods' with their seeds, and the problem sets'. Settings
    that have their default do not count, so that a new one changes no sum.
    """
    tests = [claim.primary, *claim.secondary]
    here = [test for test in tests if test.exhibit in study.study.exhibits]
    models: dict[str, Entry] = {}
    problems: set[str] = set()
    for test in here:
        for model in study.bases(study.study.exhibits[test.exhibit].model)[1]:
            known = _of_model(study, model)
            methods = models.setdefault(model, {**known, "methods": {}})["methods"]
            methods |= {
                method: known["methods"].get(method) for method in (test.method, test.other)
            }
            rl = study.model(model).rl
            problems |= {*([rl.problems] if rl else []), *study.benchmarks_of(test.exhibit)}
        problems |= {*(getattr(test, "benchmarks", None) or ())}
    return settings_sum(
        {
            "tests": [_test(one.model_dump(mode="json", exclude_defaults=True)) for one in tests],
            "measures": [test.subject(study) for test in here],
            "claim": claim.claim,
            "models": models,
            "problems": {name: _of_problems(study, name) for name in sorted(problems)},
        }
    )


@dataclass(frozen=True)
class Registration:
    """The entries of a study's registration, and when its first run of RL began (None: none did).

    A time is ISO 8601 in UTC, as manifests have it.
    """

    entries: Sequence[Entry] = ()
    began: str | None = None

    def of_claim(self, name: str, content: str) -> tuple[bool, str]:
        """Whether the claim with the sum `content` was registered before training, in words too."""
        same = [one for one in self.entries if _sum_in(one, name) == content]
        if early := [one for one in same if self._before(one)]:
            said = f"Registered before training ({_said(early[0])})"
            if not (known := _known(early[0]).get(name)):
                return True, f"{said}."
            late = _mostly(known)
            return not late, f"{said}; {_known_said(known)}{': exploratory' if late else ''}."
        if not same:
            return False, "Not registered: exploratory."
        known = any(_sum_in(one, name) for one in self.entries if self._before(one))
        what = "Changed" if known else "Written"
        return False, f"{what} after training began ({_said(same[0])}): exploratory."

    def label(self, name: str, content: str) -> str:
        """`registered`, or `exploratory`, with the day since when its counts were known."""
        early, _ = self.of_claim(name, content)
        entries = [one for one in self.entries if _sum_in(one, name) == content]
        known = _known(entries[0]).get(name) if entries and self._before(entries[0]) else None
        since = f", counts known since {known['since'][:10]}" if known and not early else ""
        return f"{'registered' if early else 'exploratory'}{since}"

    def of_study(self, study: ResolvedStudy) -> str:
        """Whether methods, seeds, k and problems were registered before training."""
        now, what = design(study), "Methods, training seeds, primary k and problems"
        same = [one for one in self.entries if {key: one.get(key) for key in now} == now]
        if not same:
            return f"{what} are not registered."
        early = [one for one in same if self._before(one)]
        when = "before training" if early else "after training began"
        return f"{what} were registered {when} ({_said((early or same)[0])})."

    def _before(self, entry: Entry) -> bool:
        early = self.began is None or str(entry["time"]) <= self.began
        return early and not entry["trained"]


def registration(entries: Sequence[Entry], started: Iterable[str]) -> Registration:
    """The registration of a study whose runs of RL began at the times `started`."""
    return Registration(entries, min(started, default=None))


def _known(entry: Entry) -> Entry:
    """What was known of its claims, by claim."""
    known: Entry = entry.get("known", {})
    return known


def _mostly(known: Entry) -> bool:
    return 2 * int(known["runs"]) >= int(known["of"])


def _known_said(known: Entry) -> str:
    which = "" if known["runs"] == known["of"] else f" of {known['runs']} of {known['of']} runs"
    return f"counts{which} known since {known['since'][:10]}, in {known['in']}"


def _sum_in(entry: Entry, claim: str) -> str | None:
    return entry["claims"].get(claim, {}).get("sha256")


def _said(entry: Entry) -> str:
    commit, plus, state = str(entry["commit"]).partition("+")
    when = str(entry["time"])[:16].replace("T", " ")
    return f"{when} UTC, commit {commit[:10]}{plus}{state}"


def _test(dump: Entry) -> Entry:
    return first_names(dump, "claims.*.primary")


def _of_model(study: ResolvedStudy, name: str) -> Entry:
    model = study.model(name)
    methods = {
        method: {
            "seeds": study.seeds(name, method),
            **_settings(study.algorithms[method], "algorithms.*"),
        }
        for method in study.trained(name)
    }
    evaluation = study.evaluation(name)
    own = {"algorithms", "benchmarks", "evaluation", "job", "seeds"}
    return {
        "settings": _settings(model, "study.models.*", exclude=own),
        "evaluation": first_names(evaluation.decisive(), "study.evaluation"),
        "primary_k": evaluation.primary_k,
        "methods": {BASE: {}, **methods},
    }


def _of_problems(study: ResolvedStudy, name: str) -> Entry:
    settings = study.study.problems[name]
    entry = study.benchmarks.get(getattr(settings, "benchmark", ""))
    known = {"entry": _settings(entry, "benchmarks.*")} if entry else {}
    return {**_settings(settings, "study.problems.*"), **known}


def _settings(part: BaseModel, place: str, exclude: set[str] | None = None) -> Entry:
    """Settings that are not the default and change results, under the names of version 1."""
    dump = part.model_dump(mode="json", exclude_defaults=True, exclude=exclude)
    return first_names(_counted(dump), place)


def _counted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _counted(one) for key, one in value.items() if key not in UNCOUNTED}
    return value


def _count(folder: Path, *patterns: str) -> int:
    return sum(1 for pattern in patterns for _ in folder.glob(pattern))
