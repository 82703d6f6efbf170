"""Writes all that is published of a study into one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sage.results import Results, Run
from sage.runtime.files import atomic_directory, file_sum
from sage.tools.publish.cards import dataset_card, model_card
from sage.tools.publish.evaluations import documents, model_name
from sage.tools.publish.instances import write_instances
from sage.tools.publish.logbook import pages
from sage.tools.publish.material import Material

LOCAL = "local"
"""Stands for the account where nothing is uploaded."""


def write_publication(
    material: Material, folder: Path, owner: str = LOCAL, results: Results | None = None
) -> list[str]:
    """Write cards, logbook and scores; returns the paths of the files, relative to `folder`.

    With `results`, the study's files, samples are written beside the scores. What an earlier call
    has written there is replaced as a whole.
    """
    files = {
        f"models/{model_name(material, run)}.md": model_card(material, run)
        for run in material.runs()
    }
    files["samples.md"] = dataset_card(material)
    files |= {f"logbook/{path}": text for path, text in pages(material).items()}
    with atomic_directory(folder) as temporary:
        for path, content in documents(material, owner):
            if results:
                _add_samples(content, results, temporary / "evaluations", path)
            files[f"evaluations/{path}"] = json.dumps(content, indent=2, allow_nan=False) + "\n"
        for path, text in files.items():
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_text(text, encoding="utf-8")
        return sorted(p.relative_to(temporary).as_posix() for p in temporary.rglob("*.*"))


def _add_samples(document: dict[str, Any], results: Results, store: Path, path: str) -> None:
    """Write a policy's samples beside its document, which names them with their sum."""
    details = document["model_info"]["additional_details"]
    run = Run(details["model"], details["algorithm"], details["train_seed"])
    file = store / f"{path.removesuffix('.json')}_samples.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", encoding="utf-8") as lines:
        rows = write_instances(document, run, results, lines)
    if not rows:
        file.unlink()
        return
    document["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": file.relative_to(store).as_posix(),
        "hash_algorithm": "sha256",
        "checksum": file_sum(file),
        "total_rows": rows,
    }
