"""Writes a study of your own model and problems, or of your own method; it runs as it is.

    sage-rlvr new --model FOLDER_OR_HUB_ID --data FILE_OR_HUB_ID --out my.yaml
    sage-rlvr new --method NAME [--study smoke]

The first samples the model on the problems, grades, and makes tables; a commented part trains it.
The second makes a folder NAME with `my_method.py`, a guide to be edited, and `study.yaml`, which
has the method's entry and trains it beside the methods of another study.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from sage.fields import NAME, REPOSITORY
from sage.problems.record import DataError
from sage.runtime.files import ROOT
from sage.study.bases import FolderBase
from sage.study.written import ALONE, name_of_study, read, read_study
from sage.tasks.data import FORMATS, FileSet, OwnFields, repeats
from sage.tools import add_data

GUESSES = {
    "problem": ("problem", "question", "prompt", "query", "quiz", "input", "instruction"),
    "answer": ("answer", "result", "gold", "target", "expected_answer", "ground_truth", "label"),
}
"""Columns that are taken for the problem and the answer, the likeliest first."""

LONGEST = 512
"""Tokens of a completion, where the model has room for twice as many."""

GUIDE, METHOD = (ROOT / "reports" / name for name in ("new_method.py", "new_method.yaml"))
"""The files of a method; in the study, what differs stands in braces."""

TEXT = ROOT / "reports" / "new_study.yaml"
"""The study, with what differs in braces."""


def main(arguments: list[str]) -> int:
    """Write the study; 1 and a message if its model or data cannot be used as they are."""
    parser = argparse.ArgumentParser(prog="sage-rlvr new", description=__doc__.splitlines()[0])
    parser.add_argument("--method", metavar="NAME", help="the name of a method of your own")
    parser.add_argument("--study", default="smoke", help="which --method extends (default: smoke)")
    parser.add_argument("--model", help="a model's folder, or OWNER/NAME of the hub")
    add_data(parser, "a .csv, .jsonl or .parquet, or OWNER/NAME", required=False)
    parser.add_argument(
        "--out", type=Path, help="the study's file (default: my_study.yaml); of --method its folder"
    )
    given = parser.parse_args(arguments)
    if not given.method and not (given.model and given.data):
        parser.error("name --model and --data, or --method")
    try:
        if given.method:
            given.out = (given.out or Path(given.method)) / ALONE
            text = method_text(given.method, given.study)
            given.out.parent.mkdir(parents=True)
            shutil.copy(GUIDE, given.out.with_name("my_method.py"))
        else:
            given.out = given.out or Path("my_study.yaml")
            text = study_text(given.model, given.data, given.problem, given.answer, given.out)
            given.out.parent.mkdir(parents=True, exist_ok=True)
        with open(given.out, "x", encoding="utf-8") as file:
            file.write(text)
    except (DataError, ValueError, OSError) as error:
        exists = (
            f"the folder {given.out.parent} exists already; name another with --out"
            if given.method
            else f"{given.out} exists already; name another file with --out"
        )
        is_there = isinstance(error, FileExistsError) and (given.method or given.out.exists())
        said = exists if is_there else error
        print(f"sage-rlvr new: {said}", file=sys.stderr)
        return 1
    how = f"sage-rlvr run {shlex.quote(str(given.out))}"
    if not Path("Snakefile").is_file():
        study = shlex.quote(str(given.out.resolve()))
        how = f"cd {shlex.quote(str(ROOT))} && sage-rlvr run {study}"
    print(f"{given.out} is written. Run it: {how}")
    return 0


def study_text(model: str, data: str, problem: str | None, answer: str | None, out: Path) -> str:
    """The study as YAML with comments, to be written to `out`.

    `problem` and `answer` are columns; None guesses them from names. Raises ValueError or
    DataError with a message for people if the model or the data cannot be used.
    """
    if not re.fullmatch(NAME, name_of_study(out)) or out.suffix not in (".yaml", ".yml"):
        raise ValueError(
            f"--out {out}: must end in .yaml, and its name in letters, digits, _, . and -"
        )
    base, room = base_of(model, out.parent)
    problems = problem_set(data, problem, answer, out.parent)
    title, name = Path(data).stem, Path(model).resolve().name
    return TEXT.read_text(encoding="utf-8").format(
        file=out,
        name=name_of_study(out),
        title=_inline(f"{name} on {title}"),
        problems=_inline({**problems, "title": title}),
        train=_inline({**problems, "title": f"{title}, for training"}),
        model=_inline(name),
        base=_inline(base),
        tokens=min(LONGEST, room // 2),
    )


def method_text(name: str, study: str) -> str:
    """The study of a method of one's own beside those of another `study`, as YAML with comments.

    Raises ValueError for a name that cannot be used, and for a study that trains nothing.
    """
    config = ROOT / "config"
    if not re.fullmatch(NAME, name):
        raise ValueError(f"--method {name}: must be letters, digits, _, . and -, such as mine")
    if name in read(config / "algorithms.yaml").content:
        raise ValueError(
            f"--method {name}: is a method of config/algorithms.yaml; name yours otherwise, such "
            f"as my_{name}"
        )
    models = read_study(study, config).content.get("models", {})
    trained = {one: model for one, model in models.items() if (model or {}).get("algorithms")}
    if not trained:
        raise ValueError(f"--study {study}: trains no method; name another")
    model = next(iter(trained))
    parent = study if not Path(study).is_file() else str(Path(study).resolve())
    return METHOD.read_text(encoding="utf-8").format(
        name=name,
        study=_inline(parent),
        model=model,
        methods=_inline([*trained[model]["algorithms"], name]),
    )


def base_of(model: str, folder: Path) -> tuple[dict[str, str], int]:
    """The base of a model's folder or of the hub, for a study in `folder`, and the longest text
    that is known to fit. Raises ValueError if it cannot be used."""
    if not Path(model).is_dir() and re.fullmatch(REPOSITORY, model):
        return {"source": "hub", "repository": model}, 2 * LONGEST
    if not Path(model).is_dir():
        raise ValueError(f"model {model}: is no folder; give its path, or OWNER/NAME of the hub")
    base = FolderBase(source="folder", folder=model)
    if faults := [message for _, message in base.faults()]:
        raise ValueError(f"model {model}: {faults[0]}")
    return {"source": "folder", "folder": _from(folder, model)}, base.room() or 2 * LONGEST


def problem_set(data: str, problem: str | None, answer: str | None, folder: Path) -> dict[str, Any]:
    """The problem set of a file or of the hub, with its columns, for a study in `folder`. Says
    which problems are there twice; raises as `study_text`."""
    asked = {"problem": problem, "answer": answer}
    fields = {key: column for key, column in asked.items() if column}
    if not data.endswith(FORMATS):
        if Path(data).exists() or not re.fullmatch(REPOSITORY, data):
            raise ValueError(
                f"--data {data}: must end in {', '.join(FORMATS)}, or be OWNER/NAME of the hub"
            )
        return {"source": "hub", "repository": data, **({"fields": fields} if fields else {})}
    named = FileSet(source="file", title="", file=data)
    if not (rows := named.rows().rows):
        raise ValueError(f"{data}: has no rows; it needs a line of column names and the problems")
    columns = [*rows[0]]
    lower = {column.lower(): column for column in columns}
    for key, guesses in GUESSES.items():
        guess = next((lower[name] for name in guesses if name in lower), None)
        if not (column := fields.get(key, guess)):
            raise ValueError(
                f"{data}: which column is the {key}? Its columns: {', '.join(columns) or 'none'}; "
                f"name it with --{key} COLUMN"
            )
        fields[key] = column
    chosen = OwnFields(problem=[fields["problem"]], answer=[fields["answer"]])
    if twice := repeats(named.model_copy(update={"fields": chosen}).problems("own")):
        print(f"{data}: {twice}", file=sys.stderr)
    return {"source": "file", "file": _from(folder, data), "fields": fields}


def _from(folder: Path, path: str) -> str:
    """A path as a study in `folder` writes it."""
    return path if Path(path).is_absolute() else os.path.relpath(path, folder)


def _inline(value: Any) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()
