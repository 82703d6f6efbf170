"""Reading a study: what is committed loads, and what it asks for is worked out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from study_edits import ROOT, STUDIES, STUDY, edit

from sage.exhibits import load_study
from sage.study import load_settings


@pytest.mark.parametrize("name", STUDIES)
def test_a_committed_study_loads(name: str) -> None:
    study = load_study(name, ROOT / "config")
    assert study.name == name
    used = {row for model in study.study.models for row in study.trained(model)}
    assert set(study.algorithms) == used


def test_rivals_are_compared_in_the_world_of_the_default_study() -> None:
    """Problems are others, since no verdict rests on those that are looked at, and rates tuned."""
    default, rivals = (load_study(name, ROOT / "config").study for name in ("mini", "rivals"))
    assert rivals.models["sums"].base == default.models["sums"].base
    assert rivals.models["sums"].sft == default.models["sums"].sft
    theirs, ours = (study.models["sums"].rl for study in (rivals, default))
    assert theirs is not None
    assert ours is not None
    assert theirs.model_copy(update={"learning_rate": ours.learning_rate}) == ours
    for name in ("sheets_train", "sheets"):
        one, other = (study.problems[name].model_dump() for study in (rivals, default))
        assert {key for key in one if one[key] != other[key]} <= {"seed", "hints"}


def test_a_study_can_be_a_file_of_ones_own(config: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    shutil.copy(config / STUDY, mine)
    edit(mine, "models.tiny.rl.steps", 7)
    study = load_study(str(mine), config)
    assert (study.name, study.option) == ("mine", str(mine))  # and so it is asked for again
    assert study.model("tiny").rl.steps == 7
    assert load_study("smoke", config).option == "smoke"


def test_rows_start_with_the_policy_before_rl() -> None:
    study = load_study("smoke", ROOT / "config")
    assert study.methods("tiny") == ["base", *study.model("tiny").algorithms]


def test_the_committed_settings_are_valid() -> None:
    content = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert load_settings(content).model_dump() == content


def test_exhibits_decide_what_is_trained_and_sampled_once() -> None:
    study = load_study("smoke", ROOT / "config")
    assert study.trained("tiny")[:2] == ["grpo", "grpo_no_kl"]
    assert "grpo_branch-threshold0.8-ratio0.3" in study.trained("tiny")
    assert "grpo_branch-threshold1.2-ratio0.3" not in study.algorithms  # grpo_branch itself
    assert study.methods_of("table6") == ["grpo_branch-threshold0.8-ratio0.3", "grpo_branch"]
    assert study.methods_of("table5") == ["grpo", "grpo_branch", "grpo_no_kl"]
    assert study.methods_of("table9") == ["base", "grpo", "grpo_branch"]
    pairs = study.evaluated("tiny")
    assert len(pairs) == len(set(pairs))
    assert ("grpo_token", "longer") not in pairs
    assert ("grpo", "longer") in pairs
    assert study.snapshots("tiny", "grpo") == 2
    assert study.snapshots("tiny", "grpo_token") == 0


def test_the_examples_of_the_documentation_work(config: Path) -> None:
    examples = re.findall(r"```yaml\n(.+?)```", (config / "README.md").read_text(), re.S)
    # tests/workflow/test_growth.py and tests/training/test_crediting.py run the others
    python = re.findall(r"```python\n(.+?)```", (config / "README.md").read_text(), re.S)
    (task,) = [text for text in python if "class Countdown" in text]
    (config / STUDY).with_name("my_tasks.py").write_text(task)
    (own,) = [text for text in examples if text.startswith("own_methods:")]
    problems, *more = [text for text in examples if text.startswith("problems:")]
    (entry,) = [text for text in examples if text.startswith("gsm8k:")]
    for file, text in ((STUDY, own), ("benchmarks.yaml", entry)):
        (config / file).write_text((config / file).read_text() + text)
    names, (data_set,) = [*yaml.safe_load(own)["own_methods"]], yaml.safe_load(entry)
    (benchmark,) = yaml.safe_load(problems)["problems"]
    edit(config / STUDY, f"problems.{benchmark}", yaml.safe_load(problems)["problems"][benchmark])
    for text in more:
        for other, settings in yaml.safe_load(text)["problems"].items():
            edit(config / STUDY, f"problems.{other}", settings)
    public = {"source": "benchmark", "title": "Public", "benchmark": data_set}
    edit(config / STUDY, "problems.public", public)
    edit(config / STUDY, "models.tiny.algorithms", names)
    edit(config / STUDY, "models.tiny.benchmarks", [benchmark, "public"])
    study = load_study("smoke", config)
    assert study.methods("tiny") == ["base", *names]
    assert set(study.benchmarks) == {data_set}
    assert study.model("tiny").benchmarks == [benchmark, "public"]
