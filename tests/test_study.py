"""Reading a study: what is committed loads, and a mistake is named with its remedy.

Each mistake is one edit of a copy of `config/`. The file is edited as data where only the value
matters, and as text where it is the YAML that is at fault.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from benchmarks.paper_files import write_study
from sage.exhibits import load_study
from sage.problems.corpus import ARITHMETIC_STYLES
from sage.study import RL, StudyError, bases, load_settings
from sage.study.faults import type_faults

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))
STUDY, ALGORITHMS = "studies/smoke.yaml", "algorithms.yaml"
DROPPED = object()
ROW = {"title": "A new row", "loss": "grpo", "kl": "none"}
JARGON = re.compile(
    r"pydantic|input should|dictionary|instance of|discriminator|\btag\b|validation|value error"
    r"|__init__|argument|NoneType|fault\(s\)"
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A copy of `config/` to edit."""
    return Path(shutil.copytree(ROOT / "config", tmp_path / "config"))


def edit(file: Path, key: str, value: Any) -> None:
    """Set (or drop) the value at a dotted key of a YAML file."""
    content = yaml.safe_load(file.read_text())
    *parents, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    section = content
    for part in parents:
        section = section[part]
    if value is DROPPED:
        del section[last]
    else:
        section[last] = value
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def message_of(action: Callable[[], object]) -> str:
    """The message of the StudyError that `action` raises, in words for users."""
    with pytest.raises(StudyError) as caught:
        action()
    message = str(caught.value)
    assert not JARGON.search(message), message
    return message


@pytest.mark.parametrize("name", STUDIES)
def test_a_committed_study_loads(name: str) -> None:
    study = load_study(name, ROOT / "config")
    assert study.name == name
    used = {row for model in study.study.models for row in study.trained(model)}
    assert set(study.algorithms) == used


def test_methods_are_compared_in_the_world_of_the_default_study() -> None:
    """A study includes no other, so what they share is written twice."""
    default, methods = (load_study(name, ROOT / "config").study for name in ("mini", "methods"))
    assert methods.models["tiny"].base == default.models["tiny"].base
    assert methods.models["tiny"].sft == default.models["tiny"].sft
    name = methods.models["tiny"].rl.problems
    hinted = default.problems[name].model_copy(update={"hints": True})  # for guided_retry
    assert methods.problems[name] == hinted
    (benchmark,) = methods.models["tiny"].benchmarks
    part = default.problems[benchmark].model_copy(update={"count": 60})
    assert methods.problems[benchmark] == part


def test_a_study_can_be_a_file_of_ones_own(config: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    shutil.copy(config / STUDY, mine)
    edit(mine, "models.tiny.rl.steps", 7)
    study = load_study(str(mine), config)
    assert (study.name, study.option) == ("mine", str(mine))  # and so it is asked for again
    assert study.model("tiny").rl.steps == 7
    assert load_study("smoke", config).option == "smoke"


def test_the_study_that_rendering_is_measured_with_is_one(tmp_path: Path) -> None:
    write_study(tmp_path / "large.yaml", ROOT / "config/studies/paper.yaml")
    large, paper = (
        load_study(study, ROOT / "config") for study in (str(tmp_path / "large.yaml"), "paper")
    )
    assert large.study.exhibits.keys() == paper.study.exhibits.keys()
    assert len(large.study.seeds) == 5


def test_rows_start_with_the_policy_before_rl() -> None:
    study = load_study("smoke", ROOT / "config")
    assert study.rows("tiny") == ["base", *study.model("tiny").algorithms]


def test_styles_of_the_corpus_are_those_a_study_may_name() -> None:
    assert get_args(bases.Style) == ARITHMETIC_STYLES


FAULTS = [
    # unknown and missing keys
    (STUDY, "sedes", [1], "sedes: unknown key; did you mean 'seeds'? Allowed: contamin"),
    (STUDY, "models.tiny.rl.stepz", 4, "models.tiny.rl.stepz: unknown key; did you mean 'steps'?"),
    (
        STUDY,
        "problems.knights.per_sise",
        3,
        "problems.knights.per_sise: unknown key; did you mean 'per_size'? Allowed: forms, hints, ",
    ),
    (STUDY, "problems.knights.villages", 3, "problems.knights.villages: unknown key; allowed: fo"),
    (STUDY, "models.tiny.base.scratch", 3, "models.tiny.base.scratch: unknown key; "),
    (STUDY, "models.tiny.rl.kl_coefficient", DROPPED, "models.tiny.rl.kl_coefficient: missing"),
    (
        STUDY,
        "problems.knights.source",
        DROPPED,
        "problems.knights.source: missing; allowed: arithmetic, benchmark, knights",
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
    (STUDY, "seeds", [], "seeds: must have 1 or more entries, not []"),
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
        "arithmetic, benchmark, knights",
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
        "models.tiny.algorithms[2]: 'grpo_brunch' is not an algorithm of ",
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
        "models.tiny.seeds: 'grpoo' is not an algorithm that this model is trained with; did you",
    ),
    (STUDY, "seeds", [1, 2, 1], "seeds[2]: 1 occurs twice"),
    (STUDY, "evaluation.seeds", [0, 0], "evaluation: seeds [0, 0]: each may stand there only once"),
    (
        STUDY,
        "models.tiny.algorithms",
        ["grpo", "grpo"],
        "models.tiny.algorithms[1]: 'grpo' occurs twice",
    ),
    (STUDY, "problems.knights.people", [3, 3], "problems.knights.people[1]: 3 occurs twice"),
    # algorithms
    (ALGORITHMS, "base", ROW, "base: this name is kept for the policy before RL; choose another"),
    (ALGORITHMS, "grpo 2", ROW, "a key must match ^[A-Za-z0-9]"),
    (ALGORITHMS, "grpo", None, "grpo: must be a mapping of keys to values, not empty"),
    (
        ALGORITHMS,
        "grpo.loss",
        "grop",
        "grpo.loss: 'grop' is not allowed; did you mean 'grpo'? Allowed: bnpo, cispo, dapo, ",
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
        "grpo_branch.guide.settings.ration: unknown key; did you mean 'ratio'? Allowed: ratio, thr",
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
        "grpo_branch.guide.settings: ratio -0.5 and threshold 1.2 must not be negative",
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
    assert closing == "Every key is explained in config/README.md."


def test_rl_refuses_dropout_by_which_its_passes_would_differ() -> None:
    settings = load_study("smoke", ROOT / "config").model("tiny").rl.model_dump()
    settings["lora"]["dropout"] = 0.1
    (fault,) = type_faults(RL, settings, "rl")
    assert fault.startswith("rl: lora.dropout 0.1 must be 0 in RL: rollouts, old log-probs and")


def test_a_misspelt_algorithm_brings_file_and_nearest_match(config: Path) -> None:
    edit(config / STUDY, "models.tiny.algorithms", ["grpo_brunch"])
    assert (
        f"'grpo_brunch' is not an algorithm of {config / ALGORITHMS}; did you mean 'grpo_branch'?"
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


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("grpo_branch.kl", "forward", "allowed: sampled, exact"),
        ("dapo_no_kl.importance", "sequence", "allowed: token"),
        ("dapo_no_kl.fidelity", "released", "differs in the KL term"),
        ("grpo_no_kl.kl_coefficient", 0.1, "need a KL term"),
    ],
)
def test_settings_of_a_row_that_contradict_each_other_are_refused(
    config: Path, key: str, value: Any, reason: str
) -> None:
    edit(config / ALGORITHMS, key, value)
    assert reason in message_of(lambda: load_study("smoke", config))


def test_micro_batches_must_divide_a_step(config: Path) -> None:
    edit(config / STUDY, "models.tiny.rl.micro_batches", 7)
    assert "models.tiny.rl: micro_batches 7 must divide the completions of a step" in message_of(
        lambda: load_study("smoke", config)
    )


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("1e-3", "'1e-3', which YAML reads as text; write 1.0e-3"),
        ("1.5e3", "'1.5e3', which YAML reads as text; write 1.5e+3"),
        ("'0.001'", "'0.001', which YAML reads as text; write 0.001"),
        ("fast", "'fast'"),
    ],
)
def test_a_number_that_yaml_reads_as_text_is_told_how_to_be_written(
    config: Path, written: str, remedy: str
) -> None:
    file = config / STUDY
    lines = file.read_text().splitlines()
    index = next(i for i, line in enumerate(lines) if "learning_rate:" in line)
    lines[index] = f"{lines[index].partition(':')[0]}: {written}"
    file.write_text("\n".join(lines))
    message = message_of(lambda: load_study("smoke", config))
    assert re.search(rf"learning_rate: must be a number, not {re.escape(remedy)}$", message, re.M)
    suggested = remedy.rpartition("write ")[2]
    assert (suggested == "'fast'") or isinstance(yaml.safe_load(suggested), float)


def test_faults_of_every_kind_and_file_are_reported_at_once(config: Path) -> None:
    edit(config / STUDY, "models.tiny.rl.stepz", 4)
    edit(config / STUDY, "models.tiny.rl.rollouts", 0)
    edit(config / STUDY, "models.tiny.benchmarks.0", "arithmetik")
    edit(config / STUDY, "seeds", [1, 1])
    edit(config / ALGORITHMS, "grpo.clip_low", 0)
    lines = message_of(lambda: load_study("smoke", config)).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == [
        str(config / STUDY),
        "models.tiny.rl.rollouts",
        "models.tiny.rl.stepz",
        "models.tiny.benchmarks[0]",
        "seeds[1]",
        str(config / ALGORITHMS),
        "grpo.clip_low",
        "Every key is explained in config/README.md.",
    ]
    assert lines[0].endswith("4 faults")
    assert lines[5].endswith("1 fault")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title: [Smoke\nnotice: x\n", ", line 2, column 7: not valid YAML: "),
        ("title: a\n\tnotice: b\n", ", line 2, column 1: not valid YAML: "),
        ("title: a\ntitle: b\n", ", line 2, column 1: not valid YAML: key 'title' occurs twice"),
        ("- a\n- b\n", ": must be a mapping of keys to values, not ['a', 'b']"),
        ("", ": must be a mapping of keys to values, not empty"),
    ],
)
def test_a_file_that_is_no_mapping_is_named_with_the_place(
    config: Path, text: str, fault: str
) -> None:
    (config / STUDY).write_text(text)
    assert message_of(lambda: load_study("smoke", config)).startswith(f"{config / STUDY}{fault}")


def test_a_file_that_is_not_text_is_named(config: Path) -> None:
    (config / STUDY).write_bytes(b"title: \x00\xff\n")
    message = message_of(lambda: load_study("smoke", config))
    assert message.startswith(f"{config / STUDY}: not valid YAML: ")


def test_a_missing_file_is_named(config: Path) -> None:
    (config / ALGORITHMS).unlink()
    assert message_of(lambda: load_study("smoke", config)) == (
        f"{config / ALGORITHMS}: cannot be read: No such file or directory"
    )


def test_an_unknown_study_brings_the_nearest_name(config: Path) -> None:
    assert message_of(lambda: load_study("smok", config)) == (
        f"config/config.yaml: study: 'smok' is neither a study in {config / 'studies'} nor a YAML "
        f"file; did you mean 'smoke'? Allowed: {', '.join(STUDIES)}"
    )


def test_a_model_whose_name_cannot_be_a_folder_is_refused(config: Path) -> None:
    content = yaml.safe_load((config / STUDY).read_text())
    content["models"]["my model"] = content["models"].pop("tiny")
    (config / STUDY).write_text(yaml.safe_dump(content))
    message = message_of(lambda: load_study("smoke", config))
    assert message.splitlines()[1].startswith("  models: a key must match ^[A-Za-z0-9]")
    assert "not 'my model'" in message


def test_the_name_of_a_file_must_do_as_the_name_of_a_folder(config: Path) -> None:
    mine = config / "my study.yaml"
    shutil.copy(config / STUDY, mine)
    assert "the name of the file: must match ^[A-Za-z0-9]" in message_of(
        lambda: load_study(str(mine), config)
    )


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            {"study": "mini", "studdy": "smoke"},
            "studdy: unknown key; did you mean 'study'? Allowed: device, mirror, publish_to, "
            "reference, results, study, tracking",
        ),
        (
            {"study": "mini", "device": "gpu"},
            "device: 'gpu' is not allowed; did you mean 'cpu'? Allowed: auto, cpu, cuda",
        ),
        ({"study": 3}, "study: must be text, not 3"),
        ({}, "study: missing"),
    ],
)
def test_settings_of_the_machine_are_checked_too(content: dict[str, Any], fault: str) -> None:
    assert message_of(lambda: load_settings(content)).splitlines()[:2] == [
        "config/config.yaml: 1 fault",
        f"  {fault}",
    ]


def test_the_committed_settings_are_valid() -> None:
    content = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    assert load_settings(content).model_dump() == content


def test_a_fault_in_a_union_of_plain_types_keeps_its_key() -> None:
    assert type_faults(dict[str, dict[str, float | str]], {"settings": {"ratio": [1]}}) == [
        "settings.ratio: must be a number, not [1]",
        "settings.ratio: must be text, not [1]",
    ]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("models.tiny.algorithms.0", ["grpo"], "models.tiny.algorithms[0]: must be text, not ['g"),
        ("readings", {"sft_loss": ["text"]}, "readings.sft_loss: must be text, not ['text']"),
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


EXHIBIT_FAULTS = [
    ("table1.model", "tony", "exhibits.table1.model: 'tony' is not a model of this study; did"),
    ("table3.algorithms", ["base", "grop"], "exhibits.table3.algorithms[1]: 'grop' is not an alg"),
    ("table5.algorithms", ["base"], "exhibits.table5.algorithms[0]: 'base' is not an algorithm"),
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


def test_exhibits_decide_what_is_trained_and_sampled_once() -> None:
    study = load_study("smoke", ROOT / "config")
    assert study.trained("tiny")[:2] == ["grpo", "grpo_no_kl"]
    assert "grpo_branch-threshold0.8-ratio0.3" in study.trained("tiny")
    assert "grpo_branch-threshold1.2-ratio0.3" not in study.algorithms  # grpo_branch itself
    assert study.rows_of("table6") == ["grpo_branch-threshold0.8-ratio0.3", "grpo_branch"]
    assert study.rows_of("table5") == ["grpo", "grpo_branch", "grpo_no_kl"]
    assert study.rows_of("table9") == ["base", "grpo", "grpo_branch"]
    pairs = study.evaluated("tiny")
    assert len(pairs) == len(set(pairs))
    assert ("grpo_token", "longer") not in pairs
    assert ("grpo", "longer") in pairs
    assert study.snapshots("tiny", "grpo") == 2
    assert study.snapshots("tiny", "grpo_token") == 0


def test_the_examples_of_the_documentation_work(config: Path) -> None:
    examples = re.findall(r"```yaml\n(.+?)```", (config / "README.md").read_text(), re.S)
    # tests/test_growth.py and tests/test_crediting.py run the others
    algorithm = examples[0]
    problems, *more = [text for text in examples if text.startswith("problems:")]
    (entry,) = [text for text in examples if text.startswith("gsm8k:")]
    for file, text in ((ALGORITHMS, algorithm), ("benchmarks.yaml", entry)):
        (config / file).write_text((config / file).read_text() + text)
    (name,), (data_set,) = yaml.safe_load(algorithm), yaml.safe_load(entry)
    (benchmark,) = yaml.safe_load(problems)["problems"]
    edit(config / STUDY, f"problems.{benchmark}", yaml.safe_load(problems)["problems"][benchmark])
    for text in more:
        for other, settings in yaml.safe_load(text)["problems"].items():
            edit(config / STUDY, f"problems.{other}", settings)
    public = {"source": "benchmark", "title": "Public", "benchmark": data_set}
    edit(config / STUDY, "problems.public", public)
    edit(config / STUDY, "models.tiny.algorithms", [name])
    edit(config / STUDY, "models.tiny.benchmarks", [benchmark, "public"])
    study = load_study("smoke", config)
    assert study.rows("tiny") == ["base", name]
    assert set(study.benchmarks) == {data_set}
    assert study.model("tiny").benchmarks == [benchmark, "public"]
