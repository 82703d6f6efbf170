"""The command `sage-rlvr` runs Snakemake for a study, and shows its progress in one line.

    sage-rlvr run [STUDY] [KEY=VALUE]... [--verbose] [anything that Snakemake takes]

It puts a command of Snakemake together, prints it and runs it; whoever prefers runs that command
without it. Snakemake's output is replaced by a line of progress (`progress`), unless `--verbose`
asks for it or Snakemake is told how to log.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from sage.runtime.files import ROOT
from sage.runtime.survivors import Locked, release_stale_lock

TARGETS = {
    "run": "make all results of a study, and its report",
    "report": "the same as run",
    "report_partial": "make a page of the results so far, also while the study runs",
    "plan": "print what a study costs: jobs, tokens, hours, disk, memory",
    "check": "print what this machine lacks for a study",
    "compare": "compare samples of any program: compare a.csv b.csv, of which --help says more; or "
    "a finished study with a kept run: compare STUDY FOLDER",
    "resolved": "print the study's settings with every default",
    "audit": "grade a finished study's samples in two other ways, and count the differences",
    "verify": "check that the results are still the files that jobs wrote",
    "archive": "pack a finished study as one RO-Crate",
}
"""Commands that are Snakemake's targets, with what they do."""

MODULES = {
    "studies": "list the studies: title, time, jobs",
    "eval": "sample models on your own problems and make a page: eval MODEL --data problems.csv",
    "new": "write a study of your own model and problems",
    "grade": "grade completions from files, whatever program made them",
    "keep": "keep a finished study's small files in reports/, or check kept runs",
    "dose": "measure on a model, before any training, what a guide would do",
}
"""Commands that are a module beside this one: they start no jobs."""

PRINTING = ("plan", "check", "resolved", "report_partial")
"""Commands that go on beside a running Snakemake, as they change nothing that it makes."""

_SAMPLES = (".csv", ".jsonl", ".parquet", ".json", ".eval")
"""How the name of a file of samples can end (`sage.evaluation.loggers`)."""

_OF_STUDIES = ("registered.json", "provenance", "metrics", "pass_at_k.csv", "pass_at_k.parquet")
"""What a folder of a study's results has, finished or not, or that of a kept run."""

DRY = {"-n", "--dry-run", "--dryrun"}
"""What Snakemake calls a dry run."""

STOPPED = "\nStopped; the same command goes on from there."

_VERBOSE = re.compile(r"--(verbose|logger|quiet|list|lint|help|version)|-[qh]")
_NO_CORES = re.compile(r"(?:^| )(--(cores|jobs)[= ]|-[cj][= ]?)(0+|-\d+)(?= |$)")
_TAKES_FILES = re.compile("--configfiles?")
_TAKES_RULES = re.compile("--(until|omit-from|forcerun|prioritize|allowed-rules)|-[UORP]")
_SETTING = re.compile(r"[A-Za-z_][\w.\[\]-]*=")
_TAKES_PAIRS = re.compile(
    r"--(default-|set-|overwrite-)?(resources|res|threads|scatter|resource-.*)"
    r"|--(groups|group-components|consider-ancient|batch)"
)
_CORES = re.compile(r"(--cores|-c\d*|--jobs|-j\d*|--profile|--workflow-profile)(=.*)?|-[cj]\d+")


class Usage(Exception):
    """A command line that cannot be understood; the message says what to write."""


def snakemake_words(command: str, words: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments of Snakemake for a command line of ours, and whether its output is wanted.

    Raises Usage.
    """
    waiting, config, overrides, rest = [*words], list[str](), list[str](), list[str]()
    for key in ("study", "kept") if command == "compare" else ("study",):
        if waiting and not waiting[0].startswith("-"):
            config.append(f"{key}={waiting.pop(0)}")
    while waiting:
        word = waiting.pop(0)
        if word == "--set" or word.startswith("--set="):
            value = word.partition("=")[2] or (waiting.pop(0) if waiting else "")
            if "=" not in value:
                raise Usage(f"--set {value}: must be KEY=VALUE, such as --set rl.steps=10")
            overrides.append(value)
        elif word in ("--config", "-C"):
            while waiting and not waiting[0].startswith("-"):
                config.append(_config(waiting.pop(0)))
        elif _SETTING.match(word) and not _is_value(rest, len(rest), _TAKES_PAIRS):
            from sage.study.types import Settings

            of_machine = word.partition("=")[0] in Settings.model_fields
            (config if of_machine else overrides).append(word)
        else:
            rest.append(word)
    if not any(word.startswith("study=") for word in config):  # an option may stand before it
        of_option = [_is_value(rest, at) or _is_rule(rest, at) for at in range(len(rest))]
        names = [at for at, word in enumerate(rest) if _is_study(word) and not of_option[at]]
        config += [f"study={rest.pop(at)}" for at in names[:1]]
    if overrides:
        given = [word for word in config if word.startswith("set=")]
        config = [word for word in config if word not in given]
        overrides = [*(one for word in given for one in _overrides(word)), *overrides]
        config.append(f"set={json.dumps(overrides, ensure_ascii=False)}")
    if none := _NO_CORES.search(" ".join(rest)):
        raise Usage(f"{none[0].strip()}: no job could start; write 1 or more, or leave it out")
    verbose = any(map(_VERBOSE.match, rest))
    rest = [word for word in rest if word != "--verbose"]
    arguments = [] if command == "run" else [command]
    if not any(_CORES.fullmatch(word) for word in rest):
        arguments += ["--cores", "all" if command in ("run", "report") else "1"]
    return [*arguments, *rest, *(["--config", *config] if config else [])], verbose


def _is_study(word: str) -> bool:
    """Whether a word can only be a study: the name of one, or its file."""
    return Path("config/studies", f"{word}.yaml").is_file() or (
        word.endswith((".yaml", ".yml")) and Path(word).is_file()
    )


def _is_value(words: Sequence[str], at: int, option: re.Pattern[str] = _TAKES_FILES) -> bool:
    """Whether a word belongs to an `option` of Snakemake that takes several, such as YAML files."""
    before = [word for word in words[:at] if word.startswith("-")]
    return bool(before) and option.fullmatch(before[-1]) is not None


def _is_rule(words: Sequence[str], at: int) -> bool:
    """Whether a word stands right behind an option that takes rules; a study may be called so."""
    return at > 0 and _TAKES_RULES.fullmatch(words[at - 1]) is not None


def compares_samples(words: Sequence[str]) -> bool:
    """Whether the words behind `compare` name files of samples, or folders of them, rather than a
    study and a kept run, or two studies."""
    named = [word for word in words if not word.startswith("-")][:2]
    asks_snakemake = {"--config", "-C"} & {*words} or (named and _is_study(named[0]))
    return not asks_snakemake and any(map(_is_samples, named))


def _is_samples(word: str) -> bool:
    """Whether a word, PATH or NAME=PATH, can only be samples."""
    path = Path(word) if Path(word).exists() else Path(word.rpartition("=")[2])
    if path.is_dir():
        of_study = any((path / name).exists() for name in _OF_STUDIES)
        return not of_study and any(file.suffix in _SAMPLES for file in path.rglob("*"))
    return path.suffix in _SAMPLES


def _config(word: str) -> str:
    key, equals, _ = word.partition("=")
    if not equals or not key:
        raise Usage(
            f"--config {word}: must be KEY=VALUE without spaces, such as study=smoke; targets "
            "stand before --config"
        )
    if "." in key:
        raise Usage(f"--config {word}: {key} is a setting of the study; write --set {word}")
    return word


def _overrides(word: str) -> list[str]:
    """The settings in a value `set=` of --config: one, or a list of them in JSON."""
    value = word.partition("=")[2]
    try:
        return [str(one) for one in json.loads(value)] if value.startswith("[") else [value]
    except json.JSONDecodeError:
        raise Usage(f"--config {word}: must be one KEY=VALUE, or a list in JSON") from None


def usage() -> str:
    """What there is to type."""
    rows = [f"  {name:14} {does}" for name, does in (TARGETS | MODULES).items()]
    more = "sage-rlvr COMMAND --help says what a command takes."
    return "\n".join([(__doc__ or "").partition("\n\nIt puts")[0], "", *rows, "", more])


def versions() -> str:
    """The versions of this command, its commit where it is known, of Snakemake and of Python."""
    from sage.runtime.manifest import git_commit, version

    commit = git_commit()
    own = version("sage-rlvr") + (f" ({commit[:12]})" if commit else "")
    return f"sage-rlvr {own}, Snakemake {version('snakemake')}, Python {sys.version.split()[0]}"


def usage_of(command: str) -> str:
    """What there is to type for one of TARGETS."""
    studies = "STUDY FOLDER" if command == "compare" else "[STUDY]"
    default = "" if command == "compare" else " (default: that of config/config.yaml)"
    does = TARGETS[command]
    return (
        f"sage-rlvr {command} {studies} [KEY=VALUE]...\n\n"
        f"{does[0].upper()}{does[1:]}. STUDY is a name in config/studies, or a file{default}; KEY "
        "is a setting of the study, such as rl.steps, or of config/config.yaml, such as results.\n"
        "All else goes to Snakemake: -n shows what would run, `snakemake --help` has the rest."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status, 130 if it was stopped from the keyboard."""
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return 130
    except BrokenPipeError:  # of a reader such as `head`, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _main(words: list[str]) -> int:
    command = words[0] if words else "--help"
    if command in ("--help", "-h", "help"):
        print(usage())
        return 0
    if command in ("--version", "-V"):
        print(versions())
        return 0
    try:
        if command == "compare" and compares_samples(words[1:]):
            compared: int = import_module("sage.tools.compare_samples").main(words[1:])
            return compared
        if command in MODULES:
            if command == "eval" and not {"--help", "-h"} & {*words}:
                _at_home()
            status: int = import_module(f"sage.tools.{command}").main(words[1:])
            return status
        if command not in TARGETS:
            from sage.fields import nearest

            raise Usage(f"no command {command!r}{nearest(command, [*TARGETS, *MODULES])}")
        if {"--help", "-h"} & {*words[1:]}:
            print(usage_of(command))
            return 0
        _at_home()
        asked, verbose = snakemake_words(command, words[1:])
        alone = command not in PRINTING and not DRY & {*words}
        if alone and release_stale_lock(Path.cwd()):
            print("The lock of a Snakemake that was killed is released; its run continues.")
    except (Usage, Locked) as error:
        print(f"sage-rlvr: {error}", file=sys.stderr)
        return 2 if isinstance(error, Usage) else 1
    print(f"snakemake {shlex.join(asked)}", flush=True)
    own = [str(Path(sys.executable).with_name("snakemake")), *asked]
    if verbose:
        os.execv(own[0], own)
    return _quietly(own)


def _at_home() -> None:
    if not Path("Snakefile").is_file():
        where = f": cd {shlex.quote(str(ROOT))}" if (ROOT / "Snakefile").is_file() else ""
        raise Usage(f"{Path.cwd()} has no Snakefile; go to the folder of this repository{where}")


def _quietly(own: list[str]) -> int:
    """Run Snakemake in this process with the logger of `progress`; returns its exit status."""
    from snakemake.cli import main as snakemake
    from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

    from sage.runtime.job import SHOWN
    from sage.tools import progress

    os.environ[SHOWN] = "1"
    LoggerPluginRegistry().register_plugin("snakemake_logger_plugin_sage", progress)
    sys.argv = [*own, "--logger", "sage"]
    try:
        snakemake(sys.argv[1:])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
