"""The workflow as a module of another, which lies in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

import own_things
import pytest
from conftest import ROOT, snakemake_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def snakefile(folder: Path, study: str, prefix: str, page: str) -> None:
    (folder / "Snakefile").write_text(
        f"module sage:\n    snakefile: {str(ROOT / 'Snakefile')!r}\n"
        f"    config: {{'study': {study!r}}}\n\n"
        f"use rule * from sage{prefix}\n\n"
        f"rule mine:\n    default_target: True\n    input: {page!r}\n    output: 'mine.html'\n"
        "    shell: 'cp {input} {output}'\n"
    )


def test_another_workflow_plans_a_study_with_rules_of_its_own(tmp_path: Path) -> None:
    snakefile(tmp_path, "smoke", "", "results/smoke/report/index.html")
    (tmp_path / "Snakefile").open("a").write("\nrule table0:\n    shell: 'true'\n")
    run = snakemake_in(tmp_path)
    planned = run("-n", "--cores", "1").stdout
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", planned, re.M))
    assert (jobs["rl"], jobs["report"], jobs["mine"]) == ("14", "1", "1"), planned
    assert f"{ROOT}/reports/template.html.j2" in planned
    assert run("-n", "--cores", "1", "table0").returncode == 0  # no target of the study


@pytest.mark.slow
def test_another_workflow_makes_a_page_and_goes_on_from_it(tmp_path: Path) -> None:
    own_things.make(tmp_path / "own")
    snakefile(tmp_path, "own/mine.yaml", " as sage_*", "results/mine/report/index.html")
    run = snakemake_in(tmp_path)
    assert (done := run("--cores", "2")).returncode == 0, done.stdout
    assert "Doubles" in (tmp_path / "mine.html").read_text()
    assert "Nothing to be done" in run("-n", "--cores", "1").stdout
    own_things.write_doubles(tmp_path / "own", rows=5)
    planned = run("-n", "--cores", "1").stdout
    assert re.search(r"^sage_problems +1$", planned, re.M), planned
    assert "sage_fetch" not in planned
