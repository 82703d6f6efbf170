"""Keeps the small files of a finished study beside what was found, and judges a kept run again.

    sage-rlvr keep results/dose reports/dose/dose --figure tradeoff
    sage-rlvr keep --check [FOLDER …]
    sage-rlvr keep --page FOLDER …

The folder gets the page, every table as CSV, the figures that it names as SVG, the claims, and
pass@k of every training run (`pass_at_k.csv`, which `snakemake compare` reads). The differences of
its methods are in `comparisons.csv.gz`, the steps of training in `histories.csv.gz`, if a table or
figure `training` was made. The manifests of all jobs are in `manifests.jsonl.gz`; `run.json` has
what they say together: commit, machine, versions, and the number and seconds of jobs by stage.

`counts.parquet` has what became of each problem in each run (`sage.evaluation.counts`), beside
`study.json` with the claims, and `registered.json`. What was trained is added to
`reports/known.jsonl`, so that no claim on it counts as registered later. From counts, study and
claims alone `--check` computes pass@k, differences, chance levels and the verdicts of claims about
pass@k, and compares them with the kept ones, of every kept run if none is named; the exit status is
1 if one is different. It also names exploratory claims. `--page` draws the page from what is kept
(`sage.tools.kept_page`). `--refresh` writes the kept tables anew by today's rules of intervals and
verdicts, and the page, if there is one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from sage.claims import known
from sage.claims.evidence import Measured
from sage.claims.ledger import ledger
from sage.claims.registration import Registration, design, models_of, read_entries, registration
from sage.claims.tests import PassAtK, kept_claims
from sage.evaluation.curves import POOLED
from sage.evaluation.metrics import of_counts
from sage.evaluation.support import SCORES
from sage.exhibits import (
    figures_of,
    kept_study,
    kind_of,
    load_study,
    restore_study,
    tables_of,
)
from sage.results import Results
from sage.runtime.faults import Fault
from sage.runtime.files import (
    NO_KEPT,
    ROOT,
    atomic_file,
    file_sum,
    write_json_atomic,
    write_text_atomic,
)
from sage.runtime.records import jobs_folder
from sage.runtime.tables import read_frame
from sage.study.kept import version
from sage.study.written import moved
from sage.tools import kept_page
from sage.tools.archive import refuse_secrets
from sage.tools.verify import changed

CONFIG = ROOT / "config"
STUDY, PAGE = "study.json", "index.html"

CURVES = ["model", "algorithm", "train_seed", "benchmark", "metric", "k", "value", "low", "high"]
CURVES += ["n_problems", "n_samples"]
"""Columns of pass_at_k.csv."""

DIFFERENCES = ["model", "benchmark", "algorithm", "other", "metric", "k", "value", "low", "high"]
DIFFERENCES += ["p", "p_holm", "n_problems", "n_seeds", "n_bases"]
"""Columns of comparisons.csv.gz."""

KEYS = {
    "pass_at_k": CURVES[:6],
    "comparisons": DIFFERENCES[:6],
    "claims": ["claim", "test", "place"],
    "support": CURVES[:4],
}
COMPARED = ["value", "effect", "low", "high", "p", "p_holm", "far", "test_verdict"]
COMPARED += ["place_verdict", "verdict", "worked", "worked_low", "worked_high", "worked_verdict"]
COMPARED += [*SCORES, *(f"{name}_{end}" for name in SCORES for end in ("low", "high"))]
"""Columns that `--check` compares, and what names a row, by table."""

_FILE = re.compile(r'<a class="file" href="([^"]+)">(.*?)</a>')
"""A link of a report to a file of the study."""


def keep(results: Path, target: Path, figures: list[str], note: str) -> None:
    """Write the kept run `target` from the finished study in `results`.

    Raises FileNotFoundError for a study that is not finished, or for an unknown figure, and
    ValueError if results are not as their jobs wrote them, or if the study or its claims have
    changed since they were judged.
    """
    places = Results(results)
    if not places.page.exists():
        raise FileNotFoundError(f"{places.page}: the study is not finished; run it to its page")
    for fault in changed(results, ("report", "metrics")):
        raise ValueError(f"{fault}; `sage-rlvr run {results.name}` makes it again")
    copied = [*places.table("*").parent.glob("*.csv"), places.metrics("claims", "csv")]
    copied += map(places.figure, figures)
    for file in copied:
        file.stat()  # before there is a folder
    target.mkdir(parents=True, exist_ok=True)
    for file in copied:
        shutil.copyfile(file, target / file.name)
    _write(target / "pass_at_k.csv", pd.read_parquet(places.metrics("pass_at_k"), columns=CURVES))
    compared = pd.read_parquet(places.metrics("comparisons"), columns=DIFFERENCES)
    _pack(target / "comparisons.csv.gz", _text(compared))
    _keep_for_judging(places, target)
    for drawn in results.glob("metrics/*/drawn.parquet"):  # counts of what an exhibit draws itself
        shutil.copyfile(drawn, target / f"{drawn.parent.name}_counts.parquet")
    for histories in results.glob("metrics/training/histories.parquet"):
        _pack(target / "histories.csv.gz", _text(pd.read_parquet(histories)))
    lines = (json.dumps({"stage": stage} | one) + "\n" for stage, one in _manifests(results))
    _pack(target / "manifests.jsonl.gz", "".join(lines))
    write_json_atomic(target / "run.json", summary(results) | {"note": note})
    if (reports := target.resolve().parents[1]).name == "reports":
        known.add(reports, run_of(target))
    page = _FILE.sub(partial(_beside, target), places.page.read_text(encoding="utf-8"))
    write_text_atomic(target / PAGE, page)
    refuse_secrets(path for path in sorted(target.iterdir()) if path.is_file())


def run_of(folder: Path) -> known.Earlier:
    """A kept run with its policies, for the list of what is known."""
    ended = json.loads((folder / "run.json").read_text(encoding="utf-8"))["ended"]
    name = "/".join(folder.resolve().parts[-3:])
    return known.earlier_of(design(kept_study(folder)), name, ended)


def registration_of(folder: Path) -> Registration:
    """The registration of a kept run, with what was known; entries of older code do not say it."""
    study = kept_study(folder)
    trained, models = design(study), models_of(kept_claims(folder), study)
    earlier, entries = known.kept_earlier(folder.resolve().parents[1]), []
    for one in read_entries(Results(folder).registered):
        times = dict.fromkeys(one["claims"], str(one["time"]))
        then = known.known_of(one["claims"], models, trained, earlier, times)
        entries.append({"known": then, **one})
    with gzip.open(folder / "manifests.jsonl.gz", "rt", encoding="utf-8") as lines:
        jobs = [json.loads(line) for line in lines]
    return registration(entries, (job["started"] for job in jobs if job["stage"] == "rl"))


def labels(folder: Path) -> dict[str, str]:
    """Whether each claim of a kept run is registered, or exploratory and since when known."""
    rows = pd.read_csv(folder / "claims.csv").drop_duplicates("claim")
    asked = registration_of(folder)
    pairs = zip(rows["claim"], rows["claim_sha256"], strict=True)
    return {name: asked.label(name, content) for name, content in pairs}


def _beside(target: Path, link: re.Match[str]) -> str:
    """A page's link to a file: to the copy that is kept beside the page, else its text alone."""
    name = link[1].rpartition("/")[2]
    return f'<a class="file" href="{name}">{link[2]}</a>' if (target / name).is_file() else link[2]


def _write(path: Path, table: pd.DataFrame, digits: str | None = "%.6g") -> None:
    write_text_atomic(path, _text(table, digits))


def _text(table: pd.DataFrame, digits: str | None = "%.6g") -> str:
    return str(table.to_csv(index=False, lineterminator="\n", float_format=digits))


def _pack(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))


def _keep_for_judging(places: Results, target: Path) -> None:
    """Counts, study, claims and registration: what `recomputed` reads."""
    record = json.loads((jobs_folder(places.folder) / "report/page.json").read_bytes())
    name = places.folder.name
    loaded = load_study(moved(name, CONFIG / "studies") or name, CONFIG)
    study, claims = loaded.seen_by().model_dump(mode="json"), loaded.study.claims
    recorded = restore_study(record["settings"]["study"])
    same = recorded.study.claims == claims
    same = same and recorded.seen_by().model_dump(mode="json") == study
    if isinstance(claims, str):
        judged = {total for path, total in record["inputs"].items() if path.endswith(claims)}
        same = same and judged == {file_sum(ROOT / claims)}
    if not same:
        raise ValueError(
            f"{places.folder}: there is another study or there are other claims now than those "
            "that were judged; keep the run with the configuration that made it"
        )
    if isinstance(claims, str):
        shutil.copyfile(ROOT / claims, target / "claims.yaml")
    shutil.copyfile(places.registered, target / places.registered.name)
    # Not sorted: the order of a grid is part of its methods' names.
    study["study"]["claims"] = claims
    dump = json.dumps({"version": version(), **study}, ensure_ascii=False)
    write_text_atomic(target / STUDY, f"{dump}\n")
    with atomic_file(target / "counts.parquet") as temporary:
        read_frame(places.metrics("counts")).to_parquet(temporary, index=False, compression="zstd")


def recomputed(folder: Path) -> dict[str, pd.DataFrame]:
    """Tables of a kept run from its counts alone, by the name of the kept file.

    `claims` has those whose every test is about pass@k, `support` the rows over all runs.
    """
    study = kept_study(folder)
    counts = read_frame(folder / "counts.parquet")
    tables = of_counts(counts, study.study.bases, study.study.evaluation.bootstrap)
    support = tables["support"]
    tables["support"] = support[support["train_seed"] == POOLED].reset_index(drop=True)
    measured = Measured(comparisons=tables["comparisons"], chance=tables["chance"])
    claims = {
        name: claim
        for name, claim in kept_claims(folder).items()
        if all(isinstance(test, PassAtK) for test in (claim.primary, *claim.secondary))
    }
    return tables | {"claims": ledger(claims, study, measured)}


def refresh(folder: Path) -> None:
    """Write a kept run's tables from its counts by today's rules, and its page, if it has one;
    doses and words stay."""
    tables = recomputed(folder)
    _write(folder / "pass_at_k.csv", tables["pass_at_k"][CURVES])
    _pack(folder / "comparisons.csv.gz", _text(tables["comparisons"][DIFFERENCES]))
    _write(folder / "claims.csv", _claims_refreshed(folder, tables["claims"]), digits=None)
    if (support := folder / "support.csv").exists():
        _write(support, tables["support"], digits=None)
    study, counts = kept_study(folder), tables["counts"]
    for name in study.study.exhibits:
        if (file := folder / f"{name}.csv").is_file():
            again = kind_of(study, name).recomputed(study, name, counts, pd.read_csv(file))
            for suffix, table in again.items():
                _write(folder / f"{name}{suffix}.csv", table, digits=None)
    with TemporaryDirectory() as scratch:
        made = Results(Path(scratch))
        text = _page(folder, tables, made)
        for name in study.study.exhibits:
            files = [made.table(piece) for piece in tables_of(study, name)]
            for file in [*files, *map(made.figure, figures_of(study, name))]:
                if file.is_file() and (folder / file.name).is_file():
                    shutil.copyfile(file, folder / file.name)
    if (folder / PAGE).exists():
        write_text_atomic(folder / PAGE, text)


def draw_page(folder: Path) -> None:
    """Write the page of a kept run, with the numbers that follow from its counts today."""
    with TemporaryDirectory() as scratch:
        text = _page(folder, recomputed(folder), Results(Path(scratch)))
    write_text_atomic(folder / PAGE, text)


def _page(folder: Path, tables: Mapping[str, pd.DataFrame], made: Results) -> str:
    there = Results(folder).registered.exists()
    asked = registration_of(folder) if there else Registration()
    return _FILE.sub(partial(_beside, folder), kept_page.page(folder, tables, asked, made))


def _claims_refreshed(folder: Path, new: pd.DataFrame) -> pd.DataFrame:
    """claims.csv with the numbers of `new` where they differ from what is kept."""
    kept = pd.read_csv(folder / "claims.csv", dtype=str, keep_default_na=False)
    keys = KEYS["claims"]
    places = kept.assign(test=pd.to_numeric(kept["test"])).set_index(keys).index
    rows = new.set_index(keys)
    for column in [name for name in COMPARED if name in kept and name in rows]:
        if pd.api.types.is_numeric_dtype(rows[column]):
            for at, place in enumerate(places):
                value = rows[column].get(place, np.nan)
                own = str(kept.at[at, column])
                if not pd.isna(value) and not np.isclose(float(own), value, 1e-5):
                    kept.at[at, column] = repr(float(value))
        else:
            kept[column] = [
                rows[column].get(place, own)
                for place, own in zip(places, kept[column], strict=True)
            ]
    return kept


def check(folder: Path) -> list[str]:
    """What differs between a kept run and its numbers from counts, a line for each column.

    How strongly a guide acted is not in the counts, so a note on its dose is not compared.
    """
    names = [name for name in KEYS if any(folder.glob(f"{name}.csv*"))]
    missing = [f"{name}.csv: is missing" for name in KEYS if name not in (*names, "support")]
    return missing + _differences(folder, recomputed(folder), names)


def _differences(folder: Path, tables: dict[str, pd.DataFrame], names: Sequence[str]) -> list[str]:
    """What differs between kept tables and others, a line for each column."""
    faults = []
    for name in names:
        (file,) = folder.glob(f"{name}.csv*")
        keys, new, kept = KEYS[name], tables[name], pd.read_csv(file)
        if name == "claims":
            kept = kept[kept["claim"].isin(new["claim"])]
        one, two = (
            table.assign(**{key: table[key].astype(object).fillna("") for key in keys})
            .set_index(keys)
            .sort_index()
            for table in (kept, new)
        )
        if not one.index.equals(two.index):
            faults.append(f"{name}.csv: {len(one)} rows are kept, {len(two)} others computed")
            continue
        for column in [column for column in COMPARED if column in one]:
            if pd.api.types.is_numeric_dtype(two[column]):
                same = np.isclose(one[column], two[column], rtol=1e-5, atol=1e-9, equal_nan=True)
            else:
                left, right = (each[column].astype(object).fillna("") for each in (one, two))
                same = left.eq(right)
            if not all(same):
                faults.append(f"{name}.csv: {column} differs in {sum(~same)} of {len(same)} rows")
    return faults


def summary(results: Path) -> dict[str, Any]:
    """What made a study: commit, machine and versions, a list of each where manifests differ, first
    start and last end, jobs and seconds by stage."""
    manifests = list(_manifests(results))
    content: dict[str, Any] = {}
    for _, one in manifests:
        one["hardware"].pop("threads", None)  # what each job is given of the machine
    for key in ("git_commit", "hardware", "versions"):
        values = {json.dumps(one[key], sort_keys=True) for _, one in manifests}
        found = [json.loads(value) for value in sorted(values)]
        content[key] = found[0] if len(found) == 1 else found
    stages: dict[str, dict[str, float]] = {}
    for stage, one in manifests:
        entry = stages.setdefault(stage, {"jobs": 0, "seconds": 0.0})
        entry["jobs"] += 1
        entry["seconds"] = round(entry["seconds"] + one["wall_seconds"], 1)
    return content | {
        "started": min(one["started"] for _, one in manifests),
        "ended": max(one["ended"] for _, one in manifests),
        "stages": stages,
        "peak_memory_gib": max(one["peak_memory_gib"] for _, one in manifests),
    }


def _manifests(results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every job's manifest that a kept run counts, with the stage that it belongs to."""
    for path in sorted(results.glob("models/*/*/manifest.json")):
        yield {"base": "sft"}.get(path.parent.name, path.parent.name), json.loads(path.read_bytes())
    for path in sorted(results.glob("models/*/*/seed*/manifest.json")):
        yield "rl", json.loads(path.read_bytes())
    for path in sorted(results.glob("samples/*/*/seed*/*.json")):
        yield "sample", json.loads(path.read_bytes())
    for path in sorted(results.glob("metrics/*/manifest.json")):
        yield path.parent.name, json.loads(path.read_bytes())


def kept_runs() -> list[Path]:
    """The folders of the kept runs that can be judged again."""
    return sorted(file.parent for file in ROOT.glob(f"reports/*/*/{STUDY}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; keep a run, or check one. The exit status is 1 if a check fails."""
    parser = argparse.ArgumentParser("sage-rlvr keep", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", help="results/{study}")
    parser.add_argument("target", type=Path, nargs="?", help="reports/{question}/{study}")
    parser.add_argument("--figure", action="append", default=[], help="a figure to keep as SVG")
    parser.add_argument("--note", default="", help="what the numbers do not show")
    parser.add_argument(
        "--check", type=Path, nargs="*", help="kept runs to compute again from counts; none: all"
    )
    parser.add_argument("--page", type=Path, nargs="+", help="kept runs whose page is to be drawn")
    parser.add_argument("--refresh", type=Path, help="a kept run to write anew from its counts")
    given = parser.parse_args(arguments)
    try:
        return _done(parser, given)
    except (Fault, ValueError, OSError) as error:
        print(f"sage-rlvr keep: {error}", file=sys.stderr)
        return 1


def _done(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    if given.refresh:
        refresh(given.refresh)
        return 0
    for folder in given.page or ():
        draw_page(folder)
        print(f"{folder / PAGE}: {(folder / PAGE).stat().st_size / 2**20:.2f} MiB", flush=True)
    if given.page:
        return 0
    if given.check is not None:
        failed = False
        if not (runs := given.check or kept_runs()):
            raise ValueError(f"no kept run in {ROOT / 'reports'}. {NO_KEPT}; name a folder")
        for folder in runs:
            if not (folder / STUDY).is_file():
                parser.error(f"{folder} has no {STUDY}, so it cannot be computed again")
            faults = check(folder)
            failed = failed or bool(faults)
            told = labels(folder).items() if Results(folder).registered.exists() else ()
            late = [f"{name} is {label}" for name, label in told if label != "registered"]
            said = "\n  ".join(faults) or "the kept numbers and verdicts follow from counts"
            print(f"{folder}: {said}", *late, sep="\n  ", flush=True)
        return int(failed)
    if not given.target:
        parser.error("name the results and the folder to write, or --check FOLDER")
    keep(given.results, given.target, given.figure, given.note)
    for name, label in labels(given.target).items():
        print(f"{name}: {label}")
    return 0
