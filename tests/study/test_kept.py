"""Kept studies of earlier versions are read, and claims keep the sums that they are registered by.

The changes here are made up: a field of today's types stands for one that was renamed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from report_frames import ROOT

from sage.claims.registration import claim_sum, claims_asked, design, read_entries
from sage.claims.tests import kept_claims, load_claims
from sage.exhibits import kept_study, load_study, restore_study
from sage.study import ResolvedStudy, kept
from sage.study.kept import Dropped, Renamed, RenamedKind, first_names, updated
from sage.tools.keep import kept_runs

KEPT = {folder.name: folder for folder in kept_runs()}

REGISTERED = {"bases": 5, "dose": 0, "dose_more": 0, "equal_accuracy": 5, "long": 3}
REGISTERED |= {"long_bases": 2, "looking": 5, "mini": 10, "pretrained": 4, "pretrained_methods": 5}
REGISTERED |= {"pretrained_plain": 3, "pretrained_short": 3, "rivals": 16, "sizes": 9}
REGISTERED |= {"sizes_large": 3, "sizes_rivals": 4, "sizes_runs": 1, "support": 3}
REGISTERED |= {"support_bases": 3, "rates": 3, "distinct": 3, "fitted": 4, "matched": 6}
REGISTERED |= {"second": 3}
"""How many claims of each kept run were registered with the sums that version 1 computes: all."""

NO_MORE = {"overhead"}
"""Claims whose test, the time of a step, is gone; what was registered of them stays in its file."""


@pytest.fixture(scope="module")
def study() -> ResolvedStudy:
    return load_study("smoke", ROOT / "config")


@pytest.fixture(scope="module")
def dump(study: ResolvedStudy) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(study.model_dump_json())
    return content


def after(monkeypatch: pytest.MonkeyPatch, *changes: Any) -> None:
    monkeypatch.setattr(kept, "CHANGES", changes)


@pytest.mark.parametrize("name", REGISTERED)
def test_registered_claims_and_designs_have_their_sums(name: str) -> None:
    last, study = read_entries(KEPT[name] / "registered.json")[-1], kept_study(KEPT[name])
    claims = kept_claims(KEPT[name])
    assert not NO_MORE & {*claims}
    last["claims"] = {claim: e for claim, e in last["claims"].items() if claim not in NO_MORE}
    sums = {claim: claim_sum(claims[claim], study) for claim in last["claims"]}
    assert sums == {claim: entry["sha256"] for claim, entry in last["claims"].items()}
    assert len(sums) == REGISTERED[name]
    now = {"claims": claims_asked(claims, study), **design(study)}
    assert now == {key: last[key] for key in now}


def test_no_kept_run_is_forgotten() -> None:
    assert REGISTERED.keys() == KEPT.keys()


def test_a_dropped_key_is_ignored_at_its_default(
    study: ResolvedStudy, dump: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = json.loads(json.dumps(dump))
    for model in dump["study"]["models"].values():
        model["rl"]["haste"] = 1.0
    with pytest.raises(ValidationError, match="haste"):
        restore_study(updated(dump))
    after(monkeypatch, Dropped("study.models.*.rl.haste", 1))
    assert restore_study(updated(dump)) == study
    dump["study"]["models"]["tiny"]["rl"]["haste"] = 2.0
    with pytest.raises(ValueError, match=r"^study\.models\.tiny\.rl\.haste: 2\.0 cannot be read: "):
        updated(dump)


def test_a_renamed_key_is_translated_and_sums_keep_its_old_name(
    study: ResolvedStudy, dump: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(dump["study"]).replace('"prompts_per_step"', '"prompts"')
    early = {**dump, "study": json.loads(text.replace('"algorithms"', '"recipes"'))}
    early["recipes"] = early.pop("algorithms")
    claim = load_claims(ROOT / "config/claims.yaml")["accuracy_and_coverage"]
    today, asked = claim_sum(claim, study), design(study)
    after(
        monkeypatch,
        Renamed("study.models.*.rl.prompts", "prompts_per_step"),
        Renamed("study.models.*.recipes", "algorithms"),
        Renamed("study.exhibits.*.recipes", "algorithms"),
        Renamed("recipes", "algorithms"),
    )
    restored = updated(early)
    assert restore_study(restored) == study
    assert [*restored["algorithms"]] == [*dump["algorithms"]]  # the order of a grid names methods
    assert claim_sum(claim, study) != today
    before = json.dumps(asked).replace('"prompts_per_step"', '"prompts"')
    assert json.loads(before) == design(study) != asked


def test_claims_are_read_with_the_version_of_their_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_claims(ROOT / "config/claims.yaml")
    early = json.loads(json.dumps({n: c.model_dump(mode="json") for n, c in known.items()}))
    text = yaml.safe_dump(early).replace("other:", "against:")
    (tmp_path / "claims.yaml").write_text(text)
    (tmp_path / "study.json").write_text('{"study": {"claims": "config/claims.yaml"}}')
    after(monkeypatch, Renamed("claims.**.against", "other"))
    assert kept_claims(tmp_path) == known
    (tmp_path / "study.json").write_text(json.dumps({"study": {"claims": yaml.safe_load(text)}}))
    (tmp_path / "claims.yaml").unlink()
    assert kept_claims(tmp_path) == known
    (tmp_path / "study.json").write_text(
        json.dumps({"version": 2, "study": {"claims": yaml.safe_load(text)}})
    )
    with pytest.raises(ValidationError, match="against"):
        kept_claims(tmp_path)


def test_a_kind_is_renamed_or_left_out(
    dump: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    after(
        monkeypatch,
        RenamedKind("study.exhibits.*", "tradeoff"),
        RenamedKind("algorithms.*.advantage", "group", "normalised"),
    )
    read = updated(dump)
    gone = {name for name, one in dump["study"]["exhibits"].items() if one["kind"] == "tradeoff"}
    assert gone
    assert [*read["study"]["exhibits"]] == [n for n in dump["study"]["exhibits"] if n not in gone]
    assert read["algorithms"]["grpo"]["advantage"]["kind"] == "normalised"
    assert first_names(read["algorithms"]["grpo"], "algorithms.*") == dump["algorithms"]["grpo"]


def test_an_unknown_key_is_refused(dump: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="colour"):
        restore_study(updated({**dump, "colour": "blue"}))


def test_a_dump_sees_only_later_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    after(monkeypatch, Renamed("a", "b"), Renamed("c", "a"), Dropped("b", 0))
    assert updated({"a": 0, "c": 1}) == {"a": 1}
    assert updated({"version": 2, "b": 0, "c": 1}) == {"a": 1}
    assert updated({"version": 4, "a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="version 5 is later than 4"):
        updated({"version": 5})
    assert first_names({"a": 1}, "a") == {"a": 1}
