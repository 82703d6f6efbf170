"""A study's files: YAML that is at fault, names that do not do, and every fault in one message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from study_edits import ALGORITHMS, FOLLOW_UPS, ROOT, STUDIES, STUDY, edit, message_of

from sage.exhibits import load_study
from sage.study import load_settings


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
    fault = rf"learning_rate: must be a number, not {re.escape(remedy)} \(line {index + 1}\)$"
    assert re.search(fault, message, re.M)
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
        "Every key is explained in config/schemas; `make docs` makes pages of them.",
    ]
    assert lines[0].endswith("4 faults")
    assert lines[5].endswith("1 fault")


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
"""Nine levels of ten aliases: short as YAML, a thousand million values as text."""
BOMB += (ROOT / "config" / STUDY).read_text().replace("title: Smoke study", "title: *a8", 1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title: [Smoke\nnotice: x\n", ", line 2, column 7: not valid YAML: "),
        ("title: a\n\tnotice: b\n", ", line 2, column 1: not valid YAML: "),
        ("title: a\ntitle: b\n", ", line 2, column 1: not valid YAML: key 'title' occurs twice"),
        ("title: 2024-99-99\n", ", line 1, column 8: not valid YAML: '2024-99-99' is not a date"),
        (f"title: {'9' * 5000}\n", ", line 1, column 8: not valid YAML: '999"),
        ("title: !!float abc\n", ", line 1, column 8: not valid YAML: 'abc' is not a number"),
        ("seeds: [010]\n", ", line 1, column 9: not valid YAML: '010' is not a number that can"),
        ("seeds: [1:30]\n", ", line 1, column 9: not valid YAML: '1:30' is not a number that "),
        ("title: !!bool abc\n", ", line 1, column 8: not valid YAML: 'abc' is not true or false"),
        ("a: [!!timestamp b]\n", ", line 1, column 5: not valid YAML: 'b' is not a date; for te"),
        ('a:\n  b: "c\\e"\n', ", line 2, column 6: not valid YAML: 'c\\x1b' is not text that can"),
        (f"extends: {'a' * 5000}\n", ": extends: 'aaa"),
        (BOMB, ": 10 faults\n  title: must be text, not [[[[[[[[['x', 'x', "),
        (b"title: \x00\xff\n", ": not valid YAML: "),
        ("- a\n- b\n", ": must be a mapping of keys to values, not ['a', 'b']"),
        ("", ": must be a mapping of keys to values, not empty"),
    ],
)
def test_a_file_that_is_no_mapping_is_named_with_the_place(
    config: Path, text: str | bytes, fault: str
) -> None:
    (config / STUDY).write_bytes(text.encode() if isinstance(text, str) else text)
    assert message_of(lambda: load_study("smoke", config)).startswith(f"{config / STUDY}{fault}")


def test_a_missing_file_is_named(config: Path) -> None:
    (config / ALGORITHMS).unlink()
    assert message_of(lambda: load_study("smoke", config)) == (
        f"{config / ALGORITHMS}: cannot be read: No such file or directory"
    )


def test_an_unknown_study_brings_the_nearest_name(config: Path) -> None:
    assert message_of(lambda: load_study("smok", config)) == (
        f"study: 'smok' is neither a study in {config / 'studies'} nor a YAML "
        f"file; did you mean 'smoke'? Allowed: {', '.join(STUDIES)}"
    )


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            {"study": "mini", "studdy": "smoke"},
            "studdy: unknown key; did you mean 'study'? Allowed: device, kept, mirror, "
            "pretrain, results, set, study, tracking",
        ),
        (
            {"study": "mini", "device": "gpu"},
            "device: 'gpu' is not allowed; did you mean 'cuda'? Allowed: auto, cpu, cuda",
        ),
        (
            {"study": 3},
            "study: must be text, not 3, which YAML reads as a number, or true or false; put it in "
            "quotes: '3'",
        ),
        (
            {"study": "mini", "seeds": [1]},
            "seeds: is a setting of the study; write --config 'set=seeds=VALUE'",
        ),
        ({}, "study: missing"),
        ({"study": "smoke", "set": 3}, "set: must be a list, not 3; write [3]"),
    ],
)
def test_settings_of_the_machine_are_checked_too(content: dict[str, Any], fault: str) -> None:
    assert message_of(lambda: load_settings(content)).splitlines()[:2] == [
        "config/config.yaml, or --config: 1 fault",
        f"  {fault}",
    ]


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("dose_more", "reports/dose/dose_more/study.yaml"),
        ("config/studies/dose_more.yaml", "reports/dose/dose_more/study.yaml"),
        ("equal_accuracy", "early_stopping"),
    ],
)
def test_a_study_that_has_moved_is_named_with_its_place(
    typed: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    message = message_of(lambda: load_study(typed, Path("config")))
    assert message == f"study: {typed!r} has moved: study={place}"


def test_a_study_in_a_folder_of_its_own_is_called_as_the_folder() -> None:
    study = load_study(FOLLOW_UPS["dose_more"], ROOT / "config")
    assert (study.name, study.option) == ("dose_more", FOLLOW_UPS["dose_more"])


@pytest.mark.parametrize("name", ["sizes_large", "mini"])
def test_a_file_of_claims_that_is_in_its_study_now_is_named(config: Path, name: str) -> None:
    edit(config / STUDY, "claims", f"config/claims_{name}.yaml")
    assert f"are in their study now, study={name}; write them here" in message_of(
        lambda: load_study("smoke", config)
    )


SHARED_ON_PURPOSE = {("sizes", "sizes_large"), ("long_bases", "pretrained_plain")}
"""Studies whose sheets have the same seeds, as a page of theirs says."""

DESIGN = {"candidates", "matched_tuning", "rivals_tuning", "sums"}
"""Studies on design problems, on which choices are made and no verdict rests: they share them."""


@pytest.mark.parametrize("problems", ["sheets", "sheets_train"])
def test_problems_of_a_study_are_not_those_of_another(problems: str) -> None:
    """What a study calls fresh must not have been drawn before."""
    by_seed: dict[int, list[str]] = {}
    files = {name: str(ROOT / f"config/studies/{name}.yaml") for name in STUDIES} | FOLLOW_UPS
    for name, file in sorted(files.items()):
        own = yaml.safe_load(Path(file).read_text(encoding="utf-8")).get("problems") or {}
        if seed := (own.get(problems) or {}).get("seed"):
            by_seed.setdefault(seed, []).append(name)
    by_seed = {seed: names for seed, names in by_seed.items() if not DESIGN.issuperset(names)}
    shared = {tuple(names) for names in by_seed.values() if len(names) > 1}
    assert len(by_seed) > 10
    assert shared == SHARED_ON_PURPOSE
