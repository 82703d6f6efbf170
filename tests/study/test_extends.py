"""Studies that build on one another: merging, messages about mistakes, what editors know."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from conftest import ROOT, copy_project, snakemake_in
from study_edits import FOLLOW_UPS, STUDIES, edit, message_of

from sage.exhibits import load_study
from sage.rendering.markup import yaml_text
from sage.study import ResolvedStudy
from sage.study.written import lineage, name_of_study, read_study

CONFIG = ROOT / "config"


def write(config: Path, name: str, text: str) -> Path:
    """A study beside the others, from indented YAML."""
    file = config / f"studies/{name}.yaml"
    file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return file


def line_of(file: Path, text: str) -> int:
    """The number of the first line of a file that holds `text`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def dumped(study: ResolvedStudy) -> dict[str, Any]:
    return study.study.model_dump(mode="json")


def test_a_study_changes_what_it_names_and_keeps_the_rest(config: Path) -> None:
    text = """
        extends: smoke.yaml
        title: Mine
        models:
          tiny: {rl: {steps: 6}}
        evaluation: {seeds: [5]}
    """
    write(config, "mine", text)
    expected = dumped(load_study("smoke", config))
    expected["title"] = "Mine"
    expected["models"]["tiny"]["rl"]["steps"] = 6
    expected["evaluation"]["seeds"] = [5]  # a list takes the place of a list
    mine = load_study("mine", config)
    assert dumped(mine) == expected
    assert mine.name == "mine"


def test_inherited_exhibits_show_what_the_child_trains(config: Path) -> None:
    text = """
        extends: mini.yaml
        models:
          sums: {algorithms: [grpo, grpo_no_kl, pkpo], seeds: null}
        exhibits:
          figure4: {algorithms: [grpo, grpo_branch]}
    """
    write(config, "mine", text)
    shown = load_study("mine", config).study.exhibits
    ours = {name: getattr(each, "algorithms", None) for name, each in shown.items()}
    assert ours["figure2"] == ["grpo", "grpo_no_kl"]  # both are trained
    assert ours["table5"] == ["grpo", "grpo_no_kl"]  # grpo_branch is not
    assert "figure3" not in shown  # of theirs only grpo is trained
    assert ours["figure4"] == ["grpo", "grpo_branch"]  # the child says so
    assert ours["table3"] == ["bnpo_no_kl", "bnpo_branch", "dapo_no_kl", "dapo_branch"]  # routes


def test_null_takes_a_key_out_and_a_default_takes_its_place(config: Path) -> None:
    text = """
        extends: smoke
        exhibits: {table4: null}
        models: {tiny_long: null, tiny: {seeds: {grpo: null}}}
        evaluation: {bootstrap: null}
    """
    write(config, "mine", text)
    edit(config / "studies/smoke.yaml", "models.tiny.seeds", {"grpo": [7], "grpo_no_kl": [7]})
    edit(config / "studies/smoke.yaml", "seeds", [7])
    mine = load_study("mine", config).study
    assert set(mine.models) == {"tiny", "tiny_full"}
    assert "table4" not in mine.exhibits
    assert mine.models["tiny"].seeds == {"grpo_no_kl": [7]}
    assert mine.evaluation.bootstrap == 10_000


def test_others_takes_out_all_that_is_not_named(config: Path) -> None:
    text = """
        extends: smoke
        models: {tiny: {}, others: null}
        exhibits:
          others: null
          new: {kind: training, title: New, model: tiny}
          table1: {title: Mine}
    """
    write(config, "mine", text)
    mine, smoke = (load_study(name, config).study for name in ("mine", "smoke"))
    assert {*mine.models} == {"tiny"}
    assert [*mine.exhibits] == ["new", "table1"]
    assert mine.exhibits["table1"] == smoke.exhibits["table1"].model_copy(update={"title": "Mine"})
    assert [*mine.problems] == [*smoke.problems]


def test_null_stays_where_it_is_a_value(config: Path) -> None:
    write(config, "mine", "extends: smoke\nmodels: {tiny: {rl: {lora: null}}}\n")
    assert load_study("mine", config).model("tiny").rl.lora is None


def test_a_key_that_must_be_there_cannot_be_taken_out(config: Path) -> None:
    mine = write(config, "mine", "extends: smoke\nmodels:\n  tiny:\n    rl: {steps: null}\n")
    message = message_of(lambda: load_study("mine", config))
    assert f"{mine}: 1 fault\n  models.tiny.rl.steps: missing (line 4)" in message


def test_studies_form_a_chain(config: Path) -> None:
    write(config, "middle", "extends: smoke\nseeds: [5]\nevaluation: {samples: 8}\n")
    write(config, "last", "extends: middle\nevaluation: {samples: 6}\n")
    last = load_study("last", config).study
    assert (last.seeds, last.evaluation.samples, last.title) == ([5], 6, "Smoke study")


def test_a_study_elsewhere_extends_by_path_and_by_name(config: Path, tmp_path: Path) -> None:
    for extended in ("smoke", "smoke.yaml", "config/studies/smoke.yaml"):
        mine = tmp_path / "mine.yaml"
        mine.write_text(f"extends: {extended}\nseeds: [4]\n")
        assert load_study(str(mine), config).study.seeds == [4]
    (tmp_path / "smoke.yaml").write_text("extends: smoke\nseeds: [9]\n")
    mine.write_text("extends: smoke.yaml\n")  # the file beside it goes before the committed one
    assert load_study(str(mine), config).study.seeds == [9]


def test_classes_beside_an_extended_study_are_found_from_another_folder(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    guide = (ROOT / "reports/alignment/mirror.py").read_text(encoding="utf-8")
    (tmp_path / "mirror_of_parent.py").write_text(guide)
    method = "{base: grpo_k1_reward, title: Own, guide: {kind: 'mirror_of_parent:MirrorGuide'}}"
    (tmp_path / "parent.yaml").write_text(f"extends: smoke\nown_methods:\n  own: {method}\n")
    (tmp_path / "below").mkdir()
    child = tmp_path / "below/child.yaml"
    child.write_text("extends: ../parent.yaml\n")
    assert load_study(str(child), config).study.own_methods["own"].guide


def test_a_new_exhibit_stands_beside_the_keys_it_is_written_beside(config: Path) -> None:
    new = "{kind: training, title: New, model: tiny}"
    text = f"""
        extends: smoke
        exhibits:
          first: {new}
          tradeoff: {{title: Both}}
          second: {new}
          table1: null
          third: {new}
    """
    write(config, "mine", text)
    names = list(load_study("mine", config).study.exhibits)
    assert names[:5] == ["first", "tradeoff", "second", "methods", "third"]


def test_a_model_extends_one_that_the_study_takes_out(config: Path) -> None:
    text = """
        extends: smoke
        models:
          tiny_long: {base: {model: second}}
          tiny_full: {base: {model: second}}
          second: {extends: tiny, base: {pretraining: {seed: 12}}}
          third: {extends: second, title: Third}
    """
    write(config, "mine", text)
    mine, smoke = load_study("mine", config).study, load_study("smoke", config).study
    expected = smoke.models["tiny"].model_dump()
    expected["base"]["pretraining"]["seed"] = 12
    assert mine.models["second"].model_dump() == expected
    assert mine.models["third"].model_dump() == expected | {"title": "Third"}
    edit(config / "studies/mine.yaml", "models.tiny", None)
    content = read_study("mine", config).content
    assert "tiny" not in content["models"]
    assert content["models"]["second"]["base"]["pretraining"]["seed"] == 12


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("rl.stepz", 4, "models.tiny.rl.stepz: unknown key; did you mean 'steps'?"),
        ("rl.rollouts", 1, "models.tiny.rl.rollouts: must be at least 2, not 1"),
        ("rl.problems", "arithmetik", "models.tiny.rl.problems: 'arithmetik' is not a problem set"),
    ],
)
def test_a_fault_names_the_file_and_line_where_the_value_stands(
    config: Path, key: str, value: Any, fault: str
) -> None:
    below = config / "studies/smoke.yaml"
    edit(below, f"models.tiny.{key}", value)
    mine = write(config, "mine", "extends: smoke\n\nseeds: [-1]\n")
    lines = message_of(lambda: load_study("mine", config)).splitlines()
    assert lines[:2] == [f"{mine}: 1 fault", "  seeds[0]: must be at least 0, not -1 (line 3)"]
    assert lines[2] == f"{below} (extended by {mine}): 1 fault"
    assert lines[3].startswith(f"  {fault}")
    line = line_of(below, f"{key.rpartition('.')[2]}: {value}")
    assert lines[3].endswith(f" (line {line})")


def test_lines_of_a_list_and_of_a_name_with_dots(config: Path) -> None:
    text = """
        extends: smoke
        models:
          tiny.b:
            extends: tiny
            benchmarks:
              - arithmetic
              - harderr
    """
    mine = write(config, "mine", text)
    assert "models.tiny.b.benchmarks[1]: 'harderr' is not a problem set" in (
        message := message_of(lambda: load_study("mine", config))
    )
    assert message.splitlines()[1].endswith(f"(line {line_of(mine, 'harderr')})")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("extends: smok\n", "extends: 'smok' is neither a YAML file in "),
        ("extends: smok\n", "did you mean 'smoke'? Allowed: bases, "),
        ("\nextends: [smoke]\n", "extends: must be text, the name of what is extended (line 2)"),
        ("extends: mine\n", "extends: a circle, which must be broken: "),
        (
            "extends: smoke\nmodels: {a: {extends: tony}}\n",
            "models.a.extends: 'tony' is not a model of this study; did you mean 'tiny'? Allowed: "
            "a, tiny, tiny_full, tiny_long (line 2)",
        ),
        (
            "extends: smoke\nmodels: {a: {extends: b}, b: {extends: a}}\n",
            "models.b.extends: a circle, which must be broken: a extends b extends a (line 2)",
        ),
    ],
)
def test_what_cannot_be_extended_is_named(config: Path, text: str, fault: str) -> None:
    mine = config / "studies/mine.yaml"
    mine.write_text(text)
    message = message_of(lambda: load_study("mine", config))
    assert message.startswith(f"{mine}: ")
    assert fault in message


def test_a_circle_of_files_is_shown_whole(config: Path) -> None:
    one = write(config, "one", "extends: two.yaml\n")
    two = write(config, "two", "extends: three\n")
    three = write(config, "three", "seeds: [1]\nextends: one\n")
    assert message_of(lambda: load_study("one", config)) == (
        f"{three}: extends: a circle, which must be broken: {one} extends {two} extends {three} "
        f"extends {one} (line 2)"
    )


def test_yaml_at_fault_is_named_in_the_extended_file(config: Path) -> None:
    below = write(config, "below", "title: [Smoke\nnotice: x\n")
    write(config, "mine", "extends: below\n")
    message = message_of(lambda: load_study("mine", config))
    assert message.startswith(f"{below}, line 2, column 7: not valid YAML: ")


def test_anchors_within_anchors_can_be_merged(config: Path) -> None:
    text = """
        extends: smoke
        models:
          tiny: {rl: &second {<<: &first {steps: 6}, checkpoint_every: 3}}
          tiny_full: {rl: {<<: *second, steps: 9}}
    """
    write(config, "mine", text)
    models = load_study("mine", config).study.models
    lengths = [(models[n].rl.steps, models[n].rl.checkpoint_every) for n in ("tiny", "tiny_full")]
    assert lengths == [(6, 3), (9, 3)]


def test_the_example_of_the_reference_is_a_study(config: Path) -> None:
    page = (config / "README.md").read_text(encoding="utf-8")
    example = page.partition("**A study.**")[2].partition("```yaml\n")[2].partition("```")[0]
    write(config, "newname", example)
    study, mini = load_study("newname", config), load_study("mini", config)
    (added,) = set(study.study.models) - set(mini.study.models)
    assert study.model(added).rl.steps == 50  # of the model as changed, not as in mini
    assert set(mini.study.exhibits) - set(study.study.exhibits) == {"table9"}


@pytest.mark.parametrize("name", STUDIES)
def test_the_resolved_study_is_a_study_of_its_own(name: str, tmp_path: Path) -> None:
    study = load_study(name, CONFIG)
    text = yaml_text(study.study.model_dump(mode="json"))
    assert "extends" not in text
    file = tmp_path / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_study(str(file), CONFIG).model_dump() == {**study.model_dump(), "option": str(file)}


def test_a_target_prints_the_resolved_study(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: smoke\nseeds: [4]\n")
    options = "--cores", "1", "--config", f"study={mine}", f"results={tmp_path}/results"
    done = snakemake_in(project)("resolved", *options)
    assert done.returncode == 0, done.stdout
    text = (tmp_path / "results/mine/logs/resolved.log").read_text(encoding="utf-8")
    assert text in done.stdout
    assert yaml.safe_load(text) == dumped(load_study(str(mine), CONFIG))
    assert yaml.safe_load(text)["seeds"] == [4]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"extends": "mini"}, None),
        ({"extends": "mini", "models": {"tiny": {"rl": {"steps": 3, "lora": None}}}}, None),
        ({"extends": "mini", "models": {"tiny": None, "b": {"extends": "tiny"}}}, None),
        ({"extends": "mini", "exhibits": {"table1": {"title": "T"}, "table2": None}}, None),
        ({"extends": "mini", "problems": {"knights": {"per_size": 3}}}, None),
        ({"title": "Whole"}, ""),
        ({"extends": "mini", "models": {"tiny": {"rl": {"stepz": 3}}}}, "models.tiny.rl"),
        ({"extends": "mini", "models": {"tiny": {"rl": {"steps": "x"}}}}, "models.tiny.rl.steps"),
        ({"extends": "mini", "exhibits": {"table1": {"titel": "T"}}}, "exhibits.table1"),
        ({"extends": 3}, "extends"),
    ],
)
def test_editors_know_what_a_study_that_extends_may_leave_out(
    content: dict[str, Any], place: str | None
) -> None:
    schema = json.loads((CONFIG / "schemas/study.schema.json").read_text(encoding="utf-8"))
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(content))
    for error in errors:
        errors += error.context or ()
    places = {".".join(map(str, error.absolute_path)) for error in errors}
    assert place in places if place is not None else not places, places


def test_a_model_that_extends_may_leave_keys_out_in_a_whole_study() -> None:
    schema = json.loads((CONFIG / "schemas/study.schema.json").read_text(encoding="utf-8"))
    content = yaml.safe_load((CONFIG / "studies/smoke.yaml").read_text(encoding="utf-8"))
    content["models"]["second"] = {"extends": "tiny", "rl": {"steps": 3}}
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(content)
    del content["models"]["second"]["extends"]
    assert not validator.is_valid(content)


def test_studies_that_share_a_world_state_it_once() -> None:
    files = {name: CONFIG / f"studies/{name}.yaml" for name in STUDIES}
    files |= {name: Path(file) for name, file in FOLLOW_UPS.items()}
    stating = {
        name
        for name, file in files.items()
        if re.search(r"^ +architecture:", file.read_text(), re.M)
    }
    larger = {"sizes", "sizes_large", "sizes_rivals"}
    assert stating == {"mini", "smoke", "routes", "sums"} | larger


def test_the_studies_below_are_named_by_file_or_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a `study.yaml` are in a folder that has the name of the study's own."""
    monkeypatch.chdir(ROOT)
    study = "reports/dose/dose_more/study.yaml"
    names = [name_of_study(file) for file in (Path(study), *lineage(study, Path("config")))]
    assert names == ["dose_more", "dose", "sums"]
    assert [*lineage("mini", Path("config"))] == []
