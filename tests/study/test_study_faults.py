"""Each mistake in one setting of a study is named with its remedy: one row each, one edit each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from study_edits import ALGORITHMS, DROPPED, STUDY, edit, message_of

from sage.exhibits import load_study
from sage.faults import type_faults

ROW = {"title": "A new row", "loss": "grpo", "kl": "none"}

OF_STUDY: list[tuple[str, Any, str]] = [
    ("claims", 3, ": must be text, not 3"),
    ("claims", {"ours": 3}, ".ours: must be a mapping of keys to values, not 3"),
    # unknown and missing keys, and names of an earlier version
    ("sedes", [1], ": unknown key; did you mean 'seeds'? Allowed: bases, c"),
    ("models.tiny.rl.stepz", 4, ": unknown key; did you mean 'steps'?"),
    ("problems.knights.per_sise", 3,
     ": unknown key; did you mean 'per_size'? Allowed: hints, people"),
    ("problems.knights.villages", 3, ": unknown key; allowed: hi"),
    ("models.tiny.base.scratch", 3, ": unknown key; "),
    ("models.tiny.rl.kl_coefficient", DROPPED, ": missing"),
    ("problems.knights.source", DROPPED,
     ": missing; allowed: arithmetic, benchmark, file, hub, knights"),
    # values of a wrong type
    ("models.tiny.rl.steps", "four", ": must be an integer, not 'four'"),
    ("models.tiny.rl.steps", 4.5, ": must be an integer, not 4.5"),
    ("models.tiny.rl.steps", True, ": must be an integer, not true"),
    ("models.tiny.rl.steps", None, ": must be an integer, not empty"),
    ("models.tiny.rl.steps", "1e2",
     ": must be an integer, not '1e2', which YAML reads as text; write 100"),
    ("title", DROPPED, ": missing"),
    ("title", 7, ": must be text, not 7, which YAML reads as … put it in quotes: '7'"),
    ("evaluation.sampling", [1.0, 24], ": must be a mapping of keys to values, not [1.0, 24]"),
    ("models.tiny.rl.lora", 8, ": must be a mapping of keys to values"),
    ("problems.knights", [3], ": must be a mapping of keys to values"),
    ("problems.knights.people", 3, ": must be a list, not 3"),
    # numbers out of range
    ("problems.arithmetic.max_terms", 2**31, ": must be at most 100, not 2147483648"),
    ("models.tiny.rl.rollouts", 1, ": must be at least 2, not 1"),
    ("problems.knights.people", [3, 9], "[1]: must be at most 8, not 9"),
    ("evaluation.sampling.top_p", 1.5, ": must be at most 1.0, not 1.5"),
    ("models.tiny.sft.learning_rate", -0.5, ": must be above 0.0, not -0.5"),
    ("models.tiny.sft.learning_rate", float("inf"), ": must be a finite number, not inf"),
    ("seeds", [-1], "[0]: must be at least 0, not -1"),
    ("seeds", [], ": missing; give the training seeds of grpo, such as seeds: [1]"),
    ("problems.arithmetic.min_terms", 7, "problems.arithmetic: max_terms 3 is below min_terms 7"),
    ("models.tiny.base.corpus.min_terms", 7,
     "models.tiny.base.corpus: max_terms 5 is below min_terms 7"),
    ("models.tiny.base.corpus.styles", {"steps": 0.0},
     "models.tiny.base.corpus: styles: at least one must have a frequency above 0"),
    ("models.tiny.base.architecture.heads", 3,
     "models.tiny.base.architecture: hidden_size must be a multiple of heads"),
    # misspelt choices and names
    ("problems.knights.source", "knigths",
     ": 'knigths' is not allowed; did you mean 'knights'? Allowed: arithmetic, benchmark, file, "
     "hub, knights"),
    ("problems.knights.split", "tets",
     ": 'tets' is not allowed; did you mean 'test'? Allowed: test, train"),
    ("models.tiny.base.corpus.styles.stepps", 0.5,
     "models.tiny.base.corpus.styles: 'stepps' is not allowed; did you mean 'steps'? Allowed: "
     "contradiction, direct, group, let, steps"),
    ("models.tiny.algorithms.2", "grpo_brunch",
     ": 'grpo_brunch' is not a method of … algorithms.yaml; did you mean 'grpo_branch'?"),
    ("models.tiny.benchmarks.1", "herder",
     ": 'herder' is not a problem set of this study; did you mean 'harder'? Allowed: arithmetic, "
     "arithmetic_train, harder, knights"),
    ("models.tiny.rl.problems", "arithmetic_trian",
     ": 'arithmetic_trian' is not a problem set of this study; did you mean 'arithmetic_train'? "
     "Allowed: arithmetic, arithmetic_train, harder, knights"),
    # settings at odds with one another
    ("models.tiny.benchmarks.0", "arithmetic_train",
     "models.tiny.benchmarks: 'arithmetic_train' is what RL trains on; name another set"),
    ("models.tiny.seeds", {"grpo": [3407, 3407]}, ".grpo[1]: 3407 occurs twice"),
    ("models.tiny.seeds", {"grpo": [1, 2]},
     ": grpo ([1, 2]) and grpo_no_kl ([3407]) have no training seed in common"),
    ("models.tiny.seeds", {"grpoo": [1]},
     ": 'grpoo' is not a method that this model is trained with; did you"),
    ("models.tiny.learning_rates", {"grpoo": 0.001},
     ": 'grpoo' is not a method that this model is trained with; did"),
    ("models.tiny.learning_rates", {"grpo": 0}, ".grpo: must be above 0.0, not 0"),
    ("seeds", [1, 2, 1], "[2]: 1 occurs twice"),
    ("evaluation.seeds", [0, 0], "[1]: 0 occurs twice"),
    ("evaluation.primary_k", 3,
     "evaluation: primary_k 3 is not a power of two, for which pass@k is measured"),
    ("evaluation.primary_k", 4,
     "evaluation: primary_k 4 needs at least 4 samples of each evaluation seed and 8 in all; here "
     "they are 4 and 4"),
    ("models.tiny.algorithms", ["grpo", "grpo"], "[1]: 'grpo' occurs twice"),
    ("problems.knights.people", [3, 3], "[1]: 3 occurs twice"),
    # lists in place of a name
    ("models.tiny.algorithms.0", ["grpo"], ": must be text, not ['g"),
    ("open_choices", {"sft_loss": ["text"]}, ".sft_loss: must be text, not ['text']"),
    ("problems.longer", {"source": "benchmark", "title": "A", "benchmark": ["a"]},
     ".benchmark: must be text, not ['a']"),
    ("exhibits.table1.kind", ["a"], ": must be text, not ['a']"),
    ("exhibits.figure3.algorithms.0", ["a"], ": must be text, n"),
    # names of an earlier version
    ("readings", {}, ": unknown key; did you mean 'open_choices'?"),
    ("exhibits.table1.kind", "free_rivals", ": 'free_rivals' is … did you mean 'cost"),
    # exhibits
    ("exhibits.table1.model", "tony",
     ": 'tony' is not a model of this study; did you mean 'tiny'?"),
    ("exhibits.table3.algorithms", ["base", "grop"], "[1]: 'grop' is not a meth"),
    ("exhibits.table5.algorithms", ["base"], "[0]: 'base' is not a method"),
    ("exhibits.figure4.benchmarks", ["knight"], "[0]: 'knight' is not a problem"),
    ("exhibits.table2.benchmark", "sums", ": 'sums' is not a problem set"),
    ("exhibits.table6.algorithm", "grpo", ": 'grpo' has no guide, so no guide settings"),
    ("exhibits.table6.grid", {"treshold": [1.0]}, ".treshold: 'treshold' is not a sett"),
    ("exhibits.table2.samples", 5, ": 5, but only 4 samples of a problem are drawn"),
    ("exhibits.figure7.responses", 5, ": 5, but only 4 samples of a problem"),
    ("exhibits.table1.kind", "acuracy", ": 'acuracy' is … did you mean 'accuracy'?"),
    ("exhibits.table1.benchmark", "x", ": unknown key; did you mean 'benchmarks'"),
    # bases that lead nowhere
    ("models.tiny_long.base.model", "tiny_full",
     ": 'tiny_full' is not a model of this study with a ba"),
    ("models.tiny.sft.data", "openmath", ": 'openmath' is not a data set of"),
    ("models.tiny_long.algorithms", ["grpo_released"],
     "[0]: 'grpo_released' refers to the model before SFT, but this"),
    ("models.tiny.base", {"source": "hub", "repository": "a/b"},
     "models.tiny: sft needs data or corpus: only a"),
    ("models.tiny_long.base", {"source": "folder", "folder": "~no_such_user/own"},
     ".folder: … ~no_such_user/own does not exist; give the path of the model's folder"),
    ("models.tiny_long.base", {"source": "folder", "folder": "a" * 300},
     ".folder: … aaa does not exist; give the path of the model's folder"),
    # what training would fail on
    ("exhibits.table4.algorithms", ["grpo", "grpo_branch_released"],
     "exhibits.table4: 'grpo_branch_released' refers to the model before SFT, but this"),
    ("models.tiny.rl.prompts_per_step", 17,
     "models.tiny.rl.problems: 'arithmetic_train' has 16 problems, but a generation takes"),
    ("models.tiny_long.rl.prompts_per_step", 17,
     "models.tiny_long.rl.problems: 'arithmetic_train' has 16 problems, but a generation t"),
    ("models.tiny_long.rl.sampling.max_tokens", 256,
     ": 256 leaves no room for a prompt in the max_p"),
    ("models.tiny_long.evaluation.sampling.max_tokens", 300,
     ": 300 leaves no room for a prompt in"),
    # what people wrote
    ("evaluation.samples", 10**20, ": must be at most 1000000000, not 1000000000000000000"),
    ("models.tiny.rl.steps", 10**12, ": must be at most 1000000000, not 1000000000000"),
    ("problems.arithmetic.count", 100_000, ": 100000, but only … lower it, or widen these"),
    ("models.tiny.rl.steps", -1, ": must be at least 1, not -1"),
    ("models.tiny.rl.learning_rate", float("nan"), ": must be a finite number, not nan"),
    ("models.tiny.rl.beta", 0.05, ": unknown key; did you mean 'kl_coefficient'?"),
    ("models.tiny.job", {"memory_gb": "64GB"},
     ".memory_gb: must be an integer, not '64GB'; write the number alone, 64: "),
    ("models.tiny.rl.micro_batches", 7,
     "models.tiny.rl: micro_batches 7 must divide the completions of a step, prompts_per_step x "
     "rollouts = 32"),
    ("evaluation.dtype", "bf16", ": 'bf16' is not allowed; did you mean 'bfloat16'?"),
    ("evaluation.engine", "vlm", ": 'vlm' is not allowed; did you mean 'vllm'?"),
    ("evaluation.sampling.temperature", 0, ": must be above 0.0, not 0"),
    ("models.tiny.base", {"source": "hub", "repository": "Qwen2.5-3B", "revision": "a"},
     ".repository: … owner/name … not 'Qwen2.5-3B' … config/README.md"),
    ("models.tiny.base", {"source": "hub", "repository": "/my/model", "revision": "a"},
     ".repository: … not '/my/model' … files of this machine"),
    ("models.tiny.benchmarks", "arithmetic", ": must be a list, not 'arithmetic'; write [arith"),
    ("problems.harder", {"source": "benchmark", "benchmark": "math5000", "title": "x"},
     ".benchmark: 'math5000' is not a benchmark of … benchmarks.yaml; did you mean 'math500'?"),
    ("models.tiny.base", {"source": "huggingface", "repository": "a/b"},
     ".source: 'huggingface' is not allowed; did you mean 'hub'?"),
    ("models.tiny.base", {"repository": "a/b"}, ".source: missing; allowed: folder, hub, "),
    ("problems.harder", {"source": "file", "title": "x", "file": "mine.csv"},
     ".file: … mine.csv does not exist; give its path from"),
    ("problems.harder", {"source": "file", "title": "x", "file": "mine.txt"},
     ".file: … mine.txt: must end in .csv, .jsonl, .parquet; convert it"),
]  # fmt: skip
"""Key, wrong value, and what is said: behind the key where it begins with one of `:.[`, and with …
for what is not compared."""

OF_ALGORITHMS: list[tuple[str, Any, str]] = [
    ("base", ROW, ": this name is kept for the policy before RL; choose another"),
    ("grpo 2", ROW, "a key must begin with a letter from A to Z … not 'grpo 2'"),
    ("grpo", None, ": must be a mapping of keys to values, not empty"),
    ("grpo.loss", "grop",
     ": 'grop' is not allowed; did you mean 'grpo'? Allowed: bnpo, dapo, dr_grpo"),
    ("grpo.kl", False, ": false is not allowed; allowed: "),
    ("grpo.guyde", {}, ": unknown key; did you mean 'guide'? Allowed: "),
    ("grpo.estimator", "sampled",
     "grpo: estimator 'sampled' does not go with kl 'reverse'; allowed: k2, k3, k3_corrected"),
    ("grpo_branch.guide.kind", "brunch",
     ": 'brunch' is not a guide, nor module:Class of one; did you"),
    ("grpo_branch.guide", {"kind": "mine:Guide"},
     ".kind: 'mine:Guide' cannot be imported … the module a file beside the Snakefile"),
    ("grpo_branch.guide.settings.ration", 0.3,
     ": unknown key; did you mean 'ratio'? Allowed: entropy_o"),
    ("grpo_branch.guide.settings.ratio", "3e-1",
     ": must be a number, not '3e-1', which YAML reads as text; write 3.0e-1"),
    ("grpo_branch.guide.settings.ratio", -0.5, ": must be at least 0.0, not -0.5"),
    ("grpo_k2.estimator", "k4",
     ": 'k4' is not an estimator, nor module:Class of one; did you mean 'k"),
    ("dapo_full.rewards.1.settings", {}, ".margin_tokens: missing"),
    ("pacs.clip_high", 0.2,
     "pacs: credit: pacs is a loss without ratios, which a clip would cut to none; write"),
    ("grpo.rewards", ["correct", "tagged", "correct"], "grpo: rewards[2]: correct occurs twice"),
    ("bnpo_beta.rewards", ["correct", {"kind": "overlong", "settings": {"margin_tokens": 4}}],
     "bnpo_beta: advantage: beta fits a Beta density to success rates, so rewards must be [corr"),
    ("grpo_branch.guide.clamp", [1.4, 0.6], ": must be [lowest, highest], not [1.4, 0.6]"),
    ("grpo_branch.kl", "none",
     "grpo_branch: a guide shapes the anchor of the KL term, but kl is 'none'"),
    ("grpo_branch.kl", "forward",
     "grpo_branch: estimator 'k3' does not go with kl 'forward'; allowed: sampled, exact"),
    ("dars.advantage", "w_reinforce",
     "dars: planner: dars drops prompts without a right rollout, which advantage w_reinforce "
     "learns from"),
    ("dapo_no_kl.fidelity", "released", "dapo_no_kl: fidelity 'released' differs in the KL term"),
    ("grpo_no_kl.kl_coefficient", 0.1, "grpo_no_kl: estimator and kl_coefficient need a KL term"),
]  # fmt: skip

FAULTS = [(STUDY, *row) for row in OF_STUDY] + [(ALGORITHMS, *row) for row in OF_ALGORITHMS]


@pytest.mark.parametrize(
    ("file", "key", "value", "said"), FAULTS, ids=[f"{row[1]}={row[2]!r:.20}" for row in FAULTS]
)
def test_a_mistake_is_named_with_its_remedy(
    config: Path, file: str, key: str, value: Any, said: str
) -> None:
    edit(config / file, key, value)
    heading, found, closing = message_of(lambda: load_study("smoke", config)).splitlines()
    shown = re.sub(r"\.(\d+)", r"[\1]", key)
    first, *parts = (shown + said if said[0] in ":.[" else said).split(" … ")
    assert heading == f"{config / file}: 1 fault"
    assert found.startswith(f"  {first}")
    assert [part for part in parts if part not in found] == []
    assert re.search(r" \(line \d+\)$", found) or value is DROPPED or key == "grpo 2"
    assert closing.startswith("Every key is explained in config/schemas")


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        (
            "rl",
            {
                "correction": "token",
                "sampling": {"temperature": 1.0, "max_tokens": 9, "min_p": 0.1},
            },
            ".rl: correction token compares the trainer's probabilities with the sampler's, which "
            "are behind min_p; set correction: none, or",
        ),
        (
            "sft",
            {"data": "openmathreasoning_mini", "corpus": DROPPED},
            ".sft: data and corpus both say where the examples come from; leave one out",
        ),
    ],
)
def test_settings_that_contradict_one_another_are_named(
    config: Path, section: str, changes: dict[str, Any], said: str
) -> None:
    tiny = yaml.safe_load((config / STUDY).read_text())["models"]["tiny"]
    for key, value in changes.items():
        own = tiny["base"]["corpus"] if value is DROPPED else value
        edit(config / STUDY, f"models.tiny.{section}.{key}", own)
    assert f"models.tiny{said}" in message_of(lambda: load_study("smoke", config))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "evaluation.sampling.max_tokens",
            256,
            "evaluation.sampling.max_tokens: 256 leaves no room for a prompt in the max_positions "
            "256 of the base of 'tiny'; lower it, or raise base.architecture.max_positions (line ",
        ),
        (
            "models.tiny.rl.lora",
            {"r": 8, "alpha": 16},
            "models.tiny.rl.lora.r: unknown key; did you mean 'rank'? Allowed: alpha, rank (line ",
        ),
    ],
)
def test_a_mistake_that_is_one_of_two_faults_is_named(
    config: Path, key: str, value: Any, said: str
) -> None:
    edit(config / STUDY, key, value)
    message = message_of(lambda: load_study("smoke", config))
    assert message.startswith(f"{config / STUDY}: 2 faults\n")
    assert f"\n  {said}" in message


def test_a_fault_in_a_union_of_plain_types_keeps_its_key() -> None:
    assert type_faults(dict[str, dict[str, float | str]], {"settings": {"ratio": [1]}}) == [
        "settings.ratio: must be a number, not [1]",
        "settings.ratio: must be text, not [1]",
    ]
