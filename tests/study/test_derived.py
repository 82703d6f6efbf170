"""Methods that say only what differs from another, in config/algorithms.yaml and in a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from method_entries import ROWS, derived
from report_frames import ROOT
from study_edits import ALGORITHMS, edit, message_of

from sage.exhibits import load_study, restore_study
from sage.study import Algorithm, Guide, ResolvedStudy
from sage.study.derived import whole_methods

BRANCH = {"kind": "branch", "settings": {"ratio": 0.3, "threshold": 1.2}, "clamp": [0.6, 1.4]}


def with_own(methods: dict[str, Any], *trained: str, more: tuple[str, ...] = ()) -> ResolvedStudy:
    """The smoke study with methods of its own, of which `tiny` is trained with some."""
    overrides = [f"own_methods={yaml.safe_dump(methods, default_flow_style=True, width=9999)}"]
    overrides += [f"models.tiny.algorithms=[grpo, {', '.join(trained)}]"] if trained else []
    return load_study("smoke", ROOT / "config", [*overrides, *more])


def test_a_guide_brings_the_papers_kl_term_to_a_method_without_one() -> None:
    method = Algorithm.model_validate(derived("pkpo", guide="branch"))
    plain = Algorithm.model_validate(ROWS["pkpo"])
    assert method.model_dump() == plain.model_dump() | {
        "title": "PKPO + Branch",
        "kl": "reverse",
        "estimator": {"kind": "k3", "settings": {}},
        "guide": BRANCH,
    }


@pytest.mark.parametrize(
    ("base", "changes", "title"),
    [
        ("pkpo", {"kl": "reverse"}, "PKPO + KL"),
        ("pkpo", {"kl": "reverse", "estimator": "k3"}, "PKPO + KL"),
        ("pkpo", {"kl": "reverse", "estimator": "k2"}, "PKPO + KL (estimator k2)"),
        ("grpo", {"guide": {"kind": "my_guides:BigStep"}}, "GRPO + BigStep"),
        (
            "grpo",
            {"kl_coefficient": 0.2, "clip_low": None},
            "GRPO (kl_coefficient 0.2, clip_low none)",
        ),
        ("grpo_branch", {"guide": None}, "GRPO + Branch (guide none)"),
        ("grpo", {"title": "Mine", "guide": "token"}, "Mine"),
    ],
)
def test_a_title_says_what_is_changed(base: str, changes: dict[str, Any], title: str) -> None:
    assert derived(base, **changes)["title"] == title


def test_what_is_named_replaces_the_bases_and_the_rest_stays() -> None:
    method = derived("grpo_branch", estimator="k1_reward", kl_coefficient=0.2, title="x")
    assert method == {
        **ROWS["grpo_branch"],
        **{"estimator": "k1_reward", "kl_coefficient": 0.2, "title": "x"},
    }
    assert derived("grpo", guide="branch")["kl"] == "reverse"
    assert derived("grpo_forward_kl", estimator="exact")["kl"] == "forward"


@pytest.mark.parametrize("kind", Guide.alone)
def test_a_guide_by_its_name_alone_has_the_papers_settings(kind: str) -> None:
    paper = Algorithm.model_validate(ROWS[f"grpo_{kind}"])  # as METHOD's table has them
    assert Algorithm.model_validate(derived("grpo", guide=kind)).guide == paper.guide
    assert paper.guide
    defaults = Guide.family.settings(kind)()
    assert Guide.family.settings(kind)(**paper.guide.settings) == defaults


def test_a_study_trains_methods_of_its_own() -> None:
    own = {"pkpo_branch": {"base": "pkpo", "guide": "branch"}, "mild": {"base": "pkpo_branch"}}
    own["mild"] |= {"guide": {"kind": "branch", "settings": {"ratio": 0.1, "threshold": 1.2}}}
    study = with_own(own, "pkpo_branch", "mild")
    assert study.trained("tiny")[:3] == ["grpo", "pkpo_branch", "mild"]
    assert study.algorithms["pkpo_branch"].title == "PKPO + Branch"
    mild = study.algorithms["mild"]
    assert (mild.title, mild.advantage.kind) == ("PKPO + Branch + Branch", "pkpo")
    assert restore_study(study.model_dump(mode="json")) == study
    assert study.seen_by().study.own_methods == {}
    assert {"pkpo_branch", "mild"} < study.seen_by().algorithms.keys()


def test_a_study_that_extends_another_changes_its_methods(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(
        "extends: smoke.yaml\nown_methods: {mine: {base: pkpo, guide: branch}}\n"
        "models: {tiny: {algorithms: [grpo, mine]}}\n"
    )
    second = tmp_path / "second.yaml"
    second.write_text("extends: first.yaml\nown_methods: {mine: {guide: token}}\n")
    method = load_study(str(second), ROOT / "config").algorithms["mine"]
    assert (method.title, method.advantage.kind) == ("PKPO + Token", "pkpo")


def test_a_variant_can_be_made_of_a_studys_own_method() -> None:
    varied = ("exhibits.table6.algorithm=mine",)
    study = with_own({"mine": {"base": "pkpo", "guide": "branch"}}, more=varied)
    assert study.variants == ["mine-threshold0.8-ratio0.3"]
    assert study.methods_of("table6") == ["mine-threshold0.8-ratio0.3", "mine"]


def test_a_reading_switches_a_studys_own_method_too() -> None:
    own = {"mine": {"base": "grpo", "guide": "branch"}}
    switched = with_own(own, "mine", more=("open_choices={kl_estimator: k3_corrected}",))
    method = switched.algorithms["mine"]
    assert (str(method.estimator), method.guide) == ("k3_corrected", Guide(**BRANCH))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {"a": {"base": "pkpoo"}},
            "own_methods.a.base: 'pkpoo' is no method; did you mean 'pkpo'?",
        ),
        ({"a": {"base": ["pkpo"]}}, "own_methods.a.base: ['pkpo'] is no method; did you mean"),
        (
            {"a": {"base": "b"}, "b": {"base": "a"}},
            "own_methods.b.base: a circle, which must be broken: a takes over b takes over a",
        ),
        ({"a": {"base": "pkpo", "k": 3}}, "own_methods.a.k: unknown key"),
        (
            {"a": {"base": "pkpo", "guide": "brunch"}},
            "own_methods.a.guide: 'brunch' is not a guide",
        ),
        ({"a": {"title": "A"}}, "own_methods.a.loss: missing"),
        ({"grpo": {"base": "pkpo"}}, "algorithms.yaml has a method of this name; choose another"),
        (
            {"base": {"base": "pkpo"}},
            "own_methods.base: this name is kept for the policy before RL",
        ),
        ({"a": 3}, "own_methods.a: must be a mapping of keys to values, not 3"),
    ],
)
def test_what_cannot_be_a_method_is_named(methods: dict[str, Any], message: str) -> None:
    assert message in message_of(lambda: with_own(methods))


def test_an_unknown_method_is_looked_for_among_the_studys_own() -> None:
    said = message_of(lambda: with_own({"mine": {"base": "pkpo"}}, "mien"))
    assert "'mien' is not a method of " in said
    assert "or of own_methods; did you mean 'mine'?" in said


def test_the_fault_of_a_base_is_told_once(config: Path) -> None:
    edit(config / ALGORITHMS, "grpo.loss", "grop")
    said = message_of(lambda: load_study("smoke", config))
    assert said.count("'grop' is not allowed") == 1
    assert "algorithms.yaml: 1 fault\n  grpo.loss: " in said


def test_entries_do_not_share_what_they_took_over() -> None:
    entries, _ = whole_methods({"a": {"guide": {"settings": {}}}, "b": {"base": "a"}})
    entries["b"]["guide"]["settings"]["ratio"] = 1.0
    assert entries["a"] == {"guide": {"settings": {}}}
