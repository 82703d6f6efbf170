"""A finished study as one RO-Crate: a ZIP file with workflow, settings, results and their records.

It follows the profile Workflow Run Crate 0.5 (https://w3id.org/ro/wfrun/workflow/0.5): the run of
the workflow is one action, with the study's files as input and its results as output. Weights of
base models stay out; `left_out.json` has their names and sums. The same files give the same bytes.
"""

from __future__ import annotations

import json
import mimetypes
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import get_token

from sage.rendering.markup import yaml_text
from sage.runtime.faults import Fault
from sage.runtime.files import INSTALLED, PACKAGE, atomic_file, file_sum, text_sum
from sage.runtime.records import is_hidden, jobs_folder
from sage.study import ResolvedStudy

SECRETS = re.compile(
    r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|(^|_)(PASS|PASSPHRASE|PAT|PIN|AUTH|CREDS?|DSN)(_|$)|_PWD$",
    re.IGNORECASE,
)
"""The value of an environment variable of such a name must be in no file."""

SHAPES = re.compile(
    rb"\b(gh[opsur]_\w{36}|github_pat_\w{22}|glpat-[\w-]{20}|hf_[A-Za-z0-9]{30}|sk-[\w-]{32}"
    rb"|(AKIA|ASIA)[A-Z0-9]{16}\b|AIza[\w-]{35}|xox[abprs]-[\w-]{20}|eyJ[\w-]{10,}\.eyJ[\w-]{10}"
    rb"|(https?|postgres(ql)?|mysql|mongodb(\+srv)?|redis|amqp|s3)://[^\s:/@\"'<>]+:[^\s:/@\"'<>]+@)"
    rb"|-----BEGIN ([A-Z]+ )*PRIVATE KEY-----"
)
"""What tokens, keys and addresses with a password look like, whoever they are of."""

LEFT_OUT = ("logs", "scratch", "shards", "partial", "archive")
"""Folders of the results that are not archived."""

SOURCES = ("sage", "workflow", "config", "profiles", "locks", "reports", "docs")
"""Folders of the workflow; README, licence and definition files stand beside them."""

_METADATA = "ro-crate-metadata.json"
_SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
_TEMPLATE = Path("reports/crate.json")
_WHEN = (1980, 1, 1, 0, 0, 0)  # the earliest that ZIP knows: times are in the records
_TYPES = {
    ".jsonl": "application/jsonl",
    ".parquet": "application/vnd.apache.parquet",
    ".rst": "text/x-rst",
    ".smk": "text/x-snakemake",
    ".yaml": "application/yaml",
    ".safetensors": "application/octet-stream",
}

Entity = dict[str, Any]


def write_archive(study: ResolvedStudy, results: Path, workflow: Path, output: Path) -> None:
    """Write the crate of the study in `results` to `output`; `workflow` is the Snakefile's folder.

    Raises Fault if a file holds a secret (`refuse_secrets`), or if a link leads out of the study,
    and FileNotFoundError if the study has no records.
    """
    files = {**workflow_files(workflow), **result_files(results)}
    refuse_secrets(files.values())
    written = {
        "study.yaml": yaml_text(study.model_dump(mode="json")),
        "left_out.json": _json({p.as_posix(): file_sum(p) for p in weights_left_out(results)}),
    }
    crate = _metadata(study, results, files, written, workflow / _TEMPLATE)
    with atomic_file(output) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, text in {_METADATA: _json(crate), **written}.items():
            archive.writestr(_entry(name), text)
        for name, path in sorted(files.items()):
            with archive.open(_entry(name), "w", force_zip64=True) as target:
                target.write(path.read_bytes())


def workflow_files(folder: Path) -> dict[str, Path]:
    """The files of the workflow by their names in the crate, which are those beside it."""
    ends = ("*.py", "*.toml", "*.yml", "*.md", "LICENSE", "Makefile", "Snakefile")
    paths = [path for end in ends for path in folder.glob(end)]
    paths += [path for name in SOURCES for path in (folder / name).rglob("*")]
    found = {path.relative_to(folder).as_posix(): path for path in _files(folder, paths)}
    if folder == INSTALLED:  # the package is around it
        package = (path for path in PACKAGE.rglob("*") if not path.is_relative_to(folder))
        files = _files(PACKAGE, package)
        found |= {path.relative_to(PACKAGE.parent).as_posix(): path for path in files}
    return {name: path for name, path in found.items() if "__pycache__" not in path.parts}


def result_files(results: Path) -> dict[str, Path]:
    """The archived files of a study by their names in the crate, which begin with `results`."""
    weights = weights_left_out(results)
    parts = [part for part in sorted(results.glob("*")) if part.name not in LEFT_OUT]
    paths = [path for part in parts for path in (part, *sorted(part.rglob("*")))]
    return {
        f"results/{results.name}/{path.relative_to(results).as_posix()}": path
        for path in _files(results, paths)
        if path not in weights
    }


def _files(folder: Path, paths: Iterable[Path]) -> Iterator[Path]:
    """The files among `paths` inside `folder` that are not hidden; raises Fault for a link out."""
    for path in paths:
        if is_hidden(path.relative_to(folder)):
            continue
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise Fault(
                f"{path}: a link to {path.resolve()}, which lies outside {folder.resolve()}; put "
                "the file itself there, or remove the link, before the study is archived"
            )
        if path.is_file():
            yield path


def refuse_secrets(paths: Iterable[Path]) -> None:
    """Raises Fault if a file holds a secret of the environment (`SECRETS`), the token of the
    Hugging Face hub, or what looks like a secret (`SHAPES`)."""
    secrets = _secrets()
    for path in paths:
        content = path.read_bytes()
        held = next((f"the value of {name}" for name in secrets if secrets[name] in content), None)
        if not held and (found := SHAPES.search(content)):
            held = f"what looks like a secret ({found[0][:8].decode(errors='replace')}…)"
        if held:
            raise Fault(
                f"{path}: it holds {held}; remove it there, and take the value out of service, "
                "before the file is given to others"
            )


def _secrets() -> dict[str, bytes]:
    """The values of secrets by their names; short ones and paths of files are none."""
    names = filter(SECRETS.search, os.environ)
    values = {name: os.environ[name] for name in names} | {"the hub's token": get_token() or ""}
    return {
        name: value.encode(errors="surrogateescape")
        for name, value in values.items()
        if len(value) >= 8 and not os.path.exists(value)
    }


def weights_left_out(results: Path) -> list[Path]:
    """Weights of base models, before and after SFT: large, and to be had or made again."""
    return [
        path
        for stage in ("pretrained", "base")
        for path in sorted((results / "models").glob(f"*/{stage}/**/*.safetensors"))
    ]


def _metadata(
    study: ResolvedStudy,
    results: Path,
    files: Mapping[str, Path],
    written: Mapping[str, str],
    template: Path,
) -> dict[str, Any]:
    """The JSON-LD of a crate with `files`, and the texts `written` for it.

    `template` has what is the same in every crate, by `@id`; `{page}` stands for the report's path.
    Start and end of the run are those of its first and last job.
    """
    records = [json.loads(path.read_bytes()) for path in jobs_folder(results).rglob("[!.]*.json")]
    if not records:
        raise FileNotFoundError(
            f"{results}: no records of jobs in provenance/; run the study before it is archived"
        )
    last = max(records, key=lambda record: str(record["ended"]))
    page = f"results/{results.name}/report/index.html"
    crate: dict[str, Any] = json.loads(template.read_text("utf-8").replace("{page}", page))
    same: dict[str, Entity] = {one["@id"]: one for one in crate["@graph"]}
    parts = [_file(name, path.read_bytes()) for name, path in sorted(files.items())]
    parts += [_file(name, text.encode()) for name, text in written.items()]
    described: dict[str, Entity] = {one["@id"]: one | same.get(one["@id"], {}) for one in parts}
    described["Snakefile"]["version"] = str(last["git_commit"])
    described[page]["name"] = study.study.title
    same["./"] |= {
        "name": study.study.title,
        "description": study.study.notice,
        "datePublished": last["ended"],
        "hasPart": [{"@id": name} for name in described],
    }
    same["#run"] |= {
        "name": f"Run of the study {study.name}",
        "description": f"All jobs of the study {study.name}; each has a record in provenance/jobs",
        "result": [{"@id": name} for name in sorted(files) if name.startswith("results/")],
        "startTime": min(str(record["started"]) for record in records),
        "endTime": last["ended"],
    }
    same[_SNAKEMAKE]["version"] = str(last["versions"].get("snakemake", ""))
    about = [one for name, one in same.items() if name not in described]
    return crate | {"@graph": [*about, *described.values()]}


def _file(name: str, content: bytes) -> Entity:
    kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "text/plain"
    return {
        "@id": name,
        "@type": "File",
        "name": Path(name).name,
        "contentSize": str(len(content)),
        "sha256": text_sum(content),
        "encodingFormat": kind,
    }


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _WHEN)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
