"""Measures on a model, before any training, what a SAGE guide would do to its coverage.

    sage-rlvr dose MODEL --data problems.csv
    sage-rlvr dose MODEL --data problems.csv --guide branch --ratio 1 --threshold 0.8 --beta 0.2
    sage-rlvr dose MODEL --data test.csv --train train.csv

MODEL is the checkpoint from which RL would start (a folder, or OWNER/NAME of the hub), and the
problems are not those of training. Completions are drawn with the prompt of training and graded; a
quarter of them first, as a pilot. All is kept in the folder --out: a run that was stopped goes on,
and another guide, beta or k on the same completions takes seconds.

With `--train`, what a step of RL on those problems would do to pass@k of `--data` (also: `--eval`)
is measured too, from gradients (`sage.evaluation.transfer`): helps, harms, cannot be told, or too
weak.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from sage.evaluation.guide_dose import Read

from sage.fields import BASE, REPOSITORY
from sage.problems.record import DataError, Problem
from sage.rendering.numbers import NONE, duration, interval_of_points, number_text, percent, points
from sage.runtime.faults import Fault
from sage.study.bases import FolderBase
from sage.study.choices import Guide
from sage.study.models import Draws
from sage.tasks.data import FileSet
from sage.tools import add_data, parser_of
from sage.tools.new import problem_set

MAX_TOKENS = 96
"""Longest completion by default."""

SHARD = 240
"""Completions that are written at once: the most that a stopped run loses."""

BATCH = 120
"""Completions that are drawn together, after which the progress bar moves."""


OWN = "own"
"""The name of the evaluation problems among what is kept."""

TRAINED = 20
"""Problems of training by default, a third of those of evaluation: RL's are alike."""


def drawn(
    given: argparse.Namespace, base: Path, file: str, count: int, name: str
) -> tuple[list[Problem], pd.DataFrame]:
    """`count` problems of `file` and graded completions by the checkpoint `base`.

    They are kept under `name`; of the evaluation's, called own, the pilot is printed.
    """
    from sage.evaluation.guide_dose import spaced
    from sage.evaluation.snapshots import SnapshotSampler
    from sage.runtime.manifest import Manifest
    from sage.runtime.tables import read_frame

    asked = problem_set(file, given.problem, given.answer, Path())
    problems = FileSet.model_validate({"title": "", **asked}).problems(name)
    chosen = spaced(problems, count)
    sampling = {"temperature": given.temperature, "max_tokens": given.max_tokens}
    sizes = {"shard_size": SHARD, "batch_size": BATCH}
    settings = {"samples": given.samples, "seeds": [0], "sampling": sampling, **sizes}
    started = time.time()
    for samples in dict.fromkeys((max(given.samples // 4, 2), given.samples)):
        sampler = SnapshotSampler(
            base=base,
            problems=chosen,
            settings=Draws.model_validate({**settings, "samples": samples}),
            device=given.device,
            model="model",
            benchmark=name,
            shards=given.out / "samples",
            manifest=Manifest(settings, 1, time.time()),
        )
        frame = read_frame(sampler.samples(None, BASE, 0, 0))
        if samples < given.samples and name == OWN:
            print(pilot(frame, given.samples, time.time() - started), flush=True)
    return chosen, frame


def pilot(frame: pd.DataFrame, samples: int, seconds: float) -> str:
    """What a quarter of the completions says of the rest: their time, and whether they decide."""
    from sage.exhibits.guide_dose import LEAST_MIXED

    right = frame["status"].eq("correct").groupby(frame["problem_id"])
    shares, size = right.mean(), int(right.size().iloc[0])
    # A problem whose chance of a right completion has a uniform prior, and of which all or none of
    # `size` are right, has both among `samples` with about this chance.
    mixed = shares.gt(0) & shares.lt(1)
    likely = int(mixed.sum() + (~mixed).sum() * (1 - (size + 1) / (samples + 1)))
    said = (
        f"Pilot, {len(shares)} problems × {size} samples: {percent(shares.mean())} % are right, "
        f"{mixed.sum()} problems have right and wrong completions; {samples} samples of each take "
        f"about {duration((samples / size - 1) * seconds)} more."
    )
    if likely < LEAST_MIXED:
        said += (
            " That will settle a dose, but no alignment with pass@k: take problems that the model "
            "sometimes solves, or more of them."
        )
    return said


def guide_of(given: argparse.Namespace) -> Guide:
    """The guide that the command line asks for. Raises ValueError for a setting it lacks."""
    known = {field.name for field in fields(Guide.family.find(given.guide))}
    named = {"ratio": given.ratio, "threshold": given.threshold}
    asked = {name: value for name, value in named.items() if value is not None}
    if lacking := [name for name in asked if name not in known]:
        raise ValueError(f"--{lacking[0]}: the guide {given.guide} has no such setting")
    return Guide(kind=given.guide, settings=asked, clamp=given.clamp)


def base_of(model: str, out: Path) -> Path:
    """The folder of a checkpoint; one of the hub is brought into `out`. Raises ValueError."""
    if Path(model).is_dir():
        if faults := [said for _, said in FolderBase(source="folder", folder=model).faults()]:
            raise ValueError(f"MODEL: {faults[0]}")
        return Path(model)
    if not re.fullmatch(REPOSITORY, model):
        raise ValueError(f"MODEL {model}: is no folder; give its path, or OWNER/NAME of the hub")
    folder = out / "model" / model
    if not folder.is_dir():
        from sage.fetched_bases import fetch_base
        from sage.runtime.manifest import Manifest

        hub = {"source": "hub", "repository": model, "revision": "main"}
        folder.parent.mkdir(parents=True, exist_ok=True)
        fetch_base(hub, folder, Manifest(hub, 1, time.time()))
    return folder


def facts(row: dict[str, Any]) -> list[tuple[str, str]]:
    """What was measured, as (term, text)."""
    beta, k = row["kl_coefficient"], row["k"]

    def aligned(name: str) -> str:
        value, low, high = (beta * row[name + end] for end in ("", "_low", "_high"))
        of = 1 if name == "a_1" else k
        if math.isnan(value):
            return f"{NONE}: no problem has right and wrong completions"
        return f"{points(value)} points of pass@{of} ({interval_of_points(low, high)})"

    stateless = row["guide"] in ("branch", "random")
    return [
        (
            "Completions",
            f"{row['problems']} problems × {row['samples']}, {row['mixed']} problems with right "
            f"and wrong ones; pass@1 {percent(row['pass_1'])} %, "
            f"pass@{k} {percent(row['pass_k'])} %; {percent(row['cut'])} % cut off",
        ),
        (
            "Tokens",
            f"{percent(row['branches'])} % on a branch, {percent(row['clamped'])} % at the clamps, "
            f"mean entropy {number_text(row['entropy'], '.2f')} nats",
        ),
        (
            "SD of log q within a prompt",
            f"{number_text(row['spread'])}; at equal length "
            f"{number_text(row['spread_equal_length'])}; without the guide's own noise "
            f"{number_text(row['spread_without_noise'])}",
        ),
        (
            "Dose in the reward",
            f"{number_text(row['dose_reward'], '.2g')} SDs of GRPO's advantages, "
            f"{number_text(row['dose_centred'], '.2g')} of centred ones (k1_reward)",
        ),
        (
            "Dose in the loss",
            number_text(row["dose_loss"], ".2g")
            + (
                ", exactly: q is the same for every token of a state, and cancels where the policy "
                "is the reference"
                if stateless
                else " where the policy is the reference"
            ),
        ),
        ("β × alignment, k = 1", aligned("a_1")),
        (f"β × alignment, k = {k}", aligned("a_k")),
        ("The same at equal length", aligned("a_k_equal_length")),
        ("Correlation of log q with length", number_text(row["length_correlation"], ".2f")),
        (
            "Right minus wrong (aside)",
            f"{number_text(row['gap'], '.2g')} nats of log q; it says nothing of coverage: where "
            "rare ways to solve a problem have more branches than the common one, its sign is the "
            "other",
        ),
    ]


def transferred(
    given: argparse.Namespace, base: Path, test: Read, guide: Guide
) -> list[dict[str, Any]]:
    """Rows of `transfer` from the problems of `--train` to those of `test`."""
    import torch

    from sage.evaluation.guide_dose import completions, read_completions
    from sage.evaluation.transfer import transfer
    from sage.policies import load_policy

    problems, samples = drawn(given, base, given.train, given.train_problems, "train")
    where = (given.temperature, given.device, given.out / "signals")
    train = read_completions(base, problems, samples, *where)
    model = load_policy(base, None, torch.float32, given.device)
    taught, asked = completions(train, guide), completions(test, guide)
    return transfer(model, taught, asked, given.k, given.temperature)


def moved(rows: Sequence[dict[str, Any]], beta: float, k: int) -> list[tuple[str, str]]:
    """The transfer of each part of the evaluation problems, as (term, text).

    In what the reward's own gradient does to all of them, for gradients have no unit of their own.
    """
    unit = abs(rows[0]["reward"]) / beta or math.nan

    def said(row: dict[str, Any], name: str) -> str:
        ends = [row[name + end] / unit for end in ("", "_low", "_high")]
        value, low, high = (number_text(end, "+.2g") for end in ends)
        return f"{value} ({low} to {high})"

    return [
        (
            f"Transfer to {row['part']} ({row['problems']} problems)",
            f"{said(row, 'transfer')} of pass@{k}, {said(row, 'transfer_1')} of pass@1, where the "
            f"reward moves pass@{k} {number_text(row['reward'] / beta / unit, '+.2g')}; "
            f"guides that say nothing {number_text(row['placebo_mean'] / unit, '+.2g')} ± "
            f"{number_text(row['placebo_sd'] / unit, '.2g')} (z {number_text(row['z'], '+.2g')})",
        )
        for row in rows
    ]


def main(arguments: Sequence[str]) -> int:
    """Draw, grade, read and print; 1 and a message for what cannot be measured."""
    parser = parser_of("dose", __doc__)
    parser.add_argument("model", help="a folder, or OWNER/NAME of the hub")
    add_data(parser, "the problems: .csv, .jsonl or .parquet", True, "--eval")
    guides = [name for name in Guide.family.classes if name != "learned"]
    parser.add_argument("--train", help="problems that RL would train on: measures the transfer")
    parser.add_argument("--guide", default="branch", choices=guides)
    parser.add_argument("--ratio", type=float, help="of the branch guide (default: 0.3)")
    parser.add_argument("--threshold", type=float, help="of it, in nats (default: 1.2)")
    parser.add_argument("--clamp", type=float, nargs=2, default=[0.6, 1.4], metavar=("LOW", "HIGH"))
    parser.add_argument("--beta", type=float, default=0.05, help="the KL coefficient")
    parser.add_argument("--k", type=int, default=8, help="alignment is with pass@k (default: 8)")
    parser.add_argument("--problems", type=int, default=60)
    told = f"of --train (default: {TRAINED})"
    parser.add_argument("--train-problems", type=int, default=TRAINED, metavar="N", help=told)
    parser.add_argument("--samples", type=int, default=16, help="of each problem (default: 16)")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--temperature", type=float, default=1.0, help="that of training")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--out", type=Path, default=Path("dose"), help="a folder (default: dose)")
    given = parser.parse_args(arguments)
    import torch  # takes seconds, which --help needs not

    try:
        if not 1 <= given.k < given.samples:
            most = given.samples - 1
            raise ValueError(f"--k {given.k}: must be from 1 to {most}, below --samples")
        if not 0 < given.beta < math.inf:
            raise ValueError(f"--beta {given.beta:g}: must be above 0")
        if min(given.problems, given.train_problems) < 1:
            raise ValueError("--problems and --train-problems must be 1 or more")
        if given.device != "cpu" and not torch.cuda.is_available():
            raise ValueError(f"--device {given.device}: torch sees no GPU here; use cpu")
        guide, started = guide_of(given), time.time()
        given.out.mkdir(parents=True, exist_ok=True)
        base = base_of(given.model, given.out)
        problems, samples = drawn(given, base, given.data, given.problems, OWN)
        from sage.evaluation.guide_dose import measured, read_completions
        from sage.exhibits.guide_dose import expected, sentence_of
        from sage.tools.dose_page import write_page

        where = (given.temperature, given.device, given.out / "signals")
        read = read_completions(base, problems, samples, *where)
        found = measured(read, guide, given.beta, given.k)
        told = sentence_of(found.row)
        terms = facts(found.row)
        if given.train:
            rows = transferred(given, base, read, guide)
            told = expected(rows, given.beta, given.k, found.row["dose_reward"])
            terms += moved(rows, given.beta, given.k)
        told = told[0].upper() + told[1:]
        for term, text in terms:
            print(f"{term}: {text}")
        print(told)
        write_page(given.model, guide, found, read, terms, told, given.out / "dose.html")
    except (DataError, Fault, ValueError, OSError) as error:
        print(f"sage-rlvr dose: {error}", file=sys.stderr)
        return 1
    print(f"{given.out / 'dose.html'} ({duration(time.time() - started)})")
    return 0
