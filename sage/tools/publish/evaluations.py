"""Scores in the schema of every_eval_ever (version 0.3.0), one document for each policy.

The package of that name has the schema and its checker:
`every_eval_ever validate results/mini/publish/evaluations/data/*/*/*/*.json`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pandas as pd

from sage.results import Run
from sage.runtime.files import text_sum
from sage.study.bases import HubBase
from sage.tools.publish.material import PAPER, Material

SCHEMA = "0.3.0"
LIBRARY = "sage-rlvr"

Document = dict[str, Any]


def documents(material: Material, owner: str) -> Iterator[tuple[str, Document]]:
    """Each policy's document with its path below a datastore, ``data/…/{uuid}.json``.

    `owner` stands before the names of models, as an account does on the hub.
    """
    study = material.study
    for model in study.study.models:
        for run in dict.fromkeys(run for run, _ in study.evaluated_runs(model)):
            scores = material.scores_of(run)
            if not scores.empty:
                name = model_name(material, run)
                content = document(material, run, scores, f"{owner}/{name}")
                path = f"data/{LIBRARY}-{study.name}/{owner}/{name}/{identity(content)}.json"
                yield path, content


def document(material: Material, run: Run, scores: pd.DataFrame, model: str) -> Document:
    """The scores of one policy: a result for each benchmark and k."""
    study, ended = material.study, str(int(material.ended().timestamp()))
    settings = study.evaluation(run.model)
    base = study.model(run.model).base
    details = {
        "study": study.name,
        "model": run.model,
        "algorithm": run.algorithm,
        "train_seed": str(run.seed),
        "toy": str(material.is_toy()).lower(),
        "commits": ", ".join(material.commits()) or "unknown",
        "deployment_type": "self_deployed",
        "model_availability": "open_weights",
    }
    if isinstance(base, HubBase):
        details["base_model"] = base.repository
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{study.name}/{model}/{ended}",
        "evaluation_timestamp": ended,
        "retrieved_timestamp": ended,
        "source_metadata": {
            "source_name": f"Reproduction of {PAPER}",
            "source_type": "evaluation_run",
            "source_organization_name": model.split("/")[0],
            "evaluator_relationship": "third_party" if run.algorithm == "base" else "first_party",
        },
        "eval_library": {"name": LIBRARY, "version": version(LIBRARY)},
        "model_info": {
            "name": model.split("/")[1],
            "id": model,
            "developer": model.split("/")[0],
            "inference_engine": {"name": settings.engine, "version": version(settings.engine)},
            "additional_details": details,
        },
        "evaluation_results": [
            result(row, settings.sampling.temperature, settings.sampling.max_tokens)
            for row in scores.to_dict("records")
        ],
    }


def result(row: dict[Any, Any], temperature: float, max_tokens: int) -> Document:
    """One score with its 95 % interval over problems, for one run."""
    k = int(row["k"])
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
                "problems": str(int(row["n_problems"])),
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
                "num_samples": int(row["n_problems"]),
            },
        },
        "generation_config": {
            "generation_args": {"temperature": temperature, "max_tokens": max_tokens}
        },
    }


def model_name(material: Material, run: Run) -> str:
    """The name under which a policy is published."""
    seed = f"-seed{run.seed}" if int(run.seed) else ""
    return f"sage-{material.study.name}-{run.model}-{run.algorithm}{seed}".replace("_", "-")


def identity(content: Document) -> str:
    """A UUID of version 4 in form, the same for the same content."""
    return str(uuid.UUID(text_sum(repr(sorted(content.items())))[:32], version=4))


def version(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
