"""Mistakes that people made, each with what its message must say: the thing and the way out.

A row is one mistake. `MISTAKES` are of a study's file or of `--set`, `MACHINE` of config.yaml or
`--config`, `RUNS` are those that Snakemake would answer with a traceback or a rule's file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import copy_project, snakemake_in
from study_edits import ALGORITHMS, ROOT, STUDY, edit, message_of

from sage.exhibits import load_study
from sage.study import load_settings

WRAPPERS = re.compile(r"Traceback|WorkflowError|MissingRuleException|common\.smk|, line \d+, in <")

Edit = Callable[[Path], object]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A copy of `config/` to edit."""
    return Path(shutil.copytree(ROOT / "config", tmp_path / "config"))


def value(key: str, new: object, file: str = STUDY) -> Edit:
    return lambda config: edit(config / file, key, new)


def text(old: str, new: str, file: str = STUDY) -> Edit:
    def change(config: Path) -> None:
        content = (config / file).read_text()
        assert old in content
        (config / file).write_text(content.replace(old, new, 1))

    return change


MISTAKES: list[tuple[str, Edit, tuple[str, ...]]] = [
    (
        "a repository without its owner",
        value("models.tiny.base", {"source": "hub", "repository": "Qwen2.5-3B", "revision": "a"}),
        ("models.tiny.base.repository", "owner/name", "not 'Qwen2.5-3B'", "config/README.md"),
    ),
    (
        "a local path as a repository",
        value("models.tiny.base", {"source": "hub", "repository": "/my/model", "revision": "a"}),
        ("models.tiny.base.repository", "not '/my/model'", "files of this machine"),
    ),
    (
        "a model's name with letters of another alphabet",
        text("  tiny:\n", "  größe:\n"),
        ("a key must begin with a letter from A to Z", "not 'größe'"),
    ),
    (
        "a date as a title",
        text("title: Smoke study", "title: 2026-01-01"),
        ("title: must be text, not 2026-01-01", "reads as a date; put it in quotes: '2026-01-01'"),
    ),
    (
        "a number as a title",
        text("title: Smoke study", "title: 7"),
        ("title: must be text, not 7", "put it in quotes: '7'", "(line "),
    ),
    (
        "a colon in a title",
        text("title: Smoke study", "title: Smoke: a study"),
        ("smoke.yaml, line ", "a colon with a space behind it", "quotes: 'first: second'"),
    ),
    (
        "an alias that is nowhere",
        text("title: Smoke study", "title: *nowhere"),
        ("smoke.yaml, line ", "*nowhere stands for nothing: no &nowhere comes before it"),
    ),
    (
        "a tab",
        text("title: Smoke study\n", "title: Smoke study\n\tnotice: x\n"),
        ("smoke.yaml, line ", "not valid YAML: "),
    ),
    (
        "a percent sign as the start of a value",
        text("title: Smoke study", "title: %smoke"),
        ("smoke.yaml, line ", "cannot begin a value; put it in quotes"),
    ),
    (
        "10^20 samples",
        value("evaluation.samples", 10**20),
        ("evaluation.samples: must be at most 1000000000, not 1000000000000000000", "(line "),
    ),
    (
        "10^12 steps",
        value("models.tiny.rl.steps", 10**12),
        ("models.tiny.rl.steps: must be at most 1000000000, not 1000000000000", "(line "),
    ),
    (
        "more sums than there are",
        value("problems.arithmetic.count", 100_000),
        ("problems.arithmetic.count: 100000, but only ", "lower it, or widen these", "(line "),
    ),
    (
        "a method's name with a space",
        value("grpo 2", {"title": "x", "loss": "grpo", "kl": "none"}, ALGORITHMS),
        ("a key must begin with a letter from A to Z", "not 'grpo 2'"),
    ),
    (
        "a misspelt setting",
        value("models.tiny.rl.stepz", 4),
        ("models.tiny.rl.stepz: unknown key; did you mean 'steps'?", "(line "),
    ),
    (
        "a misspelt method",
        text("grpo_no_kl, ", "grpo_nokl, "),
        ("models.tiny.algorithms[1]: 'grpo_nokl'", "did you mean 'grpo_no_kl'", "(line "),
    ),
    (
        "a number that YAML reads as text",
        text("learning_rate: 1.0e-3", "learning_rate: 1e-3"),
        ("learning_rate: must be a number, not '1e-3'", "write 1.0e-3", "(line "),
    ),
]


@pytest.mark.parametrize(("mistake", "change", "said"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_a_mistake_in_a_study_is_named(
    config: Path, mistake: str, change: Edit, said: tuple[str, ...]
) -> None:
    change(config)
    message = message_of(lambda: load_study("smoke", config))
    assert [part for part in said if part not in message] == [], message
    assert not WRAPPERS.search(message)
    assert "^[" not in message  # a regular expression is no way out


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("smok", "did you mean 'smoke'?"),
        ("configs/studies/smoke.yaml", "does not exist (seen from"),
        ("LICENSE", "is no YAML file; a study's name ends in .yaml or .yml"),
        ("my study.yaml", "the name of the file: must begin with a letter from A to Z"),
    ],
)
def test_a_study_that_cannot_be_found_is_named(
    config: Path, study: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(config / STUDY, config / "my study.yaml")
    (config / "LICENSE").touch()
    monkeypatch.chdir(config)
    message = message_of(lambda: load_study(study, config))
    assert said in message
    assert "config/config.yaml" not in message  # it may come from the command line


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rl.steps", "--set rl.steps: must be KEY=VALUE, such as --set rl.steps=10"),
        ("rl.stepz=1", "models.tiny.rl.stepz: unknown key; did you mean 'steps'?"),
        ("rll.steps=1", "--set rll.steps=1: no setting 'rll'; did you mean 'rl'?"),
        ("rl.steps=ten", "models.tiny.rl.steps: must be an integer, not 'ten'"),
        ("models.tini.rl.steps=1", "no model 'tini'; did you mean 'tiny'?"),
        ("models=3", "models: must be a mapping of keys to values, not 3"),
        ("seeds=[1", "--set seeds=[1, line "),
        ("evaluation.samples=100000000000000000000", "must be at most 1000000000, not 1"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_as_in_a_file(override: str, said: str) -> None:
    message = message_of(lambda: load_study("smoke", ROOT / "config", [override]))
    assert said in message
    assert f"--set {override}" in message


MACHINE = [
    ({"study": "smoke", "device": "gpu"}, "device: 'gpu' is not allowed; did you mean 'cuda'?"),
    ({"study": "smoke", "studdy": "x"}, "studdy: unknown key; did you mean 'study'?"),
    ({"study": "smoke", "set": 3}, "set: must be a list, not 3"),
    ({"study": "smoke", "publish_to": "me/you"}, "publish_to: must begin with a letter"),
]


@pytest.mark.parametrize(("content", "said"), MACHINE)
def test_a_mistake_in_the_machines_settings_is_named(content: dict[str, object], said: str) -> None:
    message = message_of(lambda: load_settings(content))
    assert said in message
    assert message.startswith("config/config.yaml, or --config: 1 fault")


RUNS = [
    (("tabel1", "--config", "study=smoke"), "'tabel1' is no target of the study smoke; did you"),
    (("table99", "--config", "study=smoke"), "'table99' is no target of the study smoke"),
    (("--config", "study=configs/mine.yaml"), "the file 'configs/mine.yaml' does not exist"),
    (("--config", "study=smoke", "results=Snakefile"), "results: 'Snakefile' is a file; name the"),
    (("--config", "study=smoke", "device=gpu"), "did you mean 'cuda'?"),
    (("compare", "--config", "study=smoke"), "no kept run: name the folder of one"),
    (("--config", "study=smoke", "set=[rl.stepz=4]"), "unknown key; did you mean 'steps'?"),
]


@pytest.mark.e2e
@pytest.mark.slow
def test_a_missing_package_brings_the_way_to_install_it(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'trl' else find(name, *more)\n"
    )
    done = snakemake_in(copy, PYTHONPATH=str(tmp_path))("-n", "--config", "study=smoke")
    assert "The package trl is not installed" in done.stdout
    assert "run `make install`" in done.stdout
    assert not WRAPPERS.search(done.stdout)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project without results."""
    return copy_project(tmp_path_factory.mktemp("copy") / "sage")


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "said"), RUNS)
def test_snakemake_answers_a_mistake_with_a_message_alone(
    copy: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = snakemake_in(copy)("-n", *arguments)
    assert done.returncode == 1
    assert said in done.stdout
    assert not WRAPPERS.search(done.stdout), done.stdout
