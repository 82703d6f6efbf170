"""Writes all that is published of a study into one folder."""

from __future__ import annotations

import json
from pathlib import Path

from sage.runtime.files import atomic_directory
from sage.tools.publish.cards import dataset_card, model_card
from sage.tools.publish.evaluations import documents, model_name
from sage.tools.publish.logbook import pages
from sage.tools.publish.material import Material

LOCAL = "local"
"""Stands for the account where nothing is uploaded."""


def write_publication(material: Material, folder: Path, owner: str = LOCAL) -> list[str]:
    """Write cards, logbook and scores; returns the paths of the files, relative to `folder`.

    What an earlier call has written there is replaced as a whole.
    """
    files = {
        f"models/{model_name(material, run)}.md": model_card(material, run)
        for run in material.runs()
    }
    files["samples.md"] = dataset_card(material)
    files |= {f"logbook/{path}": text for path, text in pages(material).items()}
    for path, content in documents(material, owner):
        files[f"evaluations/{path}"] = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with atomic_directory(folder) as temporary:
        for path, text in files.items():
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_text(text, encoding="utf-8")
    return sorted(files)
