"""Settings that contradict one another, or name what the study does not have, are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_edits import ALGORITHMS, STUDY, edit, message_of

from sage.exhibits import load_study


def test_a_misspelt_algorithm_brings_file_and_nearest_match(config: Path) -> None:
    edit(config / STUDY, "models.tiny.algorithms", ["grpo_brunch"])
    assert (
        f"'grpo_brunch' is not a method of {config / ALGORITHMS}; did you mean 'grpo_branch'?"
    ) in message_of(lambda: load_study("smoke", config))


def test_a_guide_without_kl_is_refused(config: Path) -> None:
    edit(config / ALGORITHMS, "grpo_branch.kl", "none")
    assert (
        "  grpo_branch: a guide shapes the anchor of the KL term, but kl is 'none'"
    ) in message_of(lambda: load_study("smoke", config))


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


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("grpo_branch.kl", "forward", "allowed: sampled, exact"),
        ("dars.advantage", "w_reinforce", "which advantage w_reinforce learns from"),
        ("dapo_no_kl.fidelity", "released", "differs in the KL term"),
        ("grpo_no_kl.kl_coefficient", 0.1, "need a KL term"),
    ],
)
def test_settings_of_a_row_that_contradict_each_other_are_refused(
    config: Path, key: str, value: Any, reason: str
) -> None:
    edit(config / ALGORITHMS, key, value)
    assert reason in message_of(lambda: load_study("smoke", config))


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


def test_micro_batches_must_divide_a_step(config: Path) -> None:
    edit(config / STUDY, "models.tiny.rl.micro_batches", 7)
    assert "models.tiny.rl: micro_batches 7 must divide the completions of a step" in message_of(
        lambda: load_study("smoke", config)
    )


EXHIBIT_FAULTS = [
    ("table1.model", "tony", "exhibits.table1.model: 'tony' is not a model of this study; did"),
    (
        "table3.algorithms",
        ["base", "grop"],
        "exhibits.table3.algorithms[1]: 'grop' is not a meth",
    ),
    ("table5.algorithms", ["base"], "exhibits.table5.algorithms[0]: 'base' is not a method"),
    ("figure4.benchmarks", ["knight"], "exhibits.figure4.benchmarks[0]: 'knight' is not a problem"),
    ("table2.benchmark", "sums", "exhibits.table2.benchmark: 'sums' is not a problem set"),
    (
        "table6.algorithm",
        "grpo",
        "exhibits.table6.algorithm: 'grpo' has no guide, so no guide settings",
    ),
    (
        "overhead.algorithms",
        ["grpo", "grpo_forward_kl"],
        "exhibits.overhead.algorithms: 'grpo_forward_kl' and 'grpo' differ in kl, estimator; name",
    ),
    ("overhead.algorithms", ["grpo"], "exhibits.overhead.algorithms: must have 2 or more entries"),
    ("table6.grid", {"treshold": [1.0]}, "exhibits.table6.grid.treshold: 'treshold' is not a sett"),
    ("table2.samples", 5, "exhibits.table2.samples: 5, but only 4 samples of a problem are drawn"),
    ("figure7.responses", 5, "exhibits.figure7.responses: 5, but only 4 samples of a problem"),
    ("table1.kind", "acuracy", "exhibits.table1.kind: 'acuracy' is not allowed; did you mean"),
    ("table1.benchmark", "x", "exhibits.table1.benchmark: unknown key; did you mean 'benchmarks'"),
]


@pytest.mark.parametrize(("key", "value", "message"), EXHIBIT_FAULTS)
def test_a_faulty_exhibit_is_refused(config: Path, key: str, value: Any, message: str) -> None:
    edit(config / STUDY, f"exhibits.{key}", value)
    assert f"  {message}" in message_of(lambda: load_study("smoke", config))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tiny_long.base.model", "tiny_full", "'tiny_full' is not a model of this study with a ba"),
        ("tiny.sft.data", "openmath", "models.tiny.sft.data: 'openmath' is not a data set of"),
        ("tiny_long.algorithms", ["grpo_released"], "refers to the model before SFT, but this"),
        ("tiny.base", {"source": "hub", "repository": "a/b"}, "sft needs data or corpus: only a"),
    ],
)
def test_a_base_that_leads_nowhere_is_refused(
    config: Path, key: str, value: Any, message: str
) -> None:
    edit(config / STUDY, f"models.{key}", value)
    assert message in message_of(lambda: load_study("smoke", config))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "models.tiny.rl.prompts_per_step",
            17,
            "models.tiny.rl.problems: 'arithmetic_train' has 16 problems, but a generation takes",
        ),
        (
            "models.tiny_long.rl.prompts_per_step",
            17,
            "models.tiny_long.rl.problems: 'arithmetic_train' has 16 problems, but a generation t",
        ),
        (
            "models.tiny_long.rl.sampling.max_tokens",
            256,
            "models.tiny_long.rl.sampling.max_tokens: 256 leaves no room for a prompt in the max_p",
        ),
        (
            "models.tiny_long.evaluation.sampling.max_tokens",
            300,
            "models.tiny_long.evaluation.sampling.max_tokens: 300 leaves no room for a prompt in",
        ),
        (
            "evaluation.sampling.max_tokens",
            256,
            "evaluation.sampling.max_tokens: 256 leaves no room for a prompt in the max_positions "
            "256 of the base of 'tiny'; lower it, or raise base.architecture.max_positions",
        ),
    ],
)
def test_what_training_or_sampling_would_fail_on_is_refused(
    config: Path, key: str, value: Any, message: str
) -> None:
    edit(config / STUDY, key, value)
    assert f"  {message}" in message_of(lambda: load_study("smoke", config))


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
