"""Jobs with records, without Snakemake."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake.iocontainers import Namedlist

from sage.runtime.records import recorded


@dataclass(eq=False)
class Job:
    """A job as Snakemake hands it to scripts, and as it is before it runs."""

    name: str
    input: Namedlist
    output: Namedlist
    params: Namedlist
    log: list[str]
    threads: int = 1
    wildcards: Namedlist = field(default_factory=lambda: Namedlist(fromdict={"seed": "3"}))

    @property
    def rule(self) -> str:
        return self.name


def a_job(
    results: Path,
    name: str,
    output: str,
    inputs: dict[str, Path] | None = None,
    settings: dict[str, Any] | None = None,
) -> Job:
    return Job(
        name,
        input=Namedlist(fromdict={key: str(one) for key, one in (inputs or {}).items()}),
        output=Namedlist(fromdict={"made": str(results / output)}),
        params=Namedlist(fromdict=settings or {}),
        log=[str(results / f"logs/{name}.log")],
    )


def run_job(
    results: Path,
    name: str,
    output: str,
    content: dict[str, str] | str,
    inputs: dict[str, Path] | None = None,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A job that writes `content` into a file, or into a folder of files; its record."""
    path = results / output
    with recorded(a_job(results, name, output, inputs, settings), settings or {}):
        files = content if isinstance(content, dict) else {"": content}
        for inside, text in files.items():
            file = path / inside if inside else path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    record: dict[str, Any] = json.loads(
        (results / f"provenance/jobs/{name}.json").read_text(encoding="utf-8")
    )
    return record
