"""Today's behaviour as text in `golden/`, so that a change of it can be read in a diff.

    SAGE_WRITE_GOLDEN=1 pytest tests/test_golden.py    writes the files anew

A commit that changes one of these files says why in its body. Numbers of training depend on the
processor, so those of the smoke study are compared on the kind of machine that wrote them only.
"""

from __future__ import annotations

import functools
import html
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import ROOT, snakemake_in

from sage.exhibits import load_study
from sage.tools import keep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4000)]

GOLDEN = ROOT / "tests/golden"
OPTIONS = {path.stem: path.stem for path in (ROOT / "config/studies").glob("*.yaml")}
OPTIONS |= {
    path.parent.name: str(path.relative_to(ROOT)) for path in ROOT.glob("reports/*/*/study.yaml")
}
STUDIES = sorted(OPTIONS)
KEPT = keep.kept_runs()

_OF_THE_RUN = {
    "batch_size",
    "commit",
    "ended",
    "git_commit",
    "hardware",
    "host",
    "peak_memory_gib",
    "process_seconds",
    "processor_seconds",
    "seconds",
    "started",
    "tokens_per_second",
    "versions",
    "wall_seconds",
}
"""Keys of manifests that differ from run to run."""


of_counts = functools.cache(keep.recomputed)


def is_as_kept(name: str, text: str) -> None:
    """Compare with the file `name` of GOLDEN, or write it."""
    file = GOLDEN / name
    if os.environ.get("SAGE_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines(), name


def processor() -> str:
    """What decides the last digits of sums: the processor's name and its vector instructions."""
    text = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    model = re.search(r"model name\s*: (.*)", text)
    flags = {"avx2", "avx512f", "avx512_bf16", "amx_tile"} & {*text.split()}
    return " ".join([model[1] if model else platform.machine(), *sorted(flags)])


@pytest.fixture
def same_machine() -> None:
    if os.environ.get("SAGE_WRITE_GOLDEN"):
        (GOLDEN / "machine.txt").write_text(processor() + "\n", encoding="utf-8")
    elif (known := (GOLDEN / "machine.txt").read_text(encoding="utf-8").strip()) != processor():
        pytest.skip(f"the numbers were written on another machine: {known}; this is {processor()}")


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_resolves_to_the_same_settings(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    dump = load_study(OPTIONS[study], ROOT / "config").model_dump(mode="json")
    text = yaml.safe_dump(dump, sort_keys=False, width=1000, allow_unicode=True)
    is_as_kept(f"studies/{study}.yaml", text)


def test_each_study_has_the_same_jobs(tmp_path: Path) -> None:
    lines = []
    for study in STUDIES:
        config = ("--config", f"study={OPTIONS[study]}", f"results={tmp_path}")
        done = snakemake_in(ROOT)("-n", "--nolock", *config)
        jobs = re.findall(r"^(\w+) +(\d+)$", done.stdout, flags=re.MULTILINE)
        assert jobs, done.stdout
        lines.append(f"{study}: " + ", ".join(f"{rule} {n}" for rule, n in sorted({*jobs})))
    is_as_kept("jobs.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_verdicts_of_a_kept_run_follow_from_counts(folder: Path) -> None:
    claims = of_counts(folder)["claims"].dropna(axis=1, how="all")
    is_as_kept(f"verdicts/{folder.name}.csv", csv(claims))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_exhibits_of_a_kept_run_are_drawn_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "recomputed", of_counts)
    parts = []
    for name in keep.redraw(folder, tmp_path):
        text = (tmp_path / name).read_text(encoding="utf-8")
        if name.endswith(".svg"):
            text = "\n".join(
                html.unescape(each) for each in re.findall(r"<text[^>]*>([^<]+)</text>", text)
            )
        parts.append(f"== {name}\n{text}\n")
    is_as_kept(f"redrawn/{folder.name}.txt", "".join(parts))


def test_the_smoke_study_has_the_same_tables(smoke: Path, same_machine: None) -> None:
    parts = [
        f"== {path.name}\n{path.read_text(encoding='utf-8')}"
        for path in sorted(smoke.glob("report/tables/*.csv"))
    ]
    is_as_kept("smoke/tables.txt", "".join(parts))


def test_the_smoke_study_has_the_same_manifests(smoke: Path, same_machine: None) -> None:
    paths = [*smoke.glob("models/*/*/manifest.json"), *smoke.glob("models/*/*/seed*/manifest.json")]
    paths += [*smoke.glob("samples/*/*/seed*/*.json"), *smoke.glob("metrics/*/manifest.json")]
    lines = [
        f"{path.relative_to(smoke)}: {json.dumps(_lasting(json.loads(path.read_text())))}"
        for path in sorted(paths)
    ]
    is_as_kept("smoke/manifests.txt", "\n".join(lines) + "\n")


def test_the_page_of_the_smoke_study_has_the_same_headings(smoke: Path) -> None:
    """Its words hang on how long training took, so only what it shows is compared."""
    page = (smoke / "report/index.html").read_text(encoding="utf-8")
    heads = re.findall(r"<(h[1-6]|figcaption)\b[^>]*>(.*?)</\1>", page, flags=re.DOTALL)
    lines = [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", head)).split()) for _, head in heads]
    is_as_kept("smoke/page.txt", "\n".join(lines) + "\n")


def csv(table: pd.DataFrame) -> str:
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


def _lasting(value: Any) -> Any:
    """A manifest without what differs from run to run: times, versions, sums of code and paths."""
    if isinstance(value, dict):
        kept = {key: _lasting(each) for key, each in value.items() if key not in _OF_THE_RUN}
        return {key: each for key, each in kept.items() if each not in (None, {}, [])}
    if isinstance(value, list):
        return [_lasting(each) for each in value]
    is_sum = isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16,64}", value)
    is_path = isinstance(value, str) and (value.startswith("/") or value.endswith(".py"))
    return None if is_sum or is_path else value
