"""Samples in the instance schema of every_eval_ever, beside the document with a policy's scores.

A line is a problem with all samples of one policy: their texts, the answer that the grader took
from each, and which are right, sample by sample, in `metadata.correct`. `score` is the share of
right samples, `is_correct` whether there is one: pass@1 and pass@n of that problem.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import pandas as pd

from sage.problems.record import Problem, read_problems
from sage.results import Results, Run
from sage.runtime.files import text_sum
from sage.runtime.tables import read_frame

Document = dict[str, Any]
_COLUMNS = ["problem_id", "eval_seed", "sample_index", "completion", "answer", "status", "n_tokens"]


def write_instances(document: Document, run: Run, results: Results, file: TextIO) -> int:
    """Write the samples of a policy, a line a problem; returns how many lines there are.

    `document` has its scores (`evaluations`); benchmarks without samples on disk are left out.
    """
    lines = 0
    names = [one["evaluation_name"] for one in document["evaluation_results"]]
    for benchmark in dict.fromkeys(names):
        samples = results.samples(run, benchmark)
        if not samples.is_file():
            continue
        problems = {one.problem_id: one for one in read_problems(results.problems(benchmark))}
        head = {
            "schema_version": document["schema_version"],
            "evaluation_id": document["evaluation_id"],
            "model_id": document["model_info"]["id"],
            "evaluation_name": benchmark,
            "interaction_type": "single_turn",
        }
        for line in instances(head, problems, read_frame(samples, _COLUMNS)):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            lines += 1
    return lines


def instances(
    head: Mapping[str, str], problems: Mapping[str, Problem], samples: pd.DataFrame
) -> Iterator[Document]:
    """A line for each problem of `samples`, in the order of its evaluation seeds and samples."""
    ordered = samples.sort_values(["eval_seed", "sample_index"])
    for name, drawn in ordered.groupby("problem_id"):
        problem, right = problems[str(name)], drawn["status"] == "correct"
        answers = [str(answer) for answer in drawn["answer"].fillna("")]
        yield {
            **head,
            "sample_id": str(name),
            "sample_hash": text_sum(problem.problem + problem.answer),
            "input": {"raw": problem.problem, "reference": [problem.answer]},
            "output": {"raw": drawn["completion"].tolist()},
            "answer_attribution": [
                {
                    "turn_idx": 0,
                    "source": f"output.raw[{index}]",
                    "extracted_value": answer,
                    "extraction_method": f"sage/{problem.kind}",
                    "is_terminal": True,
                }
                for index, answer in enumerate(answers)
            ],
            "evaluation": {"score": float(right.mean()), "is_correct": bool(right.any())},
            "metadata": {
                "correct": "".join("01"[one] for one in right),
                "tokens": " ".join(map(str, drawn["n_tokens"])),
                "level": str(problem.level),
            },
        }
