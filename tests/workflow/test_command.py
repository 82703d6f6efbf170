"""The command `sage-rlvr`: what it hands to Snakemake, what it shows, what it says at the end."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, SMOKE, copy_project, snakemake_in
from snakemake_interface_logger_plugins.common import LogEvent

from sage.exhibits import load_study
from sage.results import Results
from sage.runtime.records import Comparison
from sage.tools import command, progress
from sage.tools.progress import OTHERS, LogHandler, Progress, failure
from sage.tools.targets import MOST_FILES, ending, no_target


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("run", "--cores all"),
        ("run smoke", "--cores all --config study=smoke"),
        ("run smoke table1 --cores 2 -n", "table1 --cores 2 -n --config study=smoke"),
        ("run smoke -j4", "-j4 --config study=smoke"),
        ("run -n smoke table1", "--cores all -n table1 --config study=smoke"),
        ("run --cores 1 config/studies/smoke.yaml",
         "--cores 1 --config study=config/studies/smoke.yaml"),
        ("run -n --configfile config/studies/mini.yaml --keep-going smoke",
         "--cores all -n --configfile config/studies/mini.yaml --keep-going "
         "--config study=smoke"),
        ("run --workflow-profile profiles/slurm", "--workflow-profile profiles/slurm"),
        ("plan mini", "plan --cores 1 --config study=mini"),
        ("check smoke --config device=cuda results=/tmp/x --keep-going",
         "check --cores 1 --keep-going --config study=smoke device=cuda results=/tmp/x"),
        ("compare smoke reports/mini/mini",
         "compare --cores 1 --config study=smoke kept=reports/mini/mini"),
        ("run smoke --set rl.steps=10 --set=seeds=[1,2]",
         '--cores all --config study=smoke set=["rl.steps=10", "seeds=[1,2]"]'),
        ("run smoke rl.steps=10 results=/tmp/x -n seeds=[1,2]",
         '--cores all -n --config study=smoke results=/tmp/x set=["rl.steps=10", "seeds=[1,2]"]'),
        ("run smoke --groups rl=a --batch all=1/2",
         "--cores all --groups rl=a --batch all=1/2 --config study=smoke"),
        ("run -n --until support smoke", "--cores all -n --until support --config study=smoke"),
        ("run smoke --resources gpu=2", "--cores all --resources gpu=2 --config study=smoke"),
    ],
)  # fmt: skip
def test_a_command_line_becomes_one_of_snakemake(
    line: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    name, *words = line.split()
    arguments, verbose = command.snakemake_words(name, words)
    assert " ".join(arguments) == asked
    assert not verbose


@pytest.mark.parametrize("word", ["--verbose", "--logger", "--quiet", "--list"])
def test_snakemakes_own_output_is_there_for_who_asks(word: str) -> None:
    assert command.snakemake_words("run", ["smoke", word])[1]


def test_a_stop_from_the_keyboard_is_one_line(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(own: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(command, "release_stale_lock", lambda folder: False)
    monkeypatch.setattr(command, "_quietly", stopped)
    assert command.main(["run", "smoke"]) == 130
    assert capsys.readouterr().err.strip() == "Stopped; the same command goes on from there."


def test_the_versions_and_the_studies_are_told(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sage-rlvr 0.")
    assert command.main(["studies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len([*ROOT.glob("config/studies/*.yaml")])
    smoke = next(line for line in lines if line.startswith("smoke "))
    assert "Smoke study" in smoke
    assert " min " in smoke


def test_another_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["run"], ["eval"]):
        assert command.main(words) == 2
        assert f"has no Snakefile; go to the folder of this repository: cd {ROOT}" in (
            capsys.readouterr().err
        )


def test_what_only_prints_goes_on_beside_a_running_snakemake(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(folder: Path) -> bool:
        raise command.Locked("Snakemake is running")

    asked: list[list[str]] = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(command, "release_stale_lock", locked)
    monkeypatch.setattr(command, "_quietly", lambda own: asked.append(own) or 0)
    for line in ("plan mini", "resolved smoke", "run smoke -n", "report_partial smoke"):
        assert command.main(line.split()) == 0
    assert len(asked) == 4
    assert command.main(["run", "smoke"]) == 1
    assert "Snakemake is running" in capsys.readouterr().err


@pytest.mark.parametrize("name", command.TARGETS)
def test_each_command_has_a_short_help(name: str, capsys: pytest.CaptureFixture) -> None:
    assert command.main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"sage-rlvr {name} ")
    assert len(printed.splitlines()) == 4
    assert command.TARGETS[name][1:] in printed  # RO-Crate and STUDY FOLDER as they are written


def test_help_has_a_line_for_each_command(capsys: pytest.CaptureFixture) -> None:
    assert command.main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in [*command.TARGETS, *command.MODULES])


def test_time_left_is_that_of_the_jobs_left_as_long_as_those_of_their_rule() -> None:
    progress = Progress(began=0.0)
    progress.total.update({"rl": 4, "sample": 2, "table": 1})
    progress.start(1, "rl", 0.0)
    progress.end(1, 60.0)
    assert progress.seconds_left(60.0) is None  # no sample is known yet
    progress.start(2, "sample", 60.0)
    progress.end(2, 70.0)
    progress.start(3, "rl", 70.0)
    progress.start(4, "rl", 70.0)
    assert progress.seconds_left(80.0) == pytest.approx((3 * 60 + 10 - 20) / 2)
    assert progress.line(80.0) == "RL 1 of 4 · 2 of 7 jobs · 1 min 20 s, about 1 min 25 s left"
    progress.end(3, 90.0, failed=True)
    progress.end(4, 90.0, failed=True)
    assert "2 failed" in progress.line(90.0)
    assert progress.stage() == OTHERS


def test_of_a_failed_job_its_own_message_is_shown_or_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {n}\n" for n in range(40)))
    assert failure("rl", [log])[1:] == [f"  line {n}" for n in range(28, 40)]
    log.write_text("Traceback\nERROR: the disk is full\n")
    assert failure("rl", [log])[1:] == ["  ERROR: the disk is full"]
    assert failure("rl", [tmp_path / "none.log"]) == [
        f"A job of rl failed; its log is {tmp_path / 'none.log'}."
    ]


def shown(*events: dict[str, Any], dryrun: bool = False) -> None:
    """Hand events to a logger that is not on a terminal."""
    handler = LogHandler(SimpleNamespace(dryrun=dryrun), None)
    for event in events:
        level = event.pop("level", logging.INFO)
        handler.handle(logging.makeLogRecord({"levelno": level, "msg": "", **event}))
    handler.close()
    handler.close()


def test_a_run_of_many_jobs_takes_a_line_a_stage(capsys: pytest.CaptureFixture) -> None:
    events: list[dict[str, Any]] = [
        {"event": LogEvent.RUN_INFO, "stats": {"rl": 20, "sample": 60, "total": 80}},
        {"msg": "Building DAG of jobs..."},
    ]
    for job in range(80):
        rule = "rl" if job < 20 else "sample"
        events.append(
            {"event": LogEvent.JOB_INFO, "jobid": job, "rule_name": rule, "reason": "Missing"}
        )
        events.append({"event": LogEvent.JOB_FINISHED, "job_id": job})
    shown(*events)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "80 jobs: 60 sample, 20 rl"
    assert lines[1].startswith("RL 0 of 20 · 0 of 80 jobs")
    assert lines[2].startswith("sampling 0 of 60 · 20 of 80 jobs")
    assert lines[3].startswith(f"{OTHERS} 0 of 0 · 80 of 80 jobs")
    assert len(lines) == 4


def test_problems_are_shown_once_and_in_full(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    log = tmp_path / "rl.log"
    log.write_text("ERROR: no room\n")
    error = {"level": logging.ERROR}
    told = {"event": LogEvent.JOB_ERROR, "jobid": 1, "log": [str(log)], **error}
    shown(
        {**told, "rule_name": "rl"},
        {**told, "rule_name": "verify"},  # which has said itself what it found
        {"msg": "RuleException:\nCalledProcessError", "exception": "RuleException", **error},
        {"msg": "The disk is slow", "level": logging.WARNING},
        {"msg": "The disk is slow", "level": logging.WARNING},
        {"msg": "WorkflowError:\nAt least one job did not complete successfully.", **error},
    )
    assert capsys.readouterr().err.splitlines() == [
        f"A job of rl failed; its log is {log}.",
        "  ERROR: no room",
        "The disk is slow",
    ]


def test_a_dry_run_says_why_by_rule(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs from the record of the job, or else Snakemake's reason."""
    job = type("Job", (), {"log": ["rl.log"]})()
    monkeypatch.setattr(progress, "LAST", [Comparison({job: ["code changed", "a is missing"]})])
    forced, missing = "Forced execution", "Missing output files: page.html"
    rows = [("rl", "rl.log", forced), ("rl", "rl.log", forced), ("page", "page.log", missing)]
    infos = [
        {"event": LogEvent.JOB_INFO, "rule_name": rule, "log": [log], "reason": reason}
        for rule, log, reason in rows
    ]
    shown(*infos, {**infos[0], "log": ["other.log"]}, dryrun=True)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "     2 rl: code changed",
        "     1 page: not made yet",
        "     1 rl: asked for",
    ]


def test_nothing_to_do_says_what_has_been_looked_at(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SAGE_RESULTS", str(tmp_path))
    for last, ends in (
        ([], "there."),
        ([Comparison(unrecorded=["a"])], "there."),
        ([Comparison({"a job": ["code changed"]})], "there."),  # as with --until
        ([Comparison()], "there and made from today's settings, code and files."),
    ):
        monkeypatch.setattr(progress, "LAST", last)
        shown({"msg": "Nothing to be done (all requested files are present and up to date)."})
        assert capsys.readouterr().err == f"Nothing to do: every file is {ends}\n"


def test_a_study_ends_with_its_report_and_verdicts_in_three_lines(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert [*ending("all", [], results)] == []  # as with --until
    results.page.parent.mkdir()
    results.page.touch()
    assert [*ending("all", [], results)] == [f"Report: {results.page}"]
    results.metrics("claims").parent.mkdir()
    rows = [("a", "A holds.", "supported"), ("a", "A holds.", "supported"), ("b", "B.", "not run")]
    pd.DataFrame(rows, columns=["claim", "text", "verdict"]).to_parquet(results.metrics("claims"))
    assert [*ending("all", [], results)] == [
        f"Report: {results.page}",
        "Verdicts: 1 supported, 1 not run",
        "Supported: A holds.",
    ]
    kept = (ROOT / "reports/mini/mini/index.html").read_text()
    results.page.write_text(kept)
    ledger = pd.DataFrame(rows, columns=["claim", "text", "verdict"]).assign(verdict="not run")
    ledger.to_parquet(results.metrics("claims"))
    place, first, *_ = ending("all", [], results)  # no claim was run: what opens the page
    assert place == f"Report: {results.page}"
    assert first.startswith("GRPO gains ")
    assert [*ending("table1", ["a.csv"], results)] == ["table1: a.csv"]
    (many,) = ending("theory", [f"{n}.csv" for n in range(MOST_FILES + 2)], results)
    assert many.endswith("5.csv and 2 more")
    assert [*ending("plan", [], results)] == []


def test_a_misspelt_target_brings_the_nearest_and_an_exhibit_its_studies() -> None:
    study = load_study("smoke", ROOT / "config")
    said = no_target("tabel1", ["table1", "page"], study, ROOT / "config")
    assert said.startswith("'tabel1' is no target of the study smoke; did you mean 'table1'?")
    said = no_target("equal_accuracy", ["table1"], study, ROOT / "config")
    assert "mini" in said.partition("have an exhibit of that name")[0]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_snakemake_itself_works_as_before_and_lists_a_line_for_each_target(tmp_path: Path) -> None:
    run = snakemake_in(copy_project(tmp_path / "sage"))
    listed = run("--list", *SMOKE).stdout.splitlines()[2:]
    assert [line for line in listed if "(" not in line] == []
    assert "table1 (Accuracy and coverage)" in listed
    made = run("table8", "--cores", "1", *SMOKE).stdout
    assert "table8: results/smoke/partial/report/tables/table8.csv" in made
    assert "1 of 1 steps (100%) done" in made
    again = run("compare", "--cores", "1", *SMOKE, f"kept={ROOT / 'reports/mini/mini'}")
    assert again.returncode == 1
    assert "the study has not been run; run it first" in again.stdout
    assert "rule rl" not in again.stdout


def test_settings_of_both_ways_to_give_them_are_all_kept() -> None:
    for given in ("set=rl.rollouts=4", 'set=["rl.rollouts=4"]'):
        words, _ = command.snakemake_words(
            "run", ["smoke", "--set", "rl.steps=2", "--config", given]
        )
        assert words[-3:] == ["--config", "study=smoke", 'set=["rl.rollouts=4", "rl.steps=2"]']
    with pytest.raises(command.Usage, match="a list in JSON"):
        command.snakemake_words("run", ["--set", "a.b=1", "--config", "set=[a"])
