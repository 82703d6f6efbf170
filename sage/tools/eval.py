"""Samples models on problems of your own, grades the answers, and makes a page.

    sage-rlvr eval MODEL --data problems.csv
    sage-rlvr eval before after --data problems.csv --samples 64

A model is a folder or OWNER/NAME of the Hugging Face hub, the data a .csv, .jsonl or .parquet or a
data set of the hub. The study that this is stands in the folder of its results. Two or more models
are also compared, problem by problem. What follows goes to `sage-rlvr run`: `device=cuda`,
`evaluation.engine=vllm`, `--cores 4`, `-n`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sage.fields import BASE
from sage.problems.record import DataError, read_problems
from sage.results import Results, Run
from sage.runtime.files import from_repository
from sage.study.types import Settings
from sage.study.written import ALONE
from sage.tools import add_data, compare_samples, parser_of
from sage.tools.grade import notes_on_golds
from sage.tools.new import LONGEST, base_of, problem_set

PROBLEMS = "own"
EXHIBITS = {"accuracy": "Accuracy and coverage", "curves": "Coverage over k"}
_HEAD = "# Written by `sage-rlvr eval`, which writes it again. To change more, copy it elsewhere.\n"


def main(arguments: Sequence[str]) -> int:
    """Write the study, run it, compare its models; 1 and a message for what cannot be used."""
    parser = parser_of("eval", __doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a folder, or OWNER/NAME")
    add_data(parser, "a file of problems, or OWNER/NAME")
    parser.add_argument("--samples", type=int, default=16, help="of each problem (default: 16)")
    parser.add_argument("--tokens", type=int, help="the most of a sample (default: at most 512)")
    parser.add_argument("--temperature", type=float, default=1.0, help="default: 1.0")
    parser.add_argument("--name", help="of the folder of results (default: of models and data)")
    given, rest = parser.parse_known_args(arguments)
    rest = [*(word for word in given.models if "=" in word), *rest]
    models = named([word for word in given.models if "=" not in word])
    results = next((word for word in rest if word.startswith("results=")), "").partition("=")[2]
    own = Path("config/config.yaml")
    file = own if own.is_file() else from_repository(own)
    config = yaml.safe_load(file.read_text("utf-8")) or {}
    results = results or config.get("results", Settings.model_fields["results"].default)
    name = given.name or safe("-".join(["eval", *models, Path(given.data).stem]))[:100]
    file = Path(os.path.expanduser(results), name, ALONE)
    try:
        study = study_of(models, given, file.parent)
        refuse_another(file, study)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(study, sort_keys=False, allow_unicode=True)
        file.write_text(_HEAD + text, encoding="utf-8")
    except (DataError, ValueError, OSError) as error:
        print(f"sage-rlvr eval: {error}", file=sys.stderr)
        return 1
    from sage.tools import command  # which starts this module

    status = command.main(["run", str(file), *rest])
    drawn = {name: Results(file.parent).samples(Run(name, BASE, 0), PROBLEMS) for name in models}
    there = all(path.is_file() for path in drawn.values())
    if status or not there or command.DRY & {*rest}:
        return status
    golds = {problem.answer for problem in read_problems(Results(file.parent).problems(PROBLEMS))}
    for note in notes_on_golds(sorted(golds)):
        print(note)
    if len(models) < 2:
        return status
    pairs = [f"{name}={path}" for name, path in drawn.items()]
    return compare_samples.main([*pairs, "--html", str(file.with_name("compared.html"))])


def safe(text: str) -> str:
    """A text as a name of a study or a model."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._") or "model"


def named(models: Sequence[str]) -> dict[str, str]:
    """Models by the last part of their paths, or by two parts where that is not one's own."""
    parts = [Path(model).absolute().parts if Path(model).is_dir() else (model,) for model in models]
    short = [safe(own[-1].rpartition("/")[2]) for own in parts]
    long = [safe("-".join(own[-2:])) for own in parts]
    names = [one if short.count(one) == 1 else two for one, two in zip(short, long, strict=True)]
    return dict(zip(names, models, strict=True))


def study_of(models: Mapping[str, str], given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The study, as plain data, to be written to `folder`. Raises as `sage.tools.new.study_text`,
    and ValueError for numbers that cannot be."""
    if not models:
        raise ValueError("name a MODEL, a folder or OWNER/NAME")
    if given.samples < 1:
        raise ValueError(f"--samples {given.samples}: must be 1 or more")
    based = {name: base_of(model, folder) for name, model in models.items()}
    title = Path(given.data).stem
    tokens = given.tokens or min(LONGEST, *(room // 2 for _, room in based.values()))
    problems = problem_set(given.data, given.problem, given.answer, folder)
    of = {name: f"_{name}" * (len(based) > 1) for name in based}
    return {
        "title": f"{', '.join(based)} on {title}",
        "paper": None,
        "problems": {PROBLEMS: {**problems, "title": title}},
        "models": {
            name: {"title": name, "base": base, "benchmarks": [PROBLEMS]}
            for name, (base, _) in based.items()
        },
        "evaluation": {
            "samples": given.samples,
            "seeds": [0],
            "primary_k": 2 ** max((given.samples // 2).bit_length() - 1, 0),
            "sampling": {"temperature": given.temperature, "max_tokens": tokens},
            "batch_size": 64,
        },
        "exhibits": {
            f"{kind}{of[name]}": {"kind": kind, "title": title, "model": name}
            for kind, title in EXHIBITS.items()
            for name in based
        },
    }


def refuse_another(file: Path, study: Mapping[str, Any]) -> None:
    """Raise ValueError where the study in `file` was run and has other models or problems, so that
    its results are not replaced."""
    if not (file.is_file() and Results(file.parent).registered.is_file()):
        return
    there = yaml.safe_load(file.read_text(encoding="utf-8"))
    if any(there.get(part) != study[part] for part in ("models", "problems")):
        raise ValueError(
            f"{file.parent} has results of other models or problems; choose another --name, or "
            "remove that folder"
        )
