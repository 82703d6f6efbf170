"""Values of a study that are set on the command line: where they go, and that they are named."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from conftest import ROOT

from sage.exhibits import load_study
from sage.report.provenance import study_facts
from sage.study import ResolvedStudy, load_settings
from sage.study.reading import name_of

CONFIG = ROOT / "config"


def smoke(*overrides: str) -> ResolvedStudy:
    return load_study("smoke", CONFIG, overrides)


def test_a_section_of_models_is_about_all_of_them_and_a_path_about_one() -> None:
    models = smoke("rl.steps=10", "models.tiny_long.rl.steps=11").study.models
    assert {name: model.rl.steps for name, model in models.items()} == {
        "tiny": 10,
        "tiny_long": 11,
        "tiny_full": 10,
    }


def test_a_section_is_not_made_where_a_model_has_none() -> None:
    plain, changed = smoke(), smoke("sft.epochs=7")
    for name, model in plain.study.models.items():
        sft = changed.model(name).sft
        assert (sft is None) == (model.sft is None)
        assert sft is None or sft.epochs == 7


def test_values_are_yaml_and_null_keeps_its_meaning() -> None:
    study = smoke("seeds=[1, 2]", "rl.lora=null", "rl.sampling.temperature=0.5")
    model = study.model("tiny")
    assert (study.study.seeds, model.rl.lora, model.rl.sampling.temperature) == ([1, 2], None, 0.5)
    assert smoke("evaluation.samples=8").study.evaluation.samples == 8
    assert smoke("algorithms=[grpo]").model("tiny").algorithms == ["grpo"]


def test_results_are_elsewhere_and_the_study_says_what_was_set() -> None:
    study = smoke("rl.steps=10", "seeds=[1, 2]")
    assert study.name == "smoke-rl.steps-10-seeds-1-2"
    assert ("Set on the command line", "rl.steps=10, seeds=[1, 2]") in study_facts(study)
    assert next(term for term, _ in study_facts(smoke())) == "Models"
    long = smoke(*["rl.steps=10"] * 12).name
    assert len(long) < 100
    assert long != smoke(*["rl.steps=10"] * 13).name


def test_the_option_of_a_study_gives_the_same_study_again() -> None:
    study = smoke("rl.steps=10", "seeds=[1, 2]")
    name, given = shlex.split(study.option)
    settings = load_settings({"study": name, "set": json.loads(given.removeprefix("set="))})
    assert load_study(settings.study, CONFIG, settings.set) == study


@pytest.mark.parametrize("given", ["rl.steps=10", ["rl.steps=10"], {"rl.steps": 10}])
def test_what_is_set_can_be_written_in_three_ways(given: object) -> None:
    assert load_settings({"study": "smoke", "set": given}).set == ["rl.steps=10"]


def test_other_settings_have_another_folder() -> None:
    """A sign, an exponent's plus or a letter of another alphabet is not part of a folder's name."""
    pairs = [
        ("grid.ratio=[0.3]", "grid.ratio=[-0.3]"),
        ("rl.learning_rate=1.0e-3", "rl.learning_rate=1.0e+3"),
        ("problems.p.file=ä.csv", "problems.p.file=ö.csv"),
    ]
    for one, other in pairs:
        assert name_of("mini", [one]) != name_of("mini", [other])
    assert name_of("mini", ["rl.steps=10"]) == "mini-rl.steps-10"
    assert name_of("mini", ["rl.learning_rate=1.0e-3"]) == "mini-rl.learning_rate-1.0e-3"


def test_a_path_that_is_set_begins_at_the_studys_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    text = (CONFIG / "studies/smoke.yaml").read_text(encoding="utf-8")
    own = "problems:\n  own: {source: file, title: Own, file: first.csv}\n"
    (folder / "mine.yaml").write_text(text.replace("problems:\n", own, 1), encoding="utf-8")
    (folder / "second.csv").write_text("problem,answer\na,1\n")
    study = load_study(str(folder / "mine.yaml"), CONFIG, ["problems.own.file=second.csv"])
    assert Path(study.study.problems["own"].file).resolve() == folder / "second.csv"


def test_results_may_be_in_ones_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load_settings({"study": "smoke", "results": "~/rlvr"}).results == "/home/me/rlvr"
