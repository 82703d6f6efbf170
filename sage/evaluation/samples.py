"""Draws and grades n completions of every problem of a benchmark.

Completions are drawn in shards (`sage.sampling.shards`) and graded when all are there, so
a change of the grader draws nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerBase

from sage.policies import load_tokenizer
from sage.problems.record import Problem
from sage.prompting import SYSTEM_PROMPT, prompt_ids
from sage.runtime.files import atomic_directory, atomic_file
from sage.runtime.identity import checkpoint_digest, code_digest, digest
from sage.runtime.manifest import Manifest
from sage.sampling.interface import Completion, Request, Sampler, engine, stream_key
from sage.sampling.shards import Sample, Shards
from sage.study import Draws
from sage.tasks import Grader

COLUMNS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("eval_seed", pa.int64()),
        ("sample_index", pa.int64()),
        ("completion", pa.string()),
        ("answer", pa.string()),
        ("status", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("n_tokens", pa.int64()),
        ("finish_reason", pa.string()),
    ]
)


def evaluate(
    base: Path,
    policy: Path | None,
    problems: Sequence[Problem],
    settings: Draws,
    device: str,
    model: str,
    benchmark: str,
    train_seed: int,
    shards: Path,
    output: Path,
    manifest: Manifest,
    opened: Callable[[], Sampler] | None = None,
) -> None:
    """Sample `policy` (None: the base itself) on one benchmark and write the graded samples.

    A row per completion, with COLUMNS, `settings.samples` per problem and evaluation seed, in
    the order of problems, evaluation seeds and indices. Shards are kept in the folder `shards`;
    what is there already is not drawn again. The manifest is written beside `output`, as JSON.
    `opened` gives a sampler of the policy that is open for other benchmarks as well.
    """
    tokenizer = load_tokenizer(base)
    prompts = {p.problem_id: tuple(prompt_ids(tokenizer, p.problem)) for p in problems}
    run = (model, train_seed, benchmark)
    made_with = drawing_settings(base, policy, tokenizer, settings, device, run)
    store = Shards(shards, made_with, prompts)
    if missing := store.missing(settings.seeds, settings.samples, settings.shard_size):
        sampler = (
            opened()
            if opened
            else engine(settings.engine).open_sampler(
                base, policy, tokenizer, settings, device, max(map(len, prompts.values()))
            )
        )

        def draw(samples: Sequence[Sample]) -> Sequence[Completion]:
            requests = [Request(prompts[i], stream_key(*run, i, *rest)) for i, *rest in samples]
            return sampler.sample(requests, settings.sampling)

        store.draw(missing, draw)
    tokens, grader = 0, Grader()
    with (
        atomic_file(output) as temporary,
        pq.ParquetWriter(temporary, COLUMNS, compression="zstd") as writer,
    ):
        for drawn in store.chunks(settings.seeds, settings.samples):
            graded = add_verdicts(drawn, {p.problem_id: p for p in problems}, grader)
            writer.write_table(pa.Table.from_pandas(graded, COLUMNS, preserve_index=False))
            tokens += int(graded["n_tokens"].sum())
    manifest.write(output.with_suffix(".json"), tokens)


def evaluate_all(
    base: Path,
    policy: Path | None,
    problems: Mapping[str, Sequence[Problem]],
    settings: Draws,
    device: str,
    model: str,
    train_seed: int,
    shards: Path,
    output: Path,
    manifest: Manifest,
) -> None:
    """`evaluate` on each benchmark, whose `problems` are given by its name, with one sampler.

    The folder `output` gets the files of each, all or none; shards are in a folder for each.
    """

    @cache
    def opened() -> Sampler:
        tokenizer = load_tokenizer(base)
        asked = [problem.problem for each in problems.values() for problem in each]
        longest = max(len(prompt_ids(tokenizer, text)) for text in asked)
        return engine(settings.engine).open_sampler(
            base, policy, tokenizer, settings, device, longest
        )

    with atomic_directory(output) as folder:
        for name, each in problems.items():
            place = shards / name, folder / f"{name}.parquet"
            run = model, name, train_seed
            evaluate(base, policy, each, settings, device, *run, *place, manifest, opened)
            manifest = manifest.anew()  # each says how long its own benchmark took


def drawing_settings(
    base: Path,
    policy: Path | None,
    tokenizer: PreTrainedTokenizerBase,
    settings: Draws,
    device: str,
    run: tuple[str, int, str],
) -> dict[str, Any]:
    """Everything that decides which completions are drawn, as what JSON knows.

    `run` is model, training seed and benchmark, which name the random streams. Numbers of
    samples and seeds, the batch size and the size of shards are no part of it.
    """
    return {
        "run": list(run),
        "base": checkpoint_digest(base),
        "policy": checkpoint_digest(policy) if policy else None,
        "template": digest([tokenizer.chat_template, SYSTEM_PROMPT]),
        "sampling": settings.sampling.model_dump(),
        "engine": settings.engine,
        "dtype": settings.dtype,
        "batch_invariant": settings.batch_invariant,
        "device": device,
        "code": code_digest(engine(settings.engine).__name__),
        "versions": engine(settings.engine).versions(),
    }


def add_verdicts(
    drawn: pd.DataFrame, problems: Mapping[str, Problem], grader: Grader
) -> pd.DataFrame:
    """Drawn completions with the columns `answer` and `status`."""
    asked = [problems[problem] for problem in drawn["problem_id"]]
    verdicts = grader.grade_many(
        [(text, p.answer, p.kind) for text, p in zip(drawn["completion"], asked, strict=True)],
        progress=True,
    )
    graded = pd.DataFrame([(v.answer, v.status) for v in verdicts], columns=["answer", "status"])
    return pd.concat([drawn, graded], axis=1)[COLUMNS.names]
