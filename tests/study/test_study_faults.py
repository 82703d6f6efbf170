"""Each mistake in one setting of a study is named with its remedy: one row each, one edit each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_edits import ALGORITHMS, DROPPED, STUDY, edit, message_of

from sage.exhibits import load_study
from sage.study.faults import type_faults

ROW = {"title": "A new row", "loss": "grpo", "kl": "none"}


FAULTS = [
    (STUDY, "claims", 3, "claims: must be text, not 3"),
    (STUDY, "claims", {"ours": 3}, "claims.ours: must be a mapping of keys to values, not 3"),
    # unknown and missing keys
    (STUDY, "sedes", [1], "sedes: unknown key; did you mean 'seeds'? Allowed: bases, c"),
    (STUDY, "models.tiny.rl.stepz", 4, "models.tiny.rl.stepz: unknown key; did you mean 'steps'?"),
    (
        STUDY,
        "problems.knights.per_sise",
        3,
        "problems.knights.per_sise: unknown key; did you mean 'per_size'? Allowed: hints, people",
    ),
    (STUDY, "problems.knights.villages", 3, "problems.knights.villages: unknown key; allowed: hi"),
    (STUDY, "models.tiny.base.scratch", 3, "models.tiny.base.scratch: unknown key; "),
    (STUDY, "models.tiny.rl.kl_coefficient", DROPPED, "models.tiny.rl.kl_coefficient: missing"),
    (
        STUDY,
        "problems.knights.source",
        DROPPED,
        "problems.knights.source: missing; allowed: arithmetic, benchmark, file, hub, knights",
    ),
    # values of a wrong type
    (STUDY, "models.tiny.rl.steps", "four", "models.tiny.rl.steps: must be an integer, not 'four'"),
    (STUDY, "models.tiny.rl.steps", 4.5, "models.tiny.rl.steps: must be an integer, not 4.5"),
    (STUDY, "models.tiny.rl.steps", True, "models.tiny.rl.steps: must be an integer, not true"),
    (STUDY, "models.tiny.rl.steps", None, "models.tiny.rl.steps: must be an integer, not empty"),
    (
        STUDY,
        "models.tiny.rl.steps",
        "1e2",
        "models.tiny.rl.steps: must be an integer, not '1e2', which YAML reads as text; write 100",
    ),
    (STUDY, "title", 7, "title: must be text, not 7"),
    (
        STUDY,
        "evaluation.sampling",
        [1.0, 24],
        "evaluation.sampling: must be a mapping of keys to values, not [1.0, 24]",
    ),
    (STUDY, "models.tiny.rl.lora", 8, "models.tiny.rl.lora: must be a mapping of keys to values"),
    (STUDY, "problems.knights", [3], "problems.knights: must be a mapping of keys to values"),
    (STUDY, "problems.knights.people", 3, "problems.knights.people: must be a list, not 3"),
    # numbers out of range
    (
        STUDY,
        "problems.arithmetic.max_terms",
        2**31,
        "problems.arithmetic.max_terms: must be at most 100, not 2147483648",
    ),
    (STUDY, "models.tiny.rl.rollouts", 1, "models.tiny.rl.rollouts: must be at least 2, not 1"),
    (
        STUDY,
        "problems.knights.people",
        [3, 9],
        "problems.knights.people[1]: must be at most 8, not 9",
    ),
    (
        STUDY,
        "evaluation.sampling.top_p",
        1.5,
        "evaluation.sampling.top_p: must be at most 1.0, not 1.5",
    ),
    (
        STUDY,
        "models.tiny.sft.learning_rate",
        -0.5,
        "models.tiny.sft.learning_rate: must be above 0.0, not -0.5",
    ),
    (
        STUDY,
        "models.tiny.sft.learning_rate",
        float("inf"),
        "models.tiny.sft.learning_rate: must be a finite number, not inf",
    ),
    (STUDY, "seeds", [-1], "seeds[0]: must be at least 0, not -1"),
    (STUDY, "seeds", [], "seeds: missing; give the training seeds of grpo, such as seeds: [1]"),
    (
        STUDY,
        "problems.arithmetic.min_terms",
        7,
        "problems.arithmetic: max_terms 3 is below min_terms 7",
    ),
    (
        STUDY,
        "models.tiny.base.corpus.min_terms",
        7,
        "models.tiny.base.corpus: max_terms 5 is below min_terms 7",
    ),
    (
        STUDY,
        "models.tiny.base.corpus.styles",
        {"steps": 0.0},
        "models.tiny.base.corpus: styles: at least one must have a frequency above 0",
    ),
    (
        STUDY,
        "models.tiny.base.architecture.heads",
        3,
        "models.tiny.base.architecture: hidden_size must be a multiple of heads",
    ),
    # misspelt choices and names
    (
        STUDY,
        "problems.knights.source",
        "knigths",
        "problems.knights.source: 'knigths' is not allowed; did you mean 'knights'? Allowed: "
        "arithmetic, benchmark, file, hub, knights",
    ),
    (
        STUDY,
        "problems.knights.split",
        "tets",
        "problems.knights.split: 'tets' is not allowed; did you mean 'test'? Allowed: test, train",
    ),
    (
        STUDY,
        "models.tiny.base.corpus.styles.stepps",
        0.5,
        "models.tiny.base.corpus.styles: 'stepps' is not allowed; did you mean 'steps'? Allowed: "
        "contradiction, direct, group, let, steps",
    ),
    (
        STUDY,
        "models.tiny.algorithms.2",
        "grpo_brunch",
        "models.tiny.algorithms[2]: 'grpo_brunch' is not a method of ",
    ),
    (
        STUDY,
        "models.tiny.benchmarks.1",
        "herder",
        "models.tiny.benchmarks[1]: 'herder' is not a problem set of this study; did you mean "
        "'harder'? Allowed: arithmetic, arithmetic_train, harder, knights",
    ),
    (
        STUDY,
        "models.tiny.rl.problems",
        "arithmetic_trian",
        "models.tiny.rl.problems: 'arithmetic_trian' is not a problem set of this study; did you "
        "mean 'arithmetic_train'? Allowed: arithmetic, arithmetic_train, harder, knights",
    ),
    # settings at odds with one another
    (
        STUDY,
        "models.tiny.benchmarks.0",
        "arithmetic_train",
        "models.tiny.benchmarks: 'arithmetic_train' is what RL trains on; name another set",
    ),
    (
        STUDY,
        "models.tiny.seeds",
        {"grpo": [3407, 3407]},
        "models.tiny.seeds.grpo[1]: 3407 occurs twice",
    ),
    (
        STUDY,
        "models.tiny.seeds",
        {"grpo": [1, 2]},
        "models.tiny.seeds: grpo ([1, 2]) and grpo_no_kl ([3407]) have no training seed in common",
    ),
    (
        STUDY,
        "models.tiny.seeds",
        {"grpoo": [1]},
        "models.tiny.seeds: 'grpoo' is not a method that this model is trained with; did you",
    ),
    (
        STUDY,
        "models.tiny.learning_rates",
        {"grpoo": 0.001},
        "models.tiny.learning_rates: 'grpoo' is not a method that this model is trained with; did",
    ),
    (
        STUDY,
        "models.tiny.learning_rates",
        {"grpo": 0},
        "models.tiny.learning_rates.grpo: must be above 0.0, not 0",
    ),
    (STUDY, "seeds", [1, 2, 1], "seeds[2]: 1 occurs twice"),
    (STUDY, "evaluation.seeds", [0, 0], "evaluation.seeds[1]: 0 occurs twice"),
    (
        STUDY,
        "evaluation.primary_k",
        3,
        "evaluation: primary_k 3 is not a power of two, for which pass@k is measured",
    ),
    (
        STUDY,
        "evaluation.primary_k",
        4,
        "evaluation: primary_k 4 needs at least 4 samples of each evaluation seed and 8 in all; "
        "here they are 4 and 4",
    ),
    (
        STUDY,
        "models.tiny.algorithms",
        ["grpo", "grpo"],
        "models.tiny.algorithms[1]: 'grpo' occurs twice",
    ),
    (STUDY, "problems.knights.people", [3, 3], "problems.knights.people[1]: 3 occurs twice"),
    # algorithms
    (ALGORITHMS, "base", ROW, "base: this name is kept for the policy before RL; choose another"),
    (ALGORITHMS, "grpo 2", ROW, "a key must begin with a letter from A to Z"),
    (ALGORITHMS, "grpo", None, "grpo: must be a mapping of keys to values, not empty"),
    (
        ALGORITHMS,
        "grpo.loss",
        "grop",
        "grpo.loss: 'grop' is not allowed; did you mean 'grpo'? Allowed: bnpo, dapo, dr_grpo",
    ),
    (ALGORITHMS, "grpo.kl", False, "grpo.kl: false is not allowed; allowed: "),
    (ALGORITHMS, "grpo.guyde", {}, "grpo.guyde: unknown key; did you mean 'guide'? Allowed: "),
    (
        ALGORITHMS,
        "grpo.estimator",
        "sampled",
        "grpo: estimator 'sampled' does not go with kl 'reverse'; allowed: k2, k3, k3_corrected",
    ),
    (
        ALGORITHMS,
        "grpo_branch.guide.kind",
        "brunch",
        "grpo_branch.guide.kind: 'brunch' is not a guide, nor module:Class of one; did you",
    ),
    (
        ALGORITHMS,
        "grpo_branch.guide.settings.ration",
        0.3,
        "grpo_branch.guide.settings.ration: unknown key; did you mean 'ratio'? Allowed: entropy_o",
    ),
    (
        ALGORITHMS,
        "grpo_branch.guide.settings.ratio",
        "3e-1",
        "grpo_branch.guide.settings.ratio: must be a number, not '3e-1', which YAML reads as text; "
        "write 3.0e-1",
    ),
    (
        ALGORITHMS,
        "grpo_branch.guide.settings.ratio",
        -0.5,
        "grpo_branch.guide.settings.ratio: must be at least 0.0, not -0.5",
    ),
    (
        ALGORITHMS,
        "grpo_k2.estimator",
        "k4",
        "grpo_k2.estimator: 'k4' is not an estimator, nor module:Class of one; did you mean 'k",
    ),
    (
        ALGORITHMS,
        "dapo_full.rewards.1.settings",
        {},
        "dapo_full.rewards[1].settings.margin_tokens: missing",
    ),
    (
        ALGORITHMS,
        "pacs.clip_high",
        0.2,
        "pacs: credit: pacs is a loss without ratios, which a clip would cut to none; write",
    ),
    (
        ALGORITHMS,
        "bnpo_beta.rewards",
        ["correct", {"kind": "overlong", "settings": {"margin_tokens": 4}}],
        "bnpo_beta: advantage: beta fits a Beta density to success rates, so rewards must be [corr",
    ),
    (
        ALGORITHMS,
        "grpo_branch.guide.clamp",
        [1.4, 0.6],
        "grpo_branch.guide.clamp: must be [lowest, highest], not [1.4, 0.6]",
    ),
]


@pytest.mark.parametrize(
    ("file", "key", "value", "fault"), FAULTS, ids=[f"{row[1]}={row[2]!r:.20}" for row in FAULTS]
)
def test_a_mistake_is_named_with_its_remedy(
    config: Path, file: str, key: str, value: Any, fault: str
) -> None:
    edit(config / file, key, value)
    heading, found, closing = message_of(lambda: load_study("smoke", config)).splitlines()
    assert heading == f"{config / file}: 1 fault"
    assert found.startswith(f"  {fault}")
    assert closing.startswith("Every key is explained in config/schemas")


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("models.tiny.algorithms.0", ["grpo"], "models.tiny.algorithms[0]: must be text, not ['g"),
        (
            "open_choices",
            {"sft_loss": ["text"]},
            "open_choices.sft_loss: must be text, not ['text']",
        ),
        (
            "problems.longer",
            {"source": "benchmark", "title": "A", "benchmark": ["a"]},
            "problems.longer.benchmark: must be text, not ['a']",
        ),
        ("exhibits.table1.kind", ["a"], "exhibits.table1.kind: must be text, not ['a']"),
        ("exhibits.figure3.algorithms.0", ["a"], "exhibits.figure3.algorithms[0]: must be text, n"),
    ],
)
def test_a_list_in_place_of_a_name_is_refused(
    config: Path, key: str, value: Any, fault: str
) -> None:
    edit(config / STUDY, key, value)
    assert f"\n  {fault}" in message_of(lambda: load_study("smoke", config))


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("readings", {}, "readings: unknown key; did you mean 'open_choices'?"),
        ("exhibits.table1.kind", "free_rivals", "'free_rivals' is not allowed; did you mean 'cost"),
    ],
)
def test_a_name_of_an_earlier_version_is_refused_with_todays(
    config: Path, key: str, value: Any, fault: str
) -> None:
    edit(config / STUDY, key, value)
    assert fault in message_of(lambda: load_study("smoke", config))


def test_a_fault_in_a_union_of_plain_types_keeps_its_key() -> None:
    assert type_faults(dict[str, dict[str, float | str]], {"settings": {"ratio": [1]}}) == [
        "settings.ratio: must be a number, not [1]",
        "settings.ratio: must be text, not [1]",
    ]
