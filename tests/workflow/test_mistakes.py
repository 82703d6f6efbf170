"""Mistakes that people made, each with what its message must say: the thing and the way out.

A row is one mistake. `MISTAKES` are of a study's file as text (`test_study_faults.py` has wrong
values of its keys), `RUNS` are those that Snakemake would answer with a traceback or a rule's file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import copy_project, snakemake_in
from study_edits import ROOT, STUDY, edit, message_of

from sage.exhibits import load_study
from sage.runtime.faults import Fault, require_writable
from sage.tools import command
from sage.tools.targets import example_of

WRAPPERS = re.compile(r"Traceback|WorkflowError|MissingRuleException|common\.smk|, line \d+, in <")

Edit = Callable[[Path], object]


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
    ("a model's name with letters of another alphabet", text("  tiny:\n", "  größe:\n"),
     ("a key must begin with a letter from A to Z", "not 'größe'")),
    ("a date as a title", text("title: Smoke study", "title: 2026-01-01"),
     ("title: must be text, not 2026-01-01", "reads as a date; put it in quotes: '2026-01-01'")),
    ("a colon in a title", text("title: Smoke study", "title: Smoke: a study"),
     ("smoke.yaml, line ", "a colon with a space behind it", "quotes: 'first: second'")),
    ("an alias that is nowhere", text("title: Smoke study", "title: *nowhere"),
     ("smoke.yaml, line ", "*nowhere stands for nothing: no &nowhere comes before it")),
    ("a tab", text("title: Smoke study\n", "title: Smoke study\n\tnotice: x\n"),
     ("smoke.yaml, line ", "not valid YAML: a tab; YAML is indented with spaces")),
    ("a percent sign as the start of a value", text("title: Smoke study", "title: %smoke"),
     ("smoke.yaml, line ", "cannot begin a value; put it in quotes")),
    ("a file in another encoding", whole("title: größe\n".encode("latin-1")),
     ("smoke.yaml: not valid YAML: byte 10 is not UTF-8; save the file as UTF-8",)),
    ("a bracket that is not closed", text("seeds: [3407]", "seeds: [3407"),
     ("smoke.yaml, line ", "a bracket is not closed, here or a line above")),
    ("a quote that is not closed", text("title: Smoke study", "title: 'Smoke study"),
     ("smoke.yaml, line 3: not valid YAML: a quote is not closed",)),
    ("another indentation", text("  arithmetic:\n    source", "  arithmetic:\n      source"),
     ("smoke.yaml, line ", "indented in another way than those it belongs to")),
    ("a file with other columns", with_csv("q,a\n1,2\n"),
     ("has no column 'problem'; its columns: q, a", "`fields: {problem: q}`", "(line ")),
    ("a file without an answer", with_csv("problem,answer\n1+1,\n"),
     ("mine.csv, row 1: no answer under answer", "(line ")),
]  # fmt: skip


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


@pytest.mark.parametrize(
    ("study", "said"),
    [
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


COMMANDS = [
    ("pln smoke", "no command 'pln'; did you mean 'plan'?"),
    ("run smoke --set rl.steps", "--set rl.steps: must be KEY=VALUE, such as --set rl.steps=10"),
    ("run --config study = smoke", "--config study: must be KEY=VALUE without spaces"),
    ("run --config rl.steps=10", "rl.steps is a setting of the study; write --set rl.steps=10"),
    ("run smoke --cores 0", "--cores 0: no job could start; write 1 or more, or leave it out"),
    ("run smoke -n -j0", "-j0: no job could start"),
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
    ("new --model a/b --data c/d --out LICENSE/x.yaml", "File exists: 'LICENSE'"),
    ("eval results=r --data c/d", "name a MODEL, a folder or OWNER/NAME"),
    ("eval none --data d.csv", "model none: is no folder; give its path, or OWNER/NAME"),
    ("eval a/b --data d.csv", "d.csv does not exist; give its path"),
    ("eval a/b --data c/d --samples 0", "--samples 0: must be 1 or more"),
    ("dose a/b --data d.csv --beta nan", "--beta nan: must be above 0"),
    ("dose a/b --data d.csv --problems 0", "--problems 0: must be 1 or more"),
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


QUICK = [
    (("--config", "studdy=smoke"), "did you mean 'study'"),
    (("--config", "study=smoke", "set=[rl.stepz=4]"), "unknown key; did you mean 'steps'?"),
]
SLOW = [
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
    (("--config", "study=smok"), "did you mean 'smoke'"),
]
RUNS = [*QUICK, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)]


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
@pytest.mark.parametrize(("arguments", "said"), RUNS)
def test_snakemake_answers_a_mistake_with_a_message_alone(
    copy: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = snakemake_in(copy)("-n", *arguments)
    assert done.returncode == 1
    assert said in done.stdout
    assert not WRAPPERS.search(done.stdout), done.stdout
    assert not (copy / "results").exists()
