"""Writes a commented study of a model and problems of one's own, which runs as it is.

    sage-rlvr new --model FOLDER_OR_HUB_ID --data FILE_OR_HUB_ID --out my.yaml

The study samples the model on the problems, grades, and makes tables; a commented part trains it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from sage.fields import NAME, REPOSITORY
from sage.problems.own import FORMATS, FileSet, OwnFields
from sage.problems.record import DataError
from sage.study.bases import FolderBase

GUESSES = {
    "problem": ("problem", "question", "prompt", "query", "quiz", "input", "instruction"),
    "answer": ("answer", "result", "gold", "target", "expected_answer", "ground_truth", "label"),
}
"""Columns that are taken for the problem and the answer, the likeliest first."""

LONGEST = 512
"""Tokens of a completion, where the model has room for twice as many."""

TEXT = """\
# A study of your own. Every key is explained in config/README.md.
#   sage-rlvr plan {file}     what it costs
#   sage-rlvr run {file}      runs it; results and the page are in results/{name}
title: {title}
notice: ""  # what the numbers do and do not show; stands at the top of the page

problems:
  own: {problems}
  # train: {train}  # better: other problems

models:
  own:
    title: {model}
    base: {base}
    benchmarks: [own]
    # job: {{gpus: 1}}  # for each job of this model
    # To train it as well, take away the # of the lines below, of `train` above and of `seeds`. The
    # methods are those of config/algorithms.yaml.
    # algorithms: [grpo, grpo_branch]
    # rl:
    #   problems: train
    #   steps: 100
    #   prompts_per_step: 8
    #   rollouts: 8
    #   sampling: {{temperature: 1.0, max_tokens: {tokens}}}
    #   learning_rate: 1.0e-5
    #   schedule: linear
    #   warmup_ratio: 0.1
    #   weight_decay: 0.01
    #   kl_coefficient: 0.05
    #   lora: {{rank: 16, alpha: 32}}
# seeds: [1, 2, 3]  # of training: one run of each method for each

evaluation:
  samples: 16  # of each problem
  seeds: [0]
  primary_k: 8  # pass@8 stands beside pass@1 in tables; at most half of the samples
  sampling: {{temperature: 1.0, max_tokens: {tokens}}}
  batch_size: 64  # sampled together; lower it where memory is short
  # dtype: bfloat16  # on a GPU
  # engine: vllm  # faster on a GPU; needs the extra vllm

exhibits:
  accuracy: {{kind: accuracy, title: Accuracy and coverage, model: own}}
  coverage: {{kind: curves, title: Coverage over k, model: own}}
"""


def main(arguments: list[str]) -> int:
    """Write the study; 1 and a message if its model or data cannot be used as they are."""
    parser = argparse.ArgumentParser(prog="sage-rlvr new", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a model's folder, or OWNER/NAME of the hub")
    parser.add_argument("--data", required=True, help="a .csv, .jsonl or .parquet, or OWNER/NAME")
    parser.add_argument("--problem", metavar="COLUMN", help="the column of the problems")
    parser.add_argument("--answer", metavar="COLUMN", help="the column of the answers")
    parser.add_argument("--out", type=Path, default=Path("my_study.yaml"), help="the study's file")
    given = parser.parse_args(arguments)
    try:
        text = study_text(given.model, given.data, given.problem, given.answer, given.out)
        with open(given.out, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        print(f"{given.out} exists already; name another file with --out", file=sys.stderr)
        return 1
    except (DataError, ValueError, OSError) as error:
        print(f"sage-rlvr new: {error}", file=sys.stderr)
        return 1
    print(f"{given.out} is written. Run it: sage-rlvr run {given.out}")
    return 0


def study_text(model: str, data: str, problem: str | None, answer: str | None, out: Path) -> str:
    """The study as YAML with comments, to be written to `out`.

    `problem` and `answer` are columns; None guesses them from names. Raises ValueError or
    DataError with a message for people if the model or the data cannot be used.
    """
    if not re.fullmatch(NAME, out.stem) or out.suffix not in (".yaml", ".yml"):
        raise ValueError(
            f"--out {out}: must end in .yaml, and its name in letters, digits, _, . and -"
        )
    base, room = _base(model, out.parent)
    problems = _problems(data, problem, answer, out.parent)
    title, name = Path(data).stem, Path(model).resolve().name
    return TEXT.format(
        file=out,
        name=out.stem,
        title=_inline(f"{name} on {title}"),
        problems=_inline({**problems, "title": title}),
        train=_inline({**problems, "title": f"{title}, for training"}),
        model=_inline(name),
        base=_inline(base),
        tokens=min(LONGEST, room // 2),
    )


def _base(model: str, folder: Path) -> tuple[dict[str, str], int]:
    """The base of a model's folder or of the hub, and the longest text that is known to fit."""
    if not Path(model).is_dir() and re.fullmatch(REPOSITORY, model):
        return {"source": "hub", "repository": model}, 2 * LONGEST
    base = FolderBase(source="folder", folder=model)
    if faults := [message for _, message in base.faults()]:
        raise ValueError(f"--model: {faults[0]}")
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    room = config.get("max_position_embeddings") or 2 * LONGEST
    return {"source": "folder", "folder": _from(folder, model)}, int(room)


def _problems(data: str, problem: str | None, answer: str | None, folder: Path) -> dict[str, Any]:
    """The problem set of a file or of the hub, with its columns."""
    asked = {"problem": problem, "answer": answer}
    is_file = data.endswith(FORMATS) or Path(data).exists()
    if not is_file and re.fullmatch(REPOSITORY, data):
        fields = {key: column for key, column in asked.items() if column}
        return {"source": "hub", "repository": data, **({"fields": fields} if fields else {})}
    if not data.endswith(FORMATS):
        raise ValueError(
            f"--data {data}: must end in {', '.join(FORMATS)}, or be OWNER/NAME of the hub"
        )
    named = FileSet(source="file", title="", file=data)
    columns = [*(named.rows().rows or [{}])[0]]
    lower = {column.lower(): column for column in columns}
    fields = {}
    for key, column in asked.items():
        guess = next((lower[name] for name in GUESSES[key] if name in lower), None)
        if not (chosen := column or guess):
            raise ValueError(
                f"{data}: which column is the {key}? Its columns: {', '.join(columns) or 'none'}; "
                f"name it with --{key} COLUMN"
            )
        fields[key] = chosen
    chosen_fields = {key: [column] for key, column in fields.items()}
    named.model_copy(update={"fields": OwnFields(**chosen_fields)}).problems("own")
    return {"source": "file", "file": _from(folder, data), "fields": fields}


def _from(folder: Path, path: str) -> str:
    """A path as a study in `folder` writes it."""
    return path if Path(path).is_absolute() else os.path.relpath(path, folder)


def _inline(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), sort_keys=False)
    return text.removesuffix("...\n").strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
