"""Samples of other programs, read as the counts that this project's statistics are made from.

A method is a file of samples, or a folder of files (`sage.evaluation.loggers` has their kinds). A
file has a row for each completion; what its columns are called is in `sage.evaluation.columns`.

- Files of several benchmarks are several benchmarks. Files of the same benchmark in a folder are
  training runs. Their seed is that of a column, else of `seed1` in the names below the folder or in
  the name of the model. Without seeds the files are numbered in order.
- A single run without a seed is compared with each run of another method. Several without seeds
  cannot be paired with runs that have some.
- A sample without a verdict, such as one whose server failed, counts as wrong and is counted.
- Rows that are there twice are refused, and so is a file that is a copy of another.
- Of files that differ in the step of training, by a column or by names such as `step_100` or
  `checkpoint-100`, the last step alone counts: policies of one run are no independent runs.
- Problems with one id are refused where the logs show that they are not the same.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.columns import NAMES, column_of, empty_rows, no_column, refuse_repeated
from sage.evaluation.counts import COUNTS
from sage.evaluation.curves import NO_SEED
from sage.evaluation.loggers import READERS, Log, NoSamples, read_log
from sage.problems.record import DataError
from sage.results import run_at
from sage.runtime.files import file_sum
from sage.runtime.records import is_hidden

MODEL = "these samples"
"""What errors call the samples of all methods."""

RIGHT = ("true", "1", "1.0", "c", "correct", "yes", "y")
WRONG = (
    *("false", "0", "0.0", "i", "incorrect", "wrong", "no", "n", "noanswer", "no answer"),
    *("unparsed", "timeout", "gold_unparsed"),
)
UNSCORED = ("", "nan", "none", "null", "<na>")
"""What `correct` may say, in any case. C, I and N (no answer) are Inspect's."""

READ = ("problem", "correct", "seed", "benchmark", "cluster", "model", "sample")
"""What is read of a file, by NAMES of `sage.evaluation.columns`."""

STEPS = ("step", "global_step", "global_steps", "train_step", "training_step")
"""Columns that say at which step of training a completion was sampled."""

_STEP = re.compile(
    r"(?<![A-Za-z])(?:global[-_]?)?(?:steps?|checkpoint|ckpt|iter)[-_=]?(\d{1,18})(?!\d)"
)
_NEW_IDS = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_SEED = re.compile(r"(?<![A-Za-z])seed[-_=]?(\d{1,18})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Method:
    """A method's counts (`sage.evaluation.counts`, of the model MODEL), and what they rest on.

    `seeds` is whether its training runs have seeds; else they are numbered, and a single one has
    NO_SEED. `unscored` counts samples without a verdict by benchmark and problem. `columns` are
    those that were read for the problem and for whether a completion is right, `notes` what else a
    reader must know. `contents` is what a logger says of each problem, by benchmark and problem.
    """

    name: str
    counts: pd.DataFrame
    files: tuple[Path, ...]
    seeds: bool
    unscored: Mapping[tuple[str, str], int]
    columns: tuple[str, str]
    notes: tuple[str, ...] = ()
    contents: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Read:
    """The rows of a file: model, seed (None if unknown), benchmark, problem_id, sample, cluster,
    content, correct, scored; `columns` are those of problem and verdict."""

    file: Path
    log: Log
    rows: pd.DataFrame
    columns: tuple[str, str]


def read_methods(
    named: Sequence[tuple[str, Path]],
    columns: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
) -> dict[str, Method]:
    """The methods in files or folders, by name.

    `columns` are the files' names where they are not those of NAMES, `only` (COLUMN=VALUE) the rows
    to take. Several models in what is named are several methods if nothing else is named, or if
    `columns` names the column of the model. Raises ValueError, which names the file, for what
    cannot be read.
    """
    methods: dict[str, Method] = {}
    given = columns or {}
    for name, path in named:
        reads, notes = _reads(path, given, only)
        models = dict.fromkeys(_without_seed(one) for read in reads for one in read.rows["model"])
        if len(models) > 1 and len(named) > 1 and not given.get("model"):
            listed = ", ".join(models)
            raise ValueError(
                f"{path}: has samples of {len(models)} models, {listed[:200]}. To compare them, "
                "name nothing else, or the column with --model; take one with --only model=NAME; "
                "training runs of one method belong into folders seed1, seed2, …"
            )
        for model in models:
            alone = len(models) == 1
            own = name if alone else model if len(named) == 1 else f"{name} {model}"
            if own in methods:
                raise ValueError(f"{own} is given twice; put all its runs into one folder")
            methods[own] = _method(own, path, _of_model(reads, model), notes)
    return methods


def _without_seed(model: str) -> str:
    return _SEED.sub("", model).strip("-_/. ")


def _of_model(reads: Sequence[_Read], model: str) -> list[_Read]:
    """The files of a model, and of each its rows."""
    own = [read.rows[read.rows["model"].map(_without_seed) == model] for read in reads]
    return [replace(read, rows=rows) for read, rows in zip(reads, own, strict=True) if len(rows)]


def _reads(
    path: Path, columns: Mapping[str, Any], only: Sequence[str]
) -> tuple[list[_Read], list[str]]:
    """The files at `path` that have samples, and notes on those that have none."""
    files, inside = [path], path.is_dir()
    if not path.exists():
        raise ValueError(
            f"{path}: does not exist (seen from {Path.cwd()}); name a folder of samples, or a file "
            f"that ends in {', '.join(READERS)}"
        )
    if inside:
        found = sorted(one for one in path.rglob("*") if one.suffix in READERS and one.is_file())
        files = [file for file in found if not is_hidden(file.relative_to(path))]
    reads, notes, sums = [], [], dict[str, Path]()
    for file in files:
        try:
            log = read_log(file)
            if inside and (first := sums.setdefault(file_sum(file), file)) != file:
                raise ValueError(
                    f"is a copy of {first}; remove one, or, if two runs gave just the same, put "
                    "both into one file with a column `seed`"
                )
            log = _of_step(log, str(file.relative_to(path))) if inside else log
            reads.append(_read(file, log, path if inside else None, columns, only))
        except NoSamples as error:
            if not inside:
                raise ValueError(f"{file}: {error}") from error
            notes.append(f"{file.relative_to(path)} has no samples")
        except DataError as error:  # which names the file
            raise ValueError(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: {error}") from error
    if not reads:
        raise ValueError(f"{path}: no samples there; they are files {', '.join(READERS)}")
    return _latest(reads, notes, path), notes


def _of_step(log: Log, name: str) -> Log:
    """A log of one step of training as a part of its run's; `name` is its path in the folder."""
    if log.run or log.evaluation[0]:
        return log
    column = next((column for column in STEPS if column in log.table), None)
    if column is None:
        said = _STEP.search(name)
    else:
        steps = {*log.table[column].map(str).str.removesuffix(".0")}
        said = re.search(rf"(?<!\d)0*({steps.pop()})(?!\d)", name) if len(steps) == 1 else None
    if said is None:
        return log
    run = f"{name[: said.start(1)]}*{name[said.end(1) :]}"
    return replace(log, evaluation=(run, said[1].zfill(20)))


def _latest(reads: list[_Read], notes: list[str], path: Path) -> list[_Read]:
    """Of the logs of one evaluation, which was taken up again, or of steps of one run, the last."""
    last: dict[str, _Read] = {}
    for read in reads:
        name, begun = read.log.evaluation
        if name and (name not in last or begun > last[name].log.evaluation[1]):
            last[name] = read
    for read in reads:
        if (name := read.log.evaluation[0]) and last[name] is not read:
            here, later = (each.file.relative_to(path) for each in (read, last[name]))
            notes.append(f"{here} is left out: {later} goes on with it")
    return [read for read in reads if last.get(read.log.evaluation[0], read) is read]


def _read(
    file: Path, log: Log, folder: Path | None, columns: Mapping[str, Any], only: Sequence[str]
) -> _Read:
    """The rows of a file, checked. Raises ValueError, which does not name the file."""
    table = _only(log.table, only)
    if log.variants and len(kinds := sorted({*table[log.variants].map(str)})) > 1:
        raise ValueError(
            f"{log.variants}s {', '.join(kinds)}; name one, as in --only {log.variants}={kinds[0]}"
        )
    own = {**log.columns, **({"correct": log.scores[0]} if len(log.scores) == 1 else {})}
    if len(log.scores) > 1 and not columns.get("correct"):
        raise ValueError(f"scores {', '.join(log.scores)}; name one with --correct")
    names = {what: column_of(table, what, columns.get(what), own) for what in READ}
    for what in ("problem", "correct"):
        if names[what] is None:
            raise ValueError(f"{no_column(table, what)}. Name the column with --{what}")
    if not log.run:
        _refuse_steps(table, names.values())
    says = table[names["correct"]].map(str).str.lower().str.strip()
    if (signs := says.str.removesuffix(".0")).isin({"1", "-1", *UNSCORED}).all():
        if (signs == "-1").any():
            log = replace(log, notes=(*log.notes, f"{names['correct']} -1 is read as wrong"))
        says = signs.replace("-1", "0")
    others = [name for name in NAMES["correct"] if name in table and name != names["correct"]]
    _refuse_unknown(says, str(names["correct"]), others)
    for what in ("problem", "benchmark"):
        if names[what] and (empty := empty_rows(table[names[what]])).any():
            raise ValueError(
                f"{names[what]} is empty in {empty.sum()} rows, the first of them row "
                f"{1 + int(empty.argmax())}"
            )
    place, benchmark = _of_path(file, folder)
    content = None if columns.get("problem") else log.columns.get("content")
    rows = pd.DataFrame(
        {
            "model": table[names["model"]].map(str) if names["model"] else "",
            "benchmark": table[names["benchmark"]].map(str) if names["benchmark"] else benchmark,
            "problem_id": table[names["problem"]].map(str),
            "cluster": _texts(table[names["cluster"]]) if names["cluster"] else "",
            "content": "" if content is None else _texts(table[content]),
            "sample": _numbers_of(table, names["sample"]),
            "uuid": table["uuid"].map(str) if "uuid" in table and log.columns else "",
            "correct": says.isin(RIGHT),
            "scored": ~says.isin(UNSCORED),
        }
    )
    unknown = rows["model"].map(lambda name: _last_seed(name) if place is None else place)
    rows["seed"] = _seeds(table[names["seed"]], str(names["seed"])) if names["seed"] else unknown
    numbered = names["sample"] is not None
    keys = ["model", "seed", "benchmark", "problem_id", *(["sample"] if numbered else [])]
    said = rows[keys].assign(seed=rows["seed"].map(lambda seed: "" if pd.isna(seed) else str(seed)))
    refuse_repeated(table, said, numbered)
    return _Read(file, log, rows, (str(names["problem"]), str(names["correct"])))


def _refuse_steps(table: pd.DataFrame, columns: Iterable[str | None]) -> None:
    """Raise ValueError for completions of several steps of training, which are several policies."""
    column = next((column for column in STEPS if column in table), None)
    steps = [] if column is None or column in columns else [*table[column].map(str).unique()]
    if len(steps) > 1:
        raise ValueError(
            f"has samples of {len(steps)} steps of training; take one, as with --only "
            f"{column}={steps[-1]}, or number completions by it, --sample {column}"
        )


def _refuse_unknown(says: pd.Series, column: str, others: Sequence[str]) -> None:
    """Raise ValueError for a verdict that is neither right nor wrong."""
    if not (unknown := sorted(set(says) - {*RIGHT, *WRONG, *UNSCORED})):
        return
    row = 1 + int((says == unknown[0]).to_numpy().argmax())
    share = re.fullmatch(r"-?[\d.]+|p", unknown[0])
    hint = (
        ", as a reward, partial credit or a mean of several completions is neither; name another "
        f"column with --correct{' ' * bool(others)}{' or '.join(others)}, or grade the completions "
        "(sage-rlvr grade)"
    )
    raise ValueError(
        f"{column} says {unknown[0]!r} in row {row}; known are {', '.join((*RIGHT, *WRONG))}"
        + hint * bool(share)
    )


def _seeds(written: pd.Series, column: str) -> pd.Series:
    """Seeds as whole numbers, none below 0 (`NO_SEED`). Raises ValueError for another."""
    seeds = pd.to_numeric(written, errors="coerce")
    known = seeds.between(0, 2**63 - 1) & (seeds % 1 == 0)
    if (broken := ~known.to_numpy(bool)).any():
        row = int(broken.argmax())
        raise ValueError(
            f"{column} must be a whole number from 0 to 2^63 - 1 in every row; row {1 + row} says "
            f"{written.iloc[row]!r}"
        )
    return seeds.astype(int).astype(object)


def _texts(written: pd.Series) -> pd.Series:
    return written.map(str).where(written.notna(), "")


def _of_path(file: Path, folder: Path | None) -> tuple[int | None, str]:
    """The seed that the names below `folder` say, and the benchmark of this project's own files,
    seed{N}/{benchmark}.parquet."""
    in_seed = re.fullmatch(r"seed\d+", file.parent.name) and len(file.parts) > 3
    if in_seed and file.suffix == ".parquet":
        return run_at(file.parent)[2], file.stem
    return _last_seed(file.relative_to(folder).as_posix()) if folder else None, ""


def _last_seed(text: str) -> int | None:
    found = _SEED.findall(text)
    return int(found[-1]) if found else None


def _numbers_of(table: pd.DataFrame, column: str | None) -> pd.Series | str:
    """What numbers the completions of a problem: with its evaluation's seed, if there is one."""
    if column is None:
        return ""
    number = table[column].map(str)
    return number + " of " + table["eval_seed"].map(str) if "eval_seed" in table else number


def _only(table: pd.DataFrame, only: Sequence[str]) -> pd.DataFrame:
    """The rows where columns say a value, each of `only` as COLUMN=VALUE."""
    for condition in only:
        column, _, value = condition.partition("=")
        if column not in table:
            raise ValueError(f"{no_column(table, column)}: correct --only {condition}")
        table = table[table[column].map(str) == value]
        if table.empty:
            raise ValueError(f"no row with {condition}")
    return table


def _method(name: str, path: Path, reads: Sequence[_Read], notes: Sequence[str]) -> Method:
    """A method of the files that `path` holds of it. Raises ValueError, which names `path`."""
    rows, seeds = _runs(reads, path)
    _refuse_other_problems(rows, path)
    clusters = one_each(rows.assign(algorithm=name), "cluster", str(path))
    contents = one_each(rows.assign(algorithm=name), "content", str(path))
    keys = ["train_seed", "benchmark", "problem_id"]
    counts = rows.groupby(keys)["correct"].agg(correct="sum", n_samples="size").reset_index()
    places = zip(counts["benchmark"], counts["problem_id"], strict=True)
    counts["cluster"] = [clusters.get(place, "") for place in places]
    counts = counts.assign(model=MODEL, algorithm=name, stratum="", worked=np.nan)
    unknown = pd.Series([np.array([np.nan])] * len(counts), dtype=object)
    lacking = rows[~rows["scored"]][["benchmark", "problem_id"]].itertuples(index=False, name=None)
    counts, files = counts.assign(chance=unknown)[COUNTS], tuple(read.file for read in reads)
    told = tuple(dict.fromkeys([*notes, *(note for read in reads for note in read.log.notes)]))
    return Method(name, counts, files, seeds, Counter(lacking), reads[0].columns, told, contents)


def _runs(reads: Sequence[_Read], path: Path) -> tuple[pd.DataFrame, bool]:
    """All rows with `train_seed`, and whether the files name seeds."""
    rows = pd.concat([read.rows.assign(file=str(read.file)) for read in reads], ignore_index=True)
    for column in ("uuid", "sample"):
        told = rows[rows[column] != ""]
        keys = ["seed", "benchmark", "problem_id", "sample"] if column == "sample" else ["uuid"]
        again = told.duplicated(keys) & ~told.duplicated([*keys, "file"])
        if again.any() and (column == "uuid" or rows["seed"].notna().all()):
            second = told[again].iloc[0]
            alike = (told[keys].astype(str) == second[keys].astype(str)).all(axis=1)
            raise ValueError(
                f"{path}: {second['file']} repeats a sample of {told[alike]['file'].iloc[0]} "
                f"(problem {second['problem_id'][:40]!r}); remove one of the two"
            )
    unknown = rows["seed"].isna()
    if not unknown.any():
        return rows.assign(train_seed=rows["seed"].astype(int)), True
    if not unknown.all():
        one, two = (rows.loc[here, "file"].iloc[0] for here in (unknown, ~unknown))
        raise ValueError(
            f"{path}: {one} has no seed, {two} has; give all of them one, in a column `seed` or in "
            "the names of files or folders"
        )
    numbers, seen = dict[str, int](), defaultdict[str, dict[str, str]](dict)
    for read in reads:
        run = read.log.run or str(read.file)
        benchmarks = {*read.rows["benchmark"]}
        if run not in numbers:
            numbers[run] = 1 + max(len(seen[benchmark]) for benchmark in benchmarks)
        for benchmark in benchmarks:
            _refuse_one_model(read, seen[benchmark], path)
            seen[benchmark].setdefault(run, read.rows["model"].iloc[0])
    of_file = {str(read.file): numbers[read.log.run or str(read.file)] for read in reads}
    number = rows["file"].map(of_file)
    return rows.assign(train_seed=NO_SEED if number.max() == 1 else number), False


def _refuse_one_model(read: _Read, seen: Mapping[str, str], path: Path) -> None:
    """Raise ValueError for a log of a model of which there is a log: that is no other run."""
    model = read.rows["model"].iloc[0] if read.log.columns else ""
    others = [run for run, other in seen.items() if other == model]
    if model and others and read.log.run not in others:
        raise ValueError(
            f"{path}: {read.file.name} and {Path(others[0]).name} are both of the model {model}; "
            "two evaluations of one model are not two training runs: remove one, or, if these are "
            "several, put the files of each into a folder of its own, seed1, seed2, …"
        )


def _refuse_other_problems(rows: pd.DataFrame, path: Path) -> None:
    """Raise ValueError for training runs on different problems."""
    for benchmark in rows["benchmark"].unique():
        here = rows[rows["benchmark"] == benchmark]
        (first, one), *others = here.groupby("train_seed", sort=False)
        for run, two in others:
            ids = one["problem_id"], two["problem_id"]
            if differ := sorted({*ids[0]} ^ {*ids[1]}):
                files = [Path(own["file"].iloc[0]).name for own in (one, two)]
                where = f", benchmark {benchmark}" if benchmark else ""
                raise ValueError(
                    f"{path}{where}: runs {first} ({files[0]}) and {run} ({files[1]}) have "
                    f"different problems; {len(differ)} are not in both, such as "
                    f"{differ[0][:60]!r}{other_ids(*ids)}. If these "
                    "are parts of one run, put them into one file"
                )


def one_each(rows: pd.DataFrame, column: str, where: str) -> dict[tuple[str, str], str]:
    """The cluster, or the content, of each problem of each benchmark that has one. Raises
    ValueError for two."""
    found: dict[tuple[str, str], str] = {}
    named = rows[rows[column] != ""]
    places = named[["benchmark", "problem_id", column, "algorithm"]].drop_duplicates()
    for benchmark, problem, value, name in places.itertuples(index=False):
        if (known := found.setdefault((benchmark, problem), value)) != value:
            pair = f"{known[:40]!r} and {value[:40]!r} (in {name})"
            said = (
                f"is in two clusters, {pair}; correct one"
                if column == "cluster"
                else f"is not the same everywhere: its log says {pair}. These are other data, or "
                "another version of the task; if not, name the column of the problem with --problem"
            )
            raise ValueError(f"{where}: problem {problem[:60]!r} {said}")
    return found


def other_ids(one: Iterable[str], two: Iterable[str]) -> str:
    """A hint where the ids of the same problems differ; "" where nothing is known."""
    ids = sorted({*one}), sorted({*two})
    plain = [{_plain_id(name): name for name in each} for each in ids]
    if plain[0].keys() == plain[1].keys():
        pairs = ((plain[0][key], plain[1][key]) for key in plain[0])
        here, there = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        return f". They are written in two ways, {here!r} and {there!r}: write them alike" * (
            here != there
        )
    if all(_NEW_IDS.fullmatch(name) for each in ids for name in each):
        return ". Such ids are new in every run: name the problem's text, as with --problem input"
    return ""


def _plain_id(name: str) -> str:
    return re.sub(r"^0+(?=\d)|\.0+$", "", name.strip().casefold())
