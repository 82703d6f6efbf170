"""Sends what is published to the Hugging Face hub: only where asked for, and with a token.

Repositories are made private; who owns them makes them public.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sage.results import Results
from sage.runtime.faults import Fault
from sage.tools.publish.evaluations import model_name
from sage.tools.publish.material import Material

TOKEN = "HF_TOKEN"

OF_A_POLICY = ["*.safetensors", "*.json", "history.jsonl"]
"""Files of a policy's folder that are sent."""


class NoToken(Fault, RuntimeError):
    """An upload was asked for without a token."""


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
    for run in material.runs():
        name = model_name(material, run)
        card = published / "models" / f"{name}.md"
        _send(api, "model", f"{owner}/{name}", card, results.policy(run), ".", OF_A_POLICY)
    data = f"{owner}/sage-{material.study.name}-samples"
    samples, card = results.folder / "samples", published / "samples.md"
    _send(api, "dataset", data, card, samples, "samples", ["**/*.parquet"])


def _send(
    api: Any, kind: str, repository: str, card: Path, folder: Path, place: str, patterns: list[str]
) -> None:
    api.create_repo(repository, repo_type=kind, private=True, exist_ok=True)
    api.upload_folder(
        repo_id=repository,
        repo_type=kind,
        folder_path=str(folder),
        path_in_repo=place,
        allow_patterns=patterns,
    )
    api.upload_file(
        repo_id=repository,
        repo_type=kind,
        path_or_fileobj=str(card),
        path_in_repo="README.md",
    )
    print(f"uploaded {repository} ({kind}, private)", flush=True)
