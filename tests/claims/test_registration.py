"""What a study asks is written down once, and what comes later is called exploratory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import MANIFEST, a_page_with_claims, with_a_case
from report_frames import ROOT, a_study, changed

from sage.claims.known import Earlier, add, earlier_of, kept_earlier, trained_earlier
from sage.claims.registration import (
    Registration,
    claim_sum,
    committed,
    design,
    read_entries,
    register,
    registration,
    summary,
)
from sage.claims.tests import Claim, load_claims
from sage.exhibits import load_study
from sage.runtime.faults import Damaged
from sage.study import ResolvedStudy
from sage.tools import keep

CLAIMS = load_claims(ROOT / "config/claims.yaml")
NOWHERE = Path("nowhere.json")
NAME = "accuracy_and_coverage"


@pytest.fixture(scope="module")
def study() -> ResolvedStudy:
    return load_study("smoke", ROOT / "config")


def with_margin(margin: float) -> dict[str, Claim]:
    """All claims, one with another margin."""
    claim = CLAIMS[NAME]
    primary = claim.primary.model_copy(update={"margin": margin})
    return CLAIMS | {NAME: claim.model_copy(update={"primary": primary})}


def asked_of(file: Path, claims: dict[str, Claim], study: ResolvedStudy) -> tuple[bool, str]:
    """Whether the claim was registered before training that began when the first entry was new."""
    return Registration(read_entries(file)).of_claim(NAME, claim_sum(claims[NAME], study))


def test_a_claim_edited_after_training_is_exploratory(study: ResolvedStudy, tmp_path: Path) -> None:
    file = tmp_path / "registered.json"
    register(study, CLAIMS, file, NOWHERE)
    first = read_entries(file)
    assert (first[0]["trained"], first[0]["sampled"]) == (0, 0)
    assert asked_of(file, CLAIMS, study)[0]
    (tmp_path / "models/tiny/grpo/seed1").mkdir(parents=True)
    edited = with_margin(0.5)
    register(study, edited, file, NOWHERE)
    entries = read_entries(file)
    assert entries[:1] == first  # the first one stands
    assert entries[1]["trained"] == 1
    early, said = asked_of(file, edited, study)
    assert not early
    assert said.startswith("Changed after training began (")
    assert asked_of(file, CLAIMS, study)[0]  # as it was written first
    for name in {*first[0]["claims"]} - {NAME}:
        assert Registration(entries).of_claim(name, claim_sum(edited[name], study))[0]


def test_a_claim_written_after_training_is_exploratory(
    study: ResolvedStudy, tmp_path: Path
) -> None:
    file = tmp_path / "registered.json"
    register(study, {name: claim for name, claim in CLAIMS.items() if name != NAME}, file, NOWHERE)
    assert asked_of(file, CLAIMS, study) == (False, "Not registered: exploratory.")
    (tmp_path / "scratch/tiny/grpo/seed1").mkdir(parents=True)  # a run of RL that has not ended
    register(study, CLAIMS, file, NOWHERE)
    assert asked_of(file, CLAIMS, study)[1].startswith("Written after training began (")


def test_nothing_is_added_where_nothing_changed(study: ResolvedStudy, tmp_path: Path) -> None:
    file = tmp_path / "registered.json"
    register(study, CLAIMS, file, NOWHERE)
    before = file.read_bytes()
    renamed = {name: m.model_copy(update={"title": "T"}) for name, m in study.study.models.items()}
    register(changed(study, title="Another", models=renamed), CLAIMS, file, NOWHERE)
    assert file.read_bytes() == before


def test_a_registration_in_git_counts_until_the_study_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "question/mine"
    folder.mkdir(parents=True)
    assert committed("mine", tmp_path) is None
    (folder / "registered.json").write_text("[]")
    assert committed("mine", tmp_path) == folder / "registered.json"
    (folder / "run.json").write_text("{}")
    assert committed("mine", tmp_path) is None


def trained_in(folder: Path, study: ResolvedStudy, methods: list[str]) -> list[Earlier]:
    """What is known from a folder of results in which these methods of the study were trained."""
    register(study, CLAIMS, folder / "registered.json", None)
    for run in [run for run in study.trained_runs("tiny") if run.algorithm in methods]:
        policy = folder / "models" / run.model / run.algorithm / f"seed{run.seed}"
        policy.mkdir(parents=True)
        (policy / "manifest.json").write_text('{"ended": "2026-11-25T20:07:26+00:00"}')
    return trained_earlier([folder, folder / "none"])


@pytest.mark.parametrize(
    ("trained", "label"),
    [
        (["grpo", "grpo_branch"], "exploratory, counts known since 2026-11-25"),
        (["grpo"], "registered"),  # the contrast needs both
        ([], "registered"),
    ],
)
def test_a_fresh_folder_knows_what_was_trained_elsewhere(
    study: ResolvedStudy, tmp_path: Path, trained: list[str], label: str
) -> None:
    earlier = trained_in(tmp_path / "first", study, trained)
    file, content = tmp_path / "fresh/registered.json", claim_sum(CLAIMS[NAME], study)
    register(study, CLAIMS, file, None, earlier)
    (entry,) = read_entries(file)
    assert entry["trained"] == 0
    asked = Registration([entry])
    assert asked.label(NAME, content) == label
    assert asked.of_claim(NAME, content)[0] == (label == "registered")
    assert (NAME in entry["known"]) == (label != "registered")
    said = f"{NAME}: counts known since 2026-11-25, in {tmp_path}/first"
    assert (said in summary(file)) == (label != "registered")


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({}, "exploratory, counts known since 2026-11-25"),
        ({"seeds": [3407, 2]}, "exploratory, counts known since 2026-11-25"),  # half was known
        ({"seeds": [3407, 2, 3]}, "registered"),
        ({"seeds": [7]}, "registered"),
    ],
)
def test_new_seeds_make_a_claim_new(
    study: ResolvedStudy, tmp_path: Path, change: dict[str, list[int]], label: str
) -> None:
    add(tmp_path, earlier_of(design(study), "reports/q/smoke", "2026-11-25T20:07:26+00:00"))
    other, file = changed(study, **change), tmp_path / "registered.json"
    register(other, CLAIMS, file, None, kept_earlier(tmp_path))
    assert Registration(read_entries(file)).label(NAME, claim_sum(CLAIMS[NAME], other)) == label


def test_a_claim_that_was_registered_before_its_kept_run_stays_registered(
    study: ResolvedStudy, tmp_path: Path
) -> None:
    register(study, CLAIMS, tmp_path / "kept.json", None)
    (entry,) = read_entries(tmp_path / "kept.json")
    kept = [entry | {"time": "2026-11-25T10:00:00+00:00"}]
    earlier, file = trained_in(tmp_path / "a", study, ["grpo", "grpo_branch"]), tmp_path / "b.json"
    register(study, CLAIMS, file, None, earlier, kept)
    asked = Registration(read_entries(file))
    assert asked.label(NAME, claim_sum(CLAIMS[NAME], study)) == "registered"


def test_kept_runs_say_since_when_their_counts_were_known() -> None:
    reports = ROOT / "reports"
    assert set(keep.labels(reports / "mini/mini").values()) == {
        "exploratory, counts known since 2026-11-25"
    }
    assert set(keep.labels(reports / "bases/bases").values()) == {"registered"}
    runs = kept_earlier(reports)
    assert [one for one in map(keep.run_of, keep.kept_runs()) if one not in runs] == []


@pytest.mark.parametrize("what", ["seeds", "problems", "samples", "learning rate", "algorithm"])
def test_a_change_of_what_decides_a_claim_is_another_claim(study: ResolvedStudy, what: str) -> None:
    tiny, problems = study.study.models["tiny"], study.study.problems
    rate = tiny.rl.model_copy(update={"learning_rate": 2.0 * tiny.rl.learning_rate})
    other = {
        "seeds": lambda: changed(study, seeds=[1, 2]),
        "problems": lambda: changed(
            study, problems=problems | {"harder": problems["harder"].model_copy(update={"seed": 9})}
        ),
        "samples": lambda: changed(
            study, evaluation=study.study.evaluation.model_copy(update={"samples": 8})
        ),
        "learning rate": lambda: changed(
            study, models=study.study.models | {"tiny": tiny.model_copy(update={"rl": rate})}
        ),
        "algorithm": lambda: changed(study, {"grpo": study.algorithms["grpo_random"]}),
    }[what]()
    assert claim_sum(CLAIMS[NAME], other) != claim_sum(CLAIMS[NAME], study)
    assert design(other) != design(study)


def test_more_runs_of_a_method_that_is_not_compared_leave_a_claim(study: ResolvedStudy) -> None:
    tiny = study.study.models["tiny"].model_copy(update={"seeds": {"grpo_random": [1, 2]}})
    other = changed(study, models=study.study.models | {"tiny": tiny})
    assert claim_sum(CLAIMS[NAME], other) == claim_sum(CLAIMS[NAME], study)
    assert design(other) != design(study)


def test_methods_seeds_and_k_are_registered_where_a_study_has_no_claim(tmp_path: Path) -> None:
    rivals = load_study("rivals", ROOT / "config")
    file = tmp_path / "registered.json"
    register(rivals, CLAIMS, file, NOWHERE)
    (entry,) = read_entries(file)
    assert entry["claims"] == {}
    (model,) = entry["models"].values()
    assert {row: method["seeds"] for row, method in model["methods"].items() if row != "base"} == {
        row: rivals.seeds("sums", row) for row in rivals.trained("sums")
    }
    assert model["primary_k"] > 1
    before = registration([entry], [])
    assert before.of_study(rivals).startswith(
        "Methods, training seeds, primary k and problems were registered before training ("
    )
    assert before.of_study(changed(rivals, seeds=[1])).endswith("are not registered.")


def test_the_time_of_an_entry_is_held_against_the_first_run(study: ResolvedStudy) -> None:
    content = claim_sum(CLAIMS[NAME], study)
    entry = {"time": "2026-11-24T10:00:00+00:00", "commit": "0123456789abcdef", "trained": 0}
    entry |= {"claims": {NAME: {"sha256": content}}}
    runs = ["2026-11-24T10:05:00+00:00", "2026-11-24T09:59:00+00:00"]
    assert registration([entry], runs[:1]).of_claim(NAME, content) == (
        True,
        "Registered before training (2026-11-24 10:00 UTC, commit 0123456789).",
    )
    assert not registration([entry], runs).of_claim(NAME, content)[0]


def test_a_committed_registration_comes_first(study: ResolvedStudy, tmp_path: Path) -> None:
    committed, file = tmp_path / "committed.json", tmp_path / "results/registered.json"
    register(study, CLAIMS, committed, NOWHERE)
    first = read_entries(committed)
    first[0]["commit"] = "of the commit"
    committed.write_text(json.dumps(first))
    register(study, CLAIMS, file, committed)
    assert read_entries(file) == first
    register(study, with_margin(0.5), file, committed)
    assert [entry["commit"] == "of the commit" for entry in read_entries(file)] == [True, False]


@pytest.mark.parametrize("text", ["{", "[1]", '[{"time": ""}]'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "registered.json"
    file.write_text(text)
    with pytest.raises(Damaged, match=r"registered\.json: not a registration .* put back") as error:
        read_entries(file)
    assert "delete" not in str(error.value)  # without it claims are exploratory


def test_an_exploratory_claim_does_not_open_the_page(tmp_path: Path) -> None:
    study = with_a_case(a_study())
    register(study, CLAIMS, tmp_path / "registered.json", NOWHERE)
    entries = read_entries(tmp_path / "registered.json")
    began = entries[0] | {"time": MANIFEST["started"]}
    late = {**entries[0]["claims"], NAME: entries[0]["claims"][NAME] | {"sha256": "another"}}
    page = a_page_with_claims(study, tmp_path, registered=[began | {"claims": late}])
    opening = page[page.index('<div id="findings"') : page.index('<section id="claims">')]
    assert CLAIMS["gains_of_grpo"].claim in opening
    assert f"claim-{NAME}" not in opening
    assert " exploratory." in page
    assert ", exploratory</span>" in page
    assert "Not registered: exploratory." in page
