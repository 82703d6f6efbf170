"""Scores and samples in the schemas of every_eval_ever (version 0.3.0), for each policy.

Beside each document with scores stands a file of samples. A line is a problem with all samples of
the policy: their texts, the answer that the grader took from each, and which are right, sample by
sample, in `metadata.correct`. `score` is the share of right samples, `is_correct` whether there is
one: pass@1 and pass@n of that problem. The package of that name has the schema and its checker:
`every_eval_ever validate results/mini/publish/evaluations/data/*/*/*/*.json`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from sage.problems.record import Problem, read_problems
from sage.results import Results, Run
from sage.runtime.files import file_sum, text_sum
from sage.runtime.manifest import version
from sage.runtime.tables import read_frame
from sage.study.bases import HubBase
from sage.tools.publish.material import PAPER, Material

SCHEMA = "0.3.0"
LIBRARY = "sage-rlvr"

Document = dict[str, Any]
_COLUMNS = ["problem_id", "eval_seed", "sample_index", "completion", "answer", "status", "n_tokens"]


def documents(material: Material, owner: str) -> Iterator[tuple[str, Run, Document]]:
    """Each policy's document with its path below a datastore, ``data/…/{uuid}.json``.

    `owner` stands before the names of models, as an account does on the hub.
    """
    study = material.study
    for model in study.study.models:
        for run in dict.fromkeys(run for run, _ in study.evaluated_runs(model)):
            if material.scores_of(run).empty:
                continue
            name = f"{owner}/{material.model_name(run)}"
            content = _document(material, run, name)
            same = text_sum(repr(sorted(content.items())))  # the same UUID for the same content
            file = f"{uuid.UUID(same[:32], version=4)}.json"
            yield f"data/{LIBRARY}-{study.name}/{name}/{file}", run, content


def _document(material: Material, run: Run, model: str) -> Document:
    """The scores of one policy: a result for each benchmark and k."""
    study, ended = material.study, str(int(material.ended().timestamp()))
    owner, name = model.split("/")
    settings, base = study.evaluation(run.model), study.model(run.model).base
    drawn = settings.sampling
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{study.name}/{model}/{ended}",
        "evaluation_timestamp": ended,
        "retrieved_timestamp": ended,
        "source_metadata": {
            "source_name": f"Reproduction of {PAPER}",
            "source_type": "evaluation_run",
            "source_organization_name": owner,
            "evaluator_relationship": "third_party" if run.algorithm == "base" else "first_party",
        },
        "eval_library": {"name": LIBRARY, "version": version(LIBRARY)},
        "model_info": {
            "name": name,
            "id": model,
            "developer": owner,
            "inference_engine": {"name": settings.engine, "version": version(settings.engine)},
            "additional_details": {
                "study": study.name,
                "model": run.model,
                "algorithm": run.algorithm,
                "train_seed": str(run.seed),
                "toy": str(material.is_toy()).lower(),
                "commits": ", ".join(material.commits()) or "unknown",
                "deployment_type": "self_deployed",
                "model_availability": "open_weights",
                **({"base_model": base.repository} if isinstance(base, HubBase) else {}),
            },
        },
        "evaluation_results": [
            {
                **_score(row),
                "generation_config": {
                    "generation_args": {
                        "temperature": drawn.temperature,
                        "max_tokens": drawn.max_tokens,
                    }
                },
            }
            for row in material.scores_of(run).to_dict("records")
        ],
    }


def _score(row: Mapping[Any, Any]) -> Document:
    """One score with its 95 % interval over problems, for one run."""
    k, problems = int(row["k"]), int(row["n_problems"])
    return {
        "evaluation_result_id": f"{row['benchmark']}/pass@{k}",
        "evaluation_name": str(row["benchmark"]),
        "source_data": {"dataset_name": str(row["benchmark"]), "source_type": "other"},
        "metric_config": {
            "evaluation_description": "Share of problems solved by at least one of k samples",
            "metric_id": f"pass_at_k_{k}",
            "metric_name": f"pass@{k}",
            "metric_kind": "pass_rate",
            "metric_unit": "proportion",
            "metric_parameters": {"k": k},
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": float(row["value"]),
            "details": {
                "problems": str(problems),
                "samples_per_problem": str(int(row["n_samples"])),
                "estimator": "unbiased, from all samples",
            },
            "uncertainty": {
                "confidence_interval": {
                    "lower": float(row["low"]),
                    "upper": float(row["high"]),
                    "confidence_level": 0.95,
                    "method": "over problems",
                },
                "num_samples": problems,
            },
        },
    }


def write_samples(document: Document, run: Run, results: Results, store: Path, path: str) -> None:
    """Write a policy's samples beside its document at `path` in `store`, which then names them.

    Benchmarks without samples on disk are left out; without any, no file is written.
    """
    lines: list[str] = []
    names = dict.fromkeys(one["evaluation_name"] for one in document["evaluation_results"])
    for benchmark in names:
        if (samples := results.samples(run, benchmark)).is_file():
            problems = {one.problem_id: one for one in read_problems(results.problems(benchmark))}
            head = {
                "schema_version": document["schema_version"],
                "evaluation_id": document["evaluation_id"],
                "model_id": document["model_info"]["id"],
                "evaluation_name": benchmark,
                "interaction_type": "single_turn",
            }
            instances = _instances(problems, read_frame(samples, _COLUMNS))
            lines += [json.dumps(head | one, ensure_ascii=False) + "\n" for one in instances]
    if not lines:
        return
    file = store / f"{path.removesuffix('.json')}_samples.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), encoding="utf-8")
    document["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": file.relative_to(store).as_posix(),
        "hash_algorithm": "sha256",
        "checksum": file_sum(file),
        "total_rows": len(lines),
    }


def _instances(problems: Mapping[str, Problem], samples: pd.DataFrame) -> Iterator[Document]:
    """What is said of each problem, its samples in the order of evaluation seeds."""
    ordered = samples.sort_values(["eval_seed", "sample_index"])
    for name, drawn in ordered.groupby("problem_id"):
        problem, right = problems[str(name)], drawn["status"] == "correct"
        yield {
            "sample_id": str(name),
            "sample_hash": text_sum(problem.problem + problem.answer),
            "input": {"raw": problem.problem, "reference": [problem.answer]},
            "output": {"raw": drawn["completion"].tolist()},
            "answer_attribution": [
                {
                    "turn_idx": 0,
                    "source": f"output.raw[{index}]",
                    "extracted_value": str(answer),
                    "extraction_method": f"sage/{problem.kind}",
                    "is_terminal": True,
                }
                for index, answer in enumerate(drawn["answer"].fillna(""))
            ],
            "evaluation": {"score": float(right.mean()), "is_correct": bool(right.any())},
            "metadata": {
                "correct": "".join("01"[one] for one in right),
                "tokens": " ".join(map(str, drawn["n_tokens"])),
                "level": str(problem.level),
            },
        }
