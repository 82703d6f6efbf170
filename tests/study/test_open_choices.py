"""Open choices: named choices between the paper and its release, switched by a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sage.exhibits import load_study
from sage.exhibits.settings import OWN, open_choices_frame
from sage.study import ResolvedStudy, StudyError
from sage.study.open_choices import OPEN_CHOICES, answers_in
from tests.conftest import ROOT

CONFIG = ROOT / "config"


def study_with(folder: Path, base: str, **answers: Any) -> ResolvedStudy:
    content = yaml.safe_load((CONFIG / f"studies/{base}.yaml").read_text(encoding="utf-8"))
    file = folder / "switched.yaml"
    file.write_text(yaml.safe_dump({**content, "open_choices": answers}), encoding="utf-8")
    return load_study(str(file), CONFIG)


def in_force(study: ResolvedStudy) -> dict[str, set[str | None]]:
    return {one.choice.name: set(one.answers.values()) for one in answers_in(study)}


def test_every_choice_has_two_answers_a_default_and_settings_that_tell_them_apart() -> None:
    for choice in OPEN_CHOICES.values():
        assert len(choice.answers) >= 2
        assert choice.default in choice.answers
        settings = [sorted(answer.sets.items()) for answer in choice.answers.values()]
        assert all(settings.count(one) == 1 for one in settings)
        assert all(answer.source and answer.meaning for answer in choice.answers.values())


def test_the_papers_study_follows_the_default_of_each_choice() -> None:
    study = load_study("paper", CONFIG)
    for one in answers_in(study):
        given = {answer for answer in one.answers.values() if answer}
        assert given <= {one.choice.default}, one.choice.name
        assert given or one.choice.name == "kl_reference" or not one.answers
    assert set(in_force(study)["batching"]) <= {"completions", None}


def test_sixteen_completions_a_generation_serve_two_steps_of_eight() -> None:
    rl = load_study("paper", CONFIG).model("qwen_math_7b").rl
    completions = rl.prompts_per_step * rl.rollouts
    assert completions == 8
    assert completions * rl.steps_per_generation == 16
    assert rl.micro_batches == 1  # so that BNPO's mean runs over all 8


def test_a_switched_choice_changes_its_settings_and_nothing_else(tmp_path: Path) -> None:
    plain, switched = (
        study_with(tmp_path, "paper"),
        study_with(tmp_path, "paper", schedule="constant"),
    )
    assert in_force(switched)["schedule"] == {"constant"}
    for name, model in plain.study.models.items():
        rl = model.rl.model_copy(update={"schedule": "constant"})
        assert switched.model(name) == model.model_copy(update={"rl": rl})
    assert switched.algorithms == plain.algorithms


def test_sft_by_the_papers_words_cuts_long_conversations(tmp_path: Path) -> None:
    sft = study_with(tmp_path, "paper", sft_length="prompt").model("qwen_math_7b").sft
    assert sft is not None
    assert (sft.length, sft.too_long) == ("prompt", "cut")


def test_a_length_of_its_own_stays(tmp_path: Path) -> None:
    study = study_with(tmp_path, "paper", completion_length="half")
    assert study.model("qwen_math_7b").rl.sampling.max_tokens == 1024
    assert study.model("r1_distill_7b").rl.sampling.max_tokens == 6144
    (lengths,) = (one for one in answers_in(study) if one.choice.name == "completion_length")
    assert lengths.answers["r1_distill_7b"] is None


def test_a_section_that_another_shares_by_an_anchor_is_switched_alone(tmp_path: Path) -> None:
    text = (CONFIG / "studies/smoke.yaml").read_text(encoding="utf-8")
    shared = "sampling: {temperature: 1.0, max_tokens: 24}"
    text = text.replace(shared, "sampling: &both {temperature: 1.0, max_tokens: 24}", 1)
    text = text.replace(shared, "sampling: *both")
    text += "open_choices: {evaluation_temperature: released}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    study = load_study(str(tmp_path / "mine.yaml"), CONFIG)
    assert study.study.evaluation.sampling.temperature == 0.3
    assert study.model("tiny").rl.sampling.temperature == 1.0


def test_algorithms_are_switched_where_the_question_arises(tmp_path: Path) -> None:
    study = study_with(tmp_path, "paper", kl_estimator="k3_corrected")
    kinds = {name: row.estimator.kind for name, row in study.algorithms.items() if row.estimator}
    assert kinds["grpo"] == kinds["grpo_branch"] == "k3_corrected"
    assert kinds["grpo_forward_kl"] == "sampled"
    assert "grpo_no_kl" not in kinds


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"sft_lenght": "prompt"}, "no such choice; did you mean 'sft_length'"),
        ({"sft_length": "prompts"}, "'prompts' is no answer to it; did you mean 'prompt'"),
        ({"completion_length": "half"}, "nothing in this study has settings that it switches"),
    ],
)
def test_a_choice_that_cannot_be_switched_is_refused(
    tmp_path: Path, answers: dict[str, str], message: str
) -> None:
    with pytest.raises(StudyError, match=message):
        study_with(tmp_path, "smoke", **answers)


def test_the_study_as_released_has_the_releases_answers() -> None:
    found = in_force(load_study("released", CONFIG))
    assert found["sft_length"] == {"conversation"}
    assert found["sft_loss"] == {"text"}
    assert found["batching"] == {"completions"}
    assert found["schedule"] == {"constant"}
    assert found["kl_reference"] == {"released"}
    assert found["dapo_clip"] == {"same"}
    assert found["evaluation_temperature"] == {"released"}


def test_the_study_as_released_has_the_world_of_the_mini_study() -> None:
    """So that what differs between their results is what the answers do."""
    mini, released = load_study("mini", CONFIG), load_study("released", CONFIG)
    for name, problems in released.study.problems.items():
        assert problems == mini.study.problems[name]
    ours, theirs = mini.model("sums"), released.model("sums")
    assert theirs.base == ours.base
    assert ours.sft is not None
    assert theirs.sft == ours.sft.model_copy(
        update={
            "max_tokens": 256,  # twice mini's: half of it has to hold a conversation
            "length": "conversation",
            "too_long": "leave_out",
            "loss": "text",
        }
    )
    rollouts = [m.rl.steps * m.rl.prompts_per_step * m.rl.rollouts for m in (ours, theirs)]
    assert rollouts[0] == rollouts[1] == 6400
    as_run = {
        "steps": 800,
        "prompts_per_step": 1,
        "steps_per_generation": 2,
        "schedule": "constant",
        "checkpoint_every": 200,
    }
    assert theirs.rl == ours.rl.model_copy(update=as_run)
    assert {row.clip_high for row in released.algorithms.values()} == {0.2}


def test_the_table_names_every_answer_and_where_it_is_in_force() -> None:
    table = open_choices_frame(load_study("paper", CONFIG))
    answers = table[table["answer"] != OWN]
    assert len(answers) == sum(len(choice.answers) for choice in OPEN_CHOICES.values())
    rows = answers[answers["reading"] == "sft_length"].to_dict("records")
    (default, other) = rows
    assert (default["answer"], default["default"]) == ("conversation", True)
    assert (default["in_force"], other["in_force"]) == ("Qwen2.5-Math-7B", "")
    assert other["source"] == "paper"
