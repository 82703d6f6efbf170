"""Settings that contradict one another, or name what the study does not have, are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_edits import ALGORITHMS, DROPPED, STUDY, edit, message_of

from sage.exhibits import load_study


def test_an_algorithm_that_does_not_go_with_the_rl_settings_is_refused(config: Path) -> None:
    edit(config / STUDY, "models.tiny.algorithms", ["bnpo_beta", "dapo_full", "pacs", "pkpo"])
    edit(config / ALGORITHMS, "pkpo.advantage.settings.k", 9)
    edit(config / STUDY, "models.tiny.rl.micro_batches", 2)
    edit(config / STUDY, "models.tiny.rl.prompts_per_step", 1)
    edit(config / ALGORITHMS, "dapo_full.rewards.1.settings.margin_tokens", 500)
    message = message_of(lambda: load_study("smoke", config))
    assert "models.tiny.algorithms[0]: 'bnpo_beta', advantage: beta fits a Beta density" in message
    assert "prompts_per_step must be at least 2, not 1" in message
    assert (
        "models.tiny.algorithms[1]: 'dapo_full', rewards[1]: overlong has margin_tokens 500"
        in message
    )
    assert "'pacs', credit: pacs needs the whole group of a prompt in a micro-batch" in message
    assert "'pkpo', advantage: pkpo takes sets of k = 9 rollouts, but a prompt has 8" in message
    edit(config / ALGORITHMS, "pkpo.advantage.settings.k", 8)
    message = message_of(lambda: load_study("smoke", config))
    assert "only a single right rollout would be credited; choose a smaller k" in message


def test_a_variant_does_not_take_the_place_of_another_method(config: Path) -> None:
    grid = {"algorithms": ["grpo_branch"], "kl_coefficients": [0.05], "values": [0.3]}
    kind = "reports.dose.dose_grid:DoseFigure"
    dose = {"kind": kind, "title": "Dose", "model": "tiny", "benchmark": "arithmetic", **grid}
    edit(config / STUDY, "exhibits.one", dose)
    edit(config / STUDY, "exhibits.two", {**dose, "title": "Again"})
    variant = "grpo_branch-kl0.05-ratio0.3"
    assert variant in load_study("smoke", config).variants
    edit(config / STUDY, "exhibits.two.clamp", [0.5, 2.0])
    message = message_of(lambda: load_study("smoke", config))
    assert f"two: makes the method {variant!r} with other settings than exhibits.one" in message
    edit(config / STUDY, "exhibits.two", DROPPED)
    edit(config / STUDY, "own_methods", {variant: {"base": "grpo", "title": "Mine"}})
    message = message_of(lambda: load_study("smoke", config))
    assert f"exhibits.one: makes the method {variant!r}, but a method has that name" in message


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("bases", {"g": ["tiny", "tony"]}, "bases.g[1]: 'tony' is not a model of this study"),
        ("bases", {"g": ["tiny"]}, "bases.g: must have 2 or more entries"),
        ("bases", {"tiny": ["tiny", "second"]}, "bases.tiny: 'tiny' is the name of a model"),
        ("bases", {"g": ["tiny", "second"], "h": ["tiny", "second"]}, "'second' is in another"),
        (
            "bases",
            {"g": ["tiny", "tiny_full"]},
            "'tiny_full' and 'tiny' differ in sft, not in base",
        ),
        ("models.second.base.pretraining.seed", 11, "bases.g: each model needs a base of its own"),
    ],
)
def test_models_of_a_group_differ_in_their_base_alone(
    config: Path, key: str, value: Any, reason: str
) -> None:
    second = {"extends": "tiny", "title": "Second", "base": {"pretraining": {"seed": 12}}}
    edit(config / STUDY, "models.second", second)
    edit(config / STUDY, "bases", {"g": ["tiny", "second"]})
    assert load_study("smoke", config).bases("second") == ("g", ["tiny", "second"])
    edit(config / STUDY, key, value)
    assert reason in message_of(lambda: load_study("smoke", config))


def test_a_file_with_fewer_problems_than_a_generation_takes_is_refused(
    config: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    own = {"source": "file", "title": "Mine", "file": str(file)}
    edit(config / STUDY, "problems.arithmetic_train", own)
    edit(config / STUDY, "models.tiny.rl.prompts_per_step", 4)
    lines = ["problem,answer", "1+1?,2", "1+2?,3", "1+3?,4"]
    file.write_text("\n".join(lines))
    message = message_of(lambda: load_study("smoke", config))
    assert "'arithmetic_train' has 3 problems, but a generation takes 4" in message
    file.write_text("\n".join([*lines, "1+4?,5"]))
    load_study("smoke", config)


@pytest.mark.parametrize(
    ("config_json", "fault"),
    [
        ("null", "config.json is not JSON (it holds empty, not settings by name); copy the model"),
        ("[{}]", "config.json is not JSON (it holds [{}], not settings by name); copy the model"),
        ("{", "config.json is not JSON (Expecting"),
        ('{"max_position_embeddings": "long"}', ""),
    ],
)
def test_a_model_of_ones_own_whose_config_is_damaged_is_named(
    config: Path, tmp_path: Path, config_json: str, fault: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (own / name).touch()
    (own / "config.json").write_text(config_json)
    edit(config / STUDY, "models.tiny_long.base", {"source": "folder", "folder": str(own)})
    if fault:
        message = message_of(lambda: load_study("smoke", config))
        assert "models.tiny_long.base.folder: " in message
        assert fault in message
    else:
        load_study("smoke", config)
