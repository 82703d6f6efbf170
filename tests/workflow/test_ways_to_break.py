"""Ways to change or break something between two runs, each with what must happen.

In a copy of the finished smoke study each way is tried, and what a run would do is read from
`sage-rlvr run -n`; then it is taken back. What a run does is tried for some of them together.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import own_things
import pytest
from conftest import copy_project, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(4000)]

RESULTS = Path("results/smoke")
POLICY = RESULTS / "models/tiny/grpo/seed3407"
SAMPLES = RESULTS / "samples/tiny/grpo/seed3407/arithmetic.parquet"
TABLE = RESULTS / "report/tables/table1.csv"
RECORDS = RESULTS / "provenance/jobs"
STUDY = Path("config/studies/smoke.yaml")
TODAY = "Nothing to do: every file is there and made from today's settings, code and files."


def sage(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command `sage-rlvr` of the copy in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "sage.tools.command", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def planned(said: str) -> dict[str, str]:
    """The rules that a dry run names, each with its reasons."""
    rules: dict[str, str] = {}
    for rule, why in re.findall(r"^ +\d+ (\w+): (.*)$", said, re.M):
        rules[rule] = f"{rules.get(rule, '')}{why}; "
    return rules


@pytest.fixture(scope="module")
def finished(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished smoke study."""
    folder = tmp_path_factory.mktemp("ways") / "sage"
    with undisturbed(project):
        shutil.copytree(project, folder, symlinks=True)
    return folder


@contextmanager
def taken_back(folder: Path, *paths: Path) -> Iterator[None]:
    """Put what lies at `paths` back at the end, with its dates."""
    kept = folder.parent / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    for path in paths:
        source, target = folder / path, kept / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
    try:
        yield
    finally:
        for path in paths:
            place = folder / path
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(kept / path, place)


def edit(path: Path, old: str, new: str) -> None:
    """Edit a file and put its date back."""
    text, stat = path.read_text(encoding="utf-8"), path.stat()
    assert old in text, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


Change = tuple[list[Path], Callable[[Path], object]]
"""The paths that a way changes, and what it does in the folder of the copy."""


def edited(name: str, old: str, new: str) -> Change:
    return [Path(name)], lambda folder: edit(folder / name, old, new)


def deleted(path: Path) -> Change:
    def delete(folder: Path) -> None:
        place = folder / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    return [path], delete


def flipped(path: Path) -> Change:
    """One byte in the middle of a file is changed, its size and date are not."""

    def flip(folder: Path) -> None:
        place, content = folder / path, bytearray((folder / path).read_bytes())
        stat = place.stat()
        content[len(content) // 2] ^= 1
        place.write_bytes(content)
        os.utime(place, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    return [path], flip


def added(path: Path) -> Change:
    return [path], lambda folder: (folder / path).write_text("mine")


def touched(path: Path) -> Change:
    return [path], lambda folder: os.utime(folder / path)


EDITS = {
    "a setting of training": (
        *edited(str(STUDY), "      steps: 4\n", "      steps: 5\n"),
        {"rl": "settings changed: rl.steps 4 → 5", "sample": "made from what changes"},
        {"sft", "problems", "pretrain"},
    ),
    "a setting of sampling": (
        *edited(str(STUDY), "\n  bootstrap: ", "\n  bootstrap: 1"),
        {"report": "settings changed: study.study.evaluation.bootstrap"},
        {"rl", "sample"},
    ),
    "a setting of a method": (
        *edited("config/algorithms.yaml", "ratio: 0.3", "ratio: 0.2"),
        {"rl": "settings changed: algorithm.guide.settings.ratio 0.3 → 0.2"},
        {"sft"},
    ),
    "a problem set": (
        *edited(str(STUDY), "    count: 6\n    seed: 2\n", "    count: 6\n    seed: 22\n"),
        {"problems": "settings changed: problem_set.seed 2 → 22", "sample": "made from"},
        {"sft", "pretrain"},
    ),
    "a claim": (
        *edited("config/claims.yaml", "claim: ", "claim: Now, "),
        {"report": "config/claims.yaml changed"},
        {"rl", "sample", "measure_with_model"},
    ),
    "code of training": (
        *edited("sage/training/anchoring.py", "from __future__", "# edited\nfrom __future__"),
        {"rl": "code changed", "sample": "made from what changes"},
        {"sft", "problems"},
    ),
    "a template of the page": (
        *edited("reports/template.html.j2", "<title>", "<title>A "),
        {"report": "reports/template.html.j2 changed"},
        {"sample", "measure_with_model"},
    ),
    "a table of the paper": (
        *edited("reports/paper/table1.csv", ",", ", "),
        {"report": "reports/paper/table1.csv changed"},
        {"rl", "measure_with_model"},
    ),
    "a problem in its file": (
        *edited(str(RESULTS / "problems/harder.jsonl"), '"problem": "', '"problem": "Now: '),
        {"problems": "problems/harder.jsonl changed", "sample": "problems/harder.jsonl changed"},
        {"rl"},
    ),
}
# Products that are deleted or damaged, several at once where they are of several jobs that do not
# depend on one another: of each job the first reason is shown.
RUNS = RESULTS / "models/tiny"
PRODUCTS = {
    **{
        name: [(deleted(RESULTS / name), f"report: .*{name}.* is missing")]
        for name in (
            *(
                "report/tables/table1.csv",
                "report/tables/table2.json",
                "report/figures/figure3.svg",
            ),
            *("report/samples.json", "report/index.html", "metrics/claims.parquet"),
            *("metrics/training", "evaluation/tiny/harder"),
        )
    },
    **{
        name: [(flipped(RESULTS / name), f"report: .*{name} changed")]
        for name in (
            *("report/figures/figure4.pdf", "metrics/table2/patterns.parquet"),
            "evaluation/tiny/knights/counts.parquet",
        )
    },
    "samples": [(deleted(SAMPLES), f"sample: {SAMPLES} is missing")],
    "samples of another benchmark": [
        (flipped(SAMPLES.with_name("harder.parquet")), "sample: .*harder.parquet changed")
    ],
    "policies": [
        (deleted(RUNS / "grpo_no_kl/seed3407"), "rl: .*grpo_no_kl/.* is missing"),
        (deleted(RUNS / "grpo_token/seed3407/history.jsonl"), "rl: .*history.jsonl is missing"),
        (deleted(POLICY / "snapshots"), "rl: .*grpo/seed3407/snapshots/.* is missing"),
        (
            flipped(RUNS / "grpo_random/seed3407/adapter_model.safetensors"),
            "rl: .*adapter_model.safetensors changed",
        ),
        (flipped(RUNS / "grpo_branch/seed3407/manifest.json"), "rl: .*manifest.json changed"),
    ],
    "a base": [(flipped(RUNS / "base/model.safetensors"), "sft: .*model.safetensors changed")],
    "a model before SFT and problems": [
        (deleted(RUNS / "pretrained"), "pretrain: .*pretrained/.* is missing"),
        (deleted(RESULTS / "problems/arithmetic_train.jsonl"), "problems: .* is missing"),
        (flipped(RESULTS / "problems/harder.jsonl"), "problems: .*harder.jsonl changed"),
    ],
}
# What is no reason to make anything again, all at once.
NOTHING = [
    deleted(Path(".snakemake")),
    added(POLICY / "notes.txt"),
    added(POLICY / ".notes"),
    touched(RESULTS / "report/index.html"),
    touched(RESULTS / "problems/harder.jsonl"),
    touched(Path("sage/training/rl.py")),
    touched(Path("workflow/scripts/rl.py")),
    deleted(RESULTS / "logs"),
    deleted(RESULTS / "shards"),
]
RECORDED = {
    "damaged records": [
        (edited(str(RECORDS / "report/page.json"), '"inputs"', '"input"'), "report: its record is"),
        (
            edited(str(RECORDS / "models/tiny/grpo/seed3407.json"), '"steps": 4', '"steps": 6'),
            "rl: its record is damaged",
        ),
    ],
    "a deleted record": [
        (
            deleted(RECORDS / "report/page.json"),
            f"No record says what {RESULTS}/report/index.html was made from. `sage-rlvr run "
            f"--config study=smoke --forcerun {RESULTS}/report/index.html` makes it again",
        )
    ],
    "all records deleted": [
        (
            deleted(RESULTS / "provenance"),
            "No record .* `sage-rlvr run --config study=smoke --forceall` makes it again",
        )
    ],
    "a method left out": [
        (
            edited(str(STUDY), "grpo_token, grpo_branch]", "grpo_branch]"),
            r"report: .*algorithms \['grpo_token'\] → \[\]",
        )
    ],
    "a title of a method": [
        (edited("config/algorithms.yaml", "title: GRPO", "title: G"), "1 report: settings changed")
    ],
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_with_an_old_date_makes_again_what_it_decides(finished: Path, name: str) -> None:
    """Also where Snakemake remembers nothing, and looks at dates alone."""
    paths, change, makes, spares = EDITS[name]
    with taken_back(finished, *paths, Path(".snakemake")):
        change(finished)
        shutil.rmtree(finished / ".snakemake")
        said = sage(finished, "run", "smoke", "-n", "--rerun-triggers", "mtime").stdout
    rules = planned(said)
    assert "Not what today's settings, code and files make: " in said
    assert {rule for rule in makes if makes[rule] in rules.get(rule, "")} == {*makes}, said
    assert not spares & rules.keys(), said


@pytest.mark.parametrize("name", PRODUCTS | RECORDED)
def test_what_is_missing_or_damaged_is_made_again_or_named(finished: Path, name: str) -> None:
    ways = (PRODUCTS | RECORDED)[name]
    with taken_back(finished, *(path for (paths, _), _ in ways for path in paths)):
        for (_, change), _ in ways:
            change(finished)
        said = sage(finished, "run", "smoke", "-n").stdout
    assert [says for _, says in ways if not re.search(says, said)] == [], said
    assert "today's settings, code and files." not in said
    assert "No record" in said or "report" in planned(said)


@pytest.mark.parametrize("ways", [NOTHING, [deleted(RESULTS / "provenance/sums")]])
def test_what_decides_nothing_makes_nothing_again(finished: Path, ways: list[Change]) -> None:
    paths = [path for paths, _ in ways for path in paths]
    with taken_back(finished, *(path for path in paths if (finished / path).exists())):
        for _, change in ways:
            change(finished)
        said = sage(finished, "run", "smoke", "-n").stdout
        for path in paths:
            if "notes" in path.name:
                (finished / path).unlink()
    assert TODAY in said


def test_a_study_that_was_touched_after_an_edit_is_not_todays(finished: Path) -> None:
    paths, change, makes, _ = EDITS["a setting of training"]
    with taken_back(finished, *paths, RESULTS, Path(".snakemake")):
        change(finished)
        touch = sage(finished, "run", "smoke", "--touch").stdout
        assert re.search(
            r"Not what today's .* \(settings changed: rl.steps 4 → 5\) and \d+ more. "
            "`sage-rlvr run --config study=smoke` makes that again\n",
            touch,
        )
        rules = planned(sage(finished, "run", "smoke", "-n").stdout)
    assert makes["rl"] in rules["rl"]


def test_a_copy_elsewhere_is_known(finished: Path, tmp_path: Path) -> None:
    """Only the results are copied, without Snakemake's notes and with new dates."""
    shutil.copytree(finished / "results", tmp_path / "results", copy_function=shutil.copyfile)
    fresh = copy_project(tmp_path / "fresh")
    with undisturbed(finished):
        for name in ("config", "reports", "sage", "workflow"):
            shutil.rmtree(fresh / name)
            shutil.copytree(finished / name, fresh / name)
    there = ("--config", f"results={tmp_path / 'results'}")
    assert "Nothing to do" in (said := sage(fresh, "run", "smoke", "-n", *there).stdout), said
    done = sage(fresh, "verify", "smoke", *there)
    assert done.returncode == 0, done.stdout
    assert "all match" in done.stdout
    edit(fresh / STUDY, "      steps: 4\n", "      steps: 5\n")
    assert "rl.steps 4 → 5" in sage(fresh, "run", "smoke", "-n", *there).stdout
    done = sage(fresh, "verify", "smoke", *there)
    assert done.returncode == 1
    assert f"`sage-rlvr run --config study=smoke results={tmp_path / 'results'}`" in done.stdout


def test_a_registration_is_not_to_be_deleted(finished: Path) -> None:
    file = RESULTS / "registered.json"
    with taken_back(finished, file, TABLE):
        (finished / TABLE).unlink()
        (finished / file).write_text("{")
        done = sage(finished, "run", "smoke")
    assert done.returncode == 1
    assert f"{file}: not a registration" in done.stdout
    assert "put back a copy of it" in done.stdout
    assert "delete" not in done.stdout


def test_advice_is_followed_to_the_end(finished: Path) -> None:
    """Products of many kinds are damaged at once; `verify` names each with the command that makes
    it again, and after it all match, byte by byte as before."""
    damaged = [
        TABLE,
        RESULTS / "report/figures/figure3.svg",
        RESULTS / "metrics/table2/patterns.parquet",
        SAMPLES,
        POLICY / "adapter_model.safetensors",
        RESULTS / "evaluation/tiny/harder/counts.parquet",
    ]
    gone = [POLICY / "history.jsonl", RESULTS / "report/tables/table2.json"]
    before = {path: (finished / path).read_bytes() for path in (*damaged, *gone)}
    (finished / POLICY / "extra.bin").write_text("x")
    for path in damaged:
        flipped(path)[1](finished)
    for path in gone:
        (finished / path).unlink()
    (finished / RECORDS / "samples/tiny/grpo_token/seed3407.json").write_text("{")
    found = sage(finished, "verify", "smoke")
    assert found.returncode == 1
    for path in damaged:
        assert f"{path} changed\n" in found.stdout
    for path in gone:
        assert f"{path} is missing\n" in found.stdout
    assert f"{RECORDS}/samples/tiny/grpo_token/seed3407.json is damaged" in found.stdout
    assert f"{POLICY}/extra.bin: not made by the job that made {POLICY}; delete it" in found.stdout
    assert "`sage-rlvr run --config study=smoke` makes again what does not match" in found.stdout
    (finished / POLICY / "extra.bin").unlink()
    done = sage(finished, "run", "--config", "study=smoke")
    assert done.returncode == 0, done.stdout
    found = sage(finished, "verify", "smoke")
    assert found.returncode == 0, found.stdout
    assert TODAY in sage(finished, "run", "smoke").stdout
    for path, content in before.items():
        if path.suffix not in (".json", ".jsonl"):  # with times
            assert (finished / path).read_bytes() == content, path


OWN_KIND = """
from my_helpers import of
from sage.exhibits.kind import Kind
from sage.rendering.table import TableDocument, plain_table

class Rates(Kind):
    kind: str

    def measure(self, job):
        job.write(rates=of(job.files["samples"]))

    def table(self, display):
        frame = display.frame("rates")
        return TableDocument(frame, plain_table(frame, "Method", {"right": "Right"}), "Rates.")
"""
OWN_HELPERS = """
import pandas as pd

def of(paths):
    return pd.DataFrame([{"algorithm": "base", "right": 0.5}])
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of a user's own model and data, with an exhibit of the user's own."""
    folder = copy_project(tmp_path_factory.mktemp("own") / "sage")
    study = own_things.make(folder / "mine")
    text = study.read_text(encoding="utf-8")
    study.write_text(text + "  rates: {kind: my_tables:Rates, title: Rates, model: own}\n")
    (folder / "my_tables.py").write_text(OWN_KIND)
    (folder / "my_helpers.py").write_text(OWN_HELPERS)
    done = sage(folder, "run", "mine/mine.yaml")
    assert done.returncode == 0, done.stdout
    return folder


OWN = {
    "my_tables.py": ("Rates.", {"report"}),
    "my_helpers.py": ("0.5", {"report"}),
    "mine/doubles.csv": ("What is 3 + 3", {"problems", "sample", "report"}),
    "mine/model/config.json": ('"max_position_embeddings": 256', {"fetch", "sample", "report"}),
}


@pytest.mark.parametrize("name", OWN)
def test_an_edit_of_a_users_own_file_makes_again_what_it_decides(own: Path, name: str) -> None:
    old, makes = OWN[name]
    paths, change = edited(name, old, old.replace("2", "4").replace("3", "8") + " ")
    with taken_back(own, *paths):
        change(own)
        said = sage(own, "run", "mine/mine.yaml", "-n").stdout
    assert makes <= planned(said).keys(), said
    assert ("sample" in planned(said)) is ("sample" in makes)


def test_a_data_file_that_is_gone_is_named(own: Path) -> None:
    with taken_back(own, Path("mine/doubles.csv")):
        (own / "mine/doubles.csv").unlink()
        done = sage(own, "run", "mine/mine.yaml", "-n")
    assert done.returncode != 0
    assert "doubles.csv" in done.stdout
    assert "Traceback" not in done.stdout
