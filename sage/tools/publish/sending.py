"""Writes all that is published of a study into one folder, and sends it to the Hugging Face hub.

It is sent only where that is asked for, with a token. Repositories are made private; who owns them
makes them public.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sage.results import Results
from sage.runtime.faults import Fault
from sage.runtime.files import atomic_directory
from sage.tools.publish.evaluations import documents, write_samples
from sage.tools.publish.material import Material
from sage.tools.publish.texts import dataset_card, model_card, pages

LOCAL = "local"
"""Stands for the account where nothing is uploaded."""

TOKEN = "HF_TOKEN"

OF_A_POLICY = ["*.safetensors", "*.json", "history.jsonl"]
"""Files of a policy's folder that are sent."""


class NoToken(Fault, RuntimeError):
    """An upload was asked for without a token."""


def write_publication(
    material: Material, folder: Path, owner: str = LOCAL, results: Results | None = None
) -> list[str]:
    """Write cards, logbook and scores; returns the paths of the files, relative to `folder`.

    With `results`, the study's files, samples are written beside the scores. What an earlier call
    has written there is replaced as a whole.
    """
    files = {
        f"models/{material.model_name(run)}.md": model_card(material, run)
        for run in material.runs()
    }
    files["samples.md"] = dataset_card(material)
    files |= {f"logbook/{path}": text for path, text in pages(material).items()}
    with atomic_directory(folder) as temporary:
        for path, run, content in documents(material, owner):
            if results:
                write_samples(content, run, results, temporary / "evaluations", path)
            files[f"evaluations/{path}"] = json.dumps(content, indent=2, allow_nan=False) + "\n"
        for path, text in files.items():
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_text(text, encoding="utf-8")
        return sorted(p.relative_to(temporary).as_posix() for p in temporary.rglob("*.*"))


def upload(
    material: Material, results: Results, published: Path, owner: str, api: Any = None
) -> None:
    """Make private repositories of `owner` and fill them: one for each adapter, one for samples.

    `api` is a `huggingface_hub.HfApi`; by default one with the token in HF_TOKEN. Raises NoToken if
    that is not set.
    """
    if api is None:
        token = os.environ.get(TOKEN)
        if not token:
            raise NoToken(
                f"publish_to is {owner}, but the environment variable {TOKEN} is not set: set it "
                "to a token that may write, or leave out publish_to"
            )
        from huggingface_hub import HfApi

        api = HfApi(token=token)

    def send(
        kind: str, name: str, card: Path, folder: Path, place: str, patterns: list[str]
    ) -> None:
        repository = {"repo_id": f"{owner}/{name}", "repo_type": kind}
        api.create_repo(**repository, private=True, exist_ok=True)
        api.upload_folder(
            **repository, folder_path=str(folder), path_in_repo=place, allow_patterns=patterns
        )
        api.upload_file(**repository, path_or_fileobj=str(card), path_in_repo="README.md")
        print(f"uploaded {owner}/{name} ({kind}, private)", flush=True)

    for run in material.runs():
        name = material.model_name(run)
        card = published / "models" / f"{name}.md"
        send("model", name, card, results.policy(run), ".", OF_A_POLICY)
    data, card = f"sage-{material.study.name}-samples", published / "samples.md"
    send("dataset", data, card, results.folder / "samples", "samples", ["**/*.parquet"])
