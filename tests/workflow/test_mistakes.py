"""Mistakes that people made, each with what its message must say: the thing and the way out.

A row is one mistake. `MISTAKES` and `VALUES` are of a study's file, `MACHINE` of config.yaml or
`--config`, `RUNS` are those that Snakemake would answer with a traceback or a rule's file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import copy_project, snakemake_in
from study_edits import ALGORITHMS, DROPPED, ROOT, STUDY, edit, message_of

from sage.exhibits import load_study
from sage.runtime.faults import Fault, require_writable
from sage.study import load_settings
from sage.tools import command
from sage.tools.targets import example_of

WRAPPERS = re.compile(r"Traceback|WorkflowError|MissingRuleException|common\.smk|, line \d+, in <")

Edit = Callable[[Path], object]


def value(key: str, new: object, file: str = STUDY) -> Edit:
    return lambda config: edit(config / file, key, new)


def text(old: str, new: str, file: str = STUDY) -> Edit:
    def change(config: Path) -> None:
        content = (config / file).read_text()
        assert old in content
        (config / file).write_text(content.replace(old, new, 1))

    return change


def whole(content: bytes) -> Edit:
    """A study's file of nothing but this."""
    return lambda config: (config / STUDY).write_bytes(content)


def with_csv(content: str) -> Edit:
    """A set of problems in a file of one's own."""

    def change(config: Path) -> None:
        (config / "studies/mine.csv").write_text(content)
        own = {"source": "file", "title": "Mine", "file": "mine.csv"}
        edit(config / STUDY, "problems.harder", own)

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
        ("smoke.yaml, line ", "not valid YAML: a tab; YAML is indented with spaces"),
    ),
    (
        "a percent sign as the start of a value",
        text("title: Smoke study", "title: %smoke"),
        ("smoke.yaml, line ", "cannot begin a value; put it in quotes"),
    ),
    (
        "a method's name with a space",
        value("grpo 2", {"title": "x", "loss": "grpo", "kl": "none"}, ALGORITHMS),
        ("a key must begin with a letter from A to Z", "not 'grpo 2'"),
    ),
    (
        "a misspelt method",
        text("grpo_no_kl, ", "grpo_nokl, "),
        ("models.tiny.algorithms[1]: 'grpo_nokl'", "did you mean 'grpo_no_kl'", "(line "),
    ),
    ("an empty file", whole(b""), ("must be a mapping of keys to values, not empty",)),
    ("a list of settings", whole(b"- a\n"), ("must be a mapping of keys to values, not ['a']",)),
    (
        "a file in another encoding",
        whole("title: größe\n".encode("latin-1")),
        ("smoke.yaml: not valid YAML: byte 10 is not UTF-8; save the file as UTF-8",),
    ),
    (
        "a bracket that is not closed",
        text("seeds: [3407]", "seeds: [3407"),
        ("smoke.yaml, line ", "a bracket is not closed, here or a line above"),
    ),
    (
        "a quote that is not closed",
        text("title: Smoke study", "title: 'Smoke study"),
        ("smoke.yaml, line 3: not valid YAML: a quote is not closed",),
    ),
    (
        "a key that occurs twice",
        text("title: Smoke study", "title: Smoke study\ntitle: again"),
        ("smoke.yaml, line 4, column 1", "key 'title' occurs twice"),
    ),
    (
        "another indentation",
        text("  arithmetic:\n    source", "  arithmetic:\n      source"),
        ("smoke.yaml, line ", "indented in another way than those it belongs to"),
    ),
    ("no title", value("title", DROPPED), ("smoke.yaml: 1 fault", "title: missing")),
    (
        "a file with other columns",
        with_csv("q,a\n1,2\n"),
        ("has no column 'problem'; its columns: q, a", "`fields: {problem: q}`", "(line "),
    ),
    (
        "a file without an answer",
        with_csv("problem,answer\n1+1,\n"),
        ("mine.csv, row 1: no answer under answer", "(line "),
    ),
    (
        "a study to extend that is not there",
        text("title: Smoke", "extends: nowhere.yaml\ntitle: Smoke"),
        ("extends: 'nowhere.yaml' is neither a YAML file in", "allowed: bases, ", "(line "),
    ),
    (
        "a study that extends itself",
        text("title: Smoke", "extends: smoke.yaml\ntitle: Smoke"),
        ("extends: a circle, which must be broken: ", "(line "),
    ),
    (
        "a guide without the term that it shapes",
        value("grpo_branch.kl", "none", ALGORITHMS),
        ("algorithms.yaml: 1 fault", "a guide shapes the anchor of the KL term, but kl is 'none'"),
    ),
    (
        "a misspelt setting of a guide",
        value("grpo_branch.guide.settings", {"ration": 0.5}, ALGORITHMS),
        ("grpo_branch.guide.settings.ration: unknown key; did you mean 'ratio'?", "(line "),
    ),
    (
        "a class of one's own that is not there",
        value("grpo_branch.guide", {"kind": "mine:Guide"}, ALGORITHMS),
        ("'mine:Guide' cannot be imported", "the module a file beside the Snakefile", "(line "),
    ),
    (
        "a number that YAML reads as text",
        text("learning_rate: 1.0e-3", "learning_rate: 1e-3"),
        ("learning_rate: must be a number, not '1e-3'", "write 1.0e-3", "(line "),
    ),
]

VALUES: list[tuple[str, object, str]] = [
    ("evaluation.samples", 10**20, ": must be at most 1000000000, not 1000000000000000000"),
    ("models.tiny.rl.steps", 10**12, ": must be at most 1000000000, not 1000000000000"),
    ("problems.arithmetic.count", 100_000, ": 100000, but only  … lower it, or widen these"),
    ("models.tiny.rl.stepz", 4, ": unknown key; did you mean 'steps'?"),
    ("models.tiny.rl.steps", -1, ": must be at least 1, not -1"),
    ("models.tiny.rl.steps", 2.5, ": must be an integer, not 2.5"),
    ("models.tiny.rl.steps", None, ": must be an integer, not empty"),
    ("models.tiny.rl.rollouts", 1, ": must be at least 2, not 1"),
    ("models.tiny.rl.learning_rate", float("nan"), ": must be a finite number, not nan"),
    ("models.tiny.rl.beta", 0.05, ": unknown key; did you mean 'kl_coefficient'?"),
    ("models.tiny.rl.lora", {"r": 8, "alpha": 16}, ".r: unknown key; did you mean 'rank'?"),
    (
        "models.tiny.job",
        {"memory_gb": "64GB"},
        ".memory_gb: must be an integer, not '64GB' … alone, 64: ",
    ),
    (
        "models.tiny.rl.micro_batches",
        7,
        "micro_batches 7 must divide … prompts_per_step x rollouts = 32",
    ),
    ("evaluation.dtype", "bf16", ": 'bf16' is not allowed; did you mean 'bfloat16'?"),
    ("evaluation.engine", "vlm", ": 'vlm' is not allowed; did you mean 'vllm'?"),
    ("evaluation.sampling.temperature", 0, ": must be above 0.0, not 0"),
    (
        "evaluation.primary_k",
        8,
        "primary_k 8 needs at least 8 samples … 16 in all; here they are 4 and 4",
    ),
    (
        "evaluation.sampling.max_tokens",
        10**6,
        "leaves no room for a prompt in the max_positions 256 … lower it, or raise",
    ),
    ("seeds", [1, 1], "[1]: 1 occurs twice"),
    ("models.tiny.benchmarks", "arithmetic", ": must be a list, not 'arithmetic'; write [arith"),
    (
        "models.tiny.rl.problems",
        "arithmetic_trian",
        "'arithmetic_trian' is not a problem set of this study; did you mean",
    ),
    (
        "problems.harder",
        {"source": "benchmark", "benchmark": "math5000", "title": "x"},
        "'math5000' is not a benchmark of  … did you mean 'math500'?",
    ),
    (
        "models.tiny.base",
        {"source": "huggingface", "repository": "a/b"},
        ".source: 'huggingface' is not allowed; did you mean 'hub'?",
    ),
    ("models.tiny.base", {"repository": "a/b"}, ".source: missing; allowed: folder, hub, "),
    (
        "problems.harder",
        {"source": "file", "title": "x", "file": "mine.csv"},
        ".file:  … mine.csv does not exist; give its path from",
    ),
    (
        "problems.harder",
        {"source": "file", "title": "x", "file": "mine.txt"},
        "mine.txt: must end in .csv, .jsonl, .parquet; convert it",
    ),
    (
        "exhibits.table1.model",
        "tinny",
        "'tinny' is not a model of this study; did you mean 'tiny'?",
    ),
    ("exhibits.table1.kind", "acuracy", ": 'acuracy' is not allowed; did you mean 'accuracy'?"),
]
"""Wrong values of the smoke study, and what is said behind the key, … for what is not compared."""


def names_it(message: str, *said: str) -> None:
    assert [part for part in said if part not in message] == [], message
    assert not WRAPPERS.search(message)
    assert "^[" not in message  # a regular expression is no way out


@pytest.mark.parametrize(("mistake", "change", "said"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_a_mistake_in_a_study_is_named(
    config: Path, mistake: str, change: Edit, said: tuple[str, ...]
) -> None:
    change(config)
    names_it(message_of(lambda: load_study("smoke", config)), *said)


@pytest.mark.parametrize(("key", "new", "said"), VALUES)
def test_a_wrong_value_is_named_with_its_line(
    config: Path, key: str, new: object, said: str
) -> None:
    edit(config / STUDY, key, new)
    parts = (key + said if said[0] in ":.[" else said).split(" … ")
    names_it(message_of(lambda: load_study("smoke", config)), *parts, "(line ")


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("smok", "did you mean 'smoke'?"),
        ("table1", "(a target stands behind the study, as in `sage-rlvr run smoke table1`)"),
        ("configs/studies/smoke.yaml", "does not exist (seen from"),
        ("my/smoke", "did you mean 'smoke'?"),
        (
            "far/nowhere_else_at_all",
            "`sage-rlvr studies` lists what there is, `sage-rlvr new` writes one",
        ),
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
        ("seeds=[7,a]", "seeds[1]: must be an integer, not 'a'\n"),
        ("evaluation.samples=100000000000000000000", "must be at most 1000000000, not 1"),
        ("steps=10", "no setting 'steps'; did you mean 'rl.steps' or 'base.pretraining.steps'"),
        ("evaluation.max_tokens=9", "unknown key; did you mean 'sampling.max_tokens'? Allowed: "),
        ("evaluation.k=4", "unknown key; did you mean 'primary_k'? Allowed: "),
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
]


@pytest.mark.parametrize(("content", "said"), MACHINE)
def test_a_mistake_in_the_machines_settings_is_named(content: dict[str, object], said: str) -> None:
    message = message_of(lambda: load_settings(content))
    assert said in message
    assert message.startswith("config/config.yaml, or --config: 1 fault")


COMMANDS = [
    ("pln smoke", "no command 'pln'; did you mean 'plan'?"),
    ("run smoke --set rl.steps", "--set rl.steps: must be KEY=VALUE, such as --set rl.steps=10"),
    ("run --config study = smoke", "--config study: must be KEY=VALUE without spaces"),
    ("run --config rl.steps=10", "rl.steps is a setting of the study; write --set rl.steps=10"),
    ("run smoke --cores 0", "--cores 0: no job could start; write 1 or more, or leave it out"),
    ("run smoke -n -j0", "-j0: no job could start"),
    ("watch smok", "did you mean 'smoke'?"),
    ("new --model none --data d.csv", "model none: is no folder; give its path, or OWNER/NAME"),
    (
        "new --method grpo",
        "is a method of config/algorithms.yaml; name yours otherwise, such as my_grpo",
    ),
    ("new --method a+b", "--method a+b: must be letters, digits, _, . and -, such as mine"),
    ("new --method mine --study smok", "did you mean 'smoke'?"),
    ("new --model a/b --data d.csv", "d.csv does not exist; give its path"),
    ("new --model a/b --data d.txt", "--data d.txt: must end in .csv, .jsonl, .parquet, or be"),
    ("new --model a/b --data c/d --out x.txt", "--out x.txt: must end in .yaml"),
    ("eval none --data d.csv", "model none: is no folder; give its path, or OWNER/NAME"),
    ("eval a/b --data d.csv", "d.csv does not exist; give its path"),
    ("eval a/b --data c/d --samples 0", "--samples 0: must be 1 or more"),
    ("grade none.jsonl", "none.jsonl: does not exist (seen from "),
    ("grade LICENSE", "LICENSE: must end in .csv, .jsonl, .parquet, .json, .eval; convert it"),
]


@pytest.mark.parametrize(("line", "said"), COMMANDS, ids=[line for line, _ in COMMANDS])
def test_a_mistake_in_a_command_is_answered_before_anything_starts(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert command.main(line.split()) in (1, 2)
    printed = capsys.readouterr()
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert len(printed.err.splitlines()) <= 3


RUNS = [
    (("tabel1", "--config", "study=smoke"), "'tabel1' is no target of the study smoke; did you"),
    (("table99", "--config", "study=smoke"), "'table99' is no target of the study smoke"),
    (("--config", "study=configs/mine.yaml"), "the file 'configs/mine.yaml' does not exist"),
    (("--config", "study=smoke", "results=Snakefile"), "results: 'Snakefile' is a file; name the"),
    (
        ("problems", "--config", "study=smoke"),
        "one file of several; name the file, such as results/smoke/problems/arithmetic",
    ),
    (("--config", "study=smoke", "device=gpu"), "did you mean 'cuda'?"),
    (("compare", "--config", "study=smoke"), "no kept run: name the folder of one"),
    (("--config", "study=smoke", "set=[rl.stepz=4]"), "unknown key; did you mean 'steps'?"),
]


def test_a_file_stands_for_a_rule_with_wildcards() -> None:
    pattern = "r/{model,tiny|tiny_full}/seed{seed,\\d{1,3}}/{part}.json"
    assert example_of(pattern) == "r/tiny/seed{seed}/{part}.json"


def test_a_folder_that_cannot_be_made_is_no_full_disk() -> None:
    said = "/proc/x: no files can be made there (No such file or directory); name another folder"
    with pytest.raises(Fault, match=re.escape(said)):
        require_writable(Path("/proc/x"))


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
