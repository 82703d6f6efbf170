"""Stand-ins for the files of a paper-sized study: everything that a model would make.

The study is config/studies/paper.yaml with five training seeds. Models, rows, benchmarks, numbers
of problems and file schemas are the real ones; texts and numbers are random: completions of some
thousand characters with LaTeX and sometimes hostile markup. Files are written in the order of the
workflow, so Snakemake accepts them as up to date.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from sage.evaluation import snapshots
from sage.evaluation.histories import history_frame, read_histories
from sage.evaluation.samples import COLUMNS
from sage.exhibits import kind_of, perplexity_of_responses
from sage.exhibits.perplexity import PerplexityFigure
from sage.exhibits.perplexity_of_responses import tail_table
from sage.exhibits.step_times import StepTimesTable
from sage.exhibits.trajectory import TrajectoryFigure
from sage.problems.record import Problem, write_problems
from sage.prompting import completion
from sage.results import Results, Run
from sage.runtime.files import atomic_file, write_json_atomic, write_text_atomic
from sage.runtime.manifest import Manifest
from sage.study import BASE, ResolvedStudy
from sage.training import stopwatch

SEEDS = [3407, 3408, 3409, 3410, 3411]
SAMPLES = 2
"""Samples per problem and evaluation seed; with five seeds 319,480 completions in total."""

PROBLEMS = {
    "dapo": 2000,
    "aime": 60,
    "amc23": 40,
    "math500_level5": 134,
    "minerva": 272,
    "knights": 700,
}

_SENTENCES = (
    r"Let $x_{%d}$ be the number of pairs $(a, b)$ with $\gcd(a, b) = %d$ and $a + b \le %d$.",
    r"By the law of cosines, \[c^2 = a^2 + b^2 - 2ab\cos\gamma = %d^2 + %d^2 - %d\sqrt{3}.\]",
    r"Suppose for contradiction that $n = %d$ is prime; then $%d \mid n^2 - %d$, which cannot be.",
    r"We set up the equation $%dx^2 - %dx + %d = 0$ and factor the left side.",
    r"Working backwards from the last step, $f(%d) = \frac{%d}{%d}$.",
    r"\begin{align*} S &= \sum_{k=1}^{%d} \frac{1}{k(k+1)} \\ &= 1 - \frac{1}{%d} < %d\end{align*}",
    r"Case %d: if $y < %d$, the inequality holds whenever $y > -%d$, so only integers are left.",
    r"Hence $\angle ABC = %d^\circ$, and the triangle's area is $\tfrac{1}{2} \cdot %d \cdot %d$.",
    r"Wait, let me check that again: %d + %d is not %d.",
    "By symmetry we may assume that the first %d of the %d numbers are below %d.",
    r"So $\log_{%d} m = \frac{\ln m}{\ln %d}$ and $m \equiv %d \pmod{7}$.",
    "This leaves %d choices for the first, %d for the second and %d for every other place.",
)
_HOSTILE = "</script><script>document.title='%d'</script><img src=x onerror=alert(%d)><!--%d"


def write_study(path: Path, paper: Path) -> None:
    """The paper's study at `path`, with SEEDS and SAMPLES; its exhibits show no more samples."""
    content: dict[str, Any] = yaml.safe_load(paper.read_text(encoding="utf-8"))
    content["seeds"] = SEEDS
    own = [model["evaluation"] for model in content["models"].values() if "evaluation" in model]
    for evaluation in (content["evaluation"], *own):
        evaluation |= {"samples": SAMPLES, "primary_k": 1}
    for shown in content["exhibits"].values():
        if shown["kind"] == "patterns":
            shown["samples"] = SAMPLES
        elif shown["kind"] == "perplexity":
            shown["responses"] = SAMPLES * len(content["evaluation"]["seeds"])
    write_text_atomic(path, yaml.safe_dump(content, sort_keys=False))


def write_results(study: ResolvedStudy, results: Results) -> int:
    """Write the files that precede the metrics into `results`; returns the completions."""
    manifest = Manifest(settings={}, threads=1, started=time.time()).content(tokens=1_000_000)
    problems = {name: _problems(name, PROBLEMS[name]) for name in study.problem_sets()}
    for name, records in problems.items():
        write_problems(records, results.problems(name))
    models = study.study.models
    for model, settings in models.items():
        if settings.base.source != "model":
            write_json_atomic(results.pretrained(model) / "manifest.json", manifest)
    for model in models:
        write_json_atomic(results.rl_start(model) / "manifest.json", manifest)
    for model in models:
        for run in study.trained_runs(model):
            _write_policy(study, run, results.policy(run), manifest)
    texts, written = _Texts(), 0
    for model in models:
        evaluation = {"settings": {"evaluation": study.evaluation(model).decisive()}}
        for run, benchmark in study.evaluated_runs(model):
            path = results.samples(run, benchmark)
            written += _write_samples(study, run, benchmark, problems[benchmark], texts, path)
            write_json_atomic(results.sample_manifest(run, benchmark), manifest | evaluation)
    _write_measured(study, problems, results, manifest)
    return written


class _Texts:
    """Sentences and tokens that completions are made of."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        pool = [
            sentence % tuple(int(number) for number in rng.integers(2, 999, 3))
            for sentence in _SENTENCES * 400
        ]
        pool += [_HOSTILE % (number, number, number) for number in range(10)]
        self.sentences = np.array(pool, dtype=object)
        self.tokens = (rng.zipf(1.3, 1 << 20) % 150_000).astype(np.int32)


def _problems(name: str, count: int) -> list[Problem]:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = "knights" if name == "knights" else "math"
    problems = []
    for number in range(count):
        values = [tuple(int(n) for n in rng.integers(2, 999, 3)) for _ in range(4)]
        chosen = rng.choice(len(_SENTENCES), 4, replace=False)
        text = " ".join(_SENTENCES[i] % v for i, v in zip(chosen, values, strict=True))
        answer = "Ann knight, Bob knave" if kind == "knights" else str(rng.integers(0, 999))
        problems.append(Problem(f"{name}-{number}", text, answer, kind, "5", name, "drawn"))
    return problems


def _write_policy(study: ResolvedStudy, run: Run, folder: Path, manifest: dict[str, Any]) -> None:
    """`history.jsonl` with every step of the run, and its manifest."""
    model, name, seed = run
    algorithm, rl = study.algorithms[name], study.model(model).rl
    rng = np.random.default_rng(zlib.crc32(f"{model}|{name}|{seed}".encode()))
    done = np.arange(1, rl.steps + 1) / rl.steps
    noise = rng.normal(size=(6, rl.steps))
    columns = {
        "reward": np.clip(0.3 + 0.4 * done + 0.2 * noise[0], 0, 1),
        "reward_std": np.abs(0.3 + 0.1 * noise[1]),
        "entropy": 0.6 * np.exp(-2 * done) + 0.02 * np.abs(noise[2]),
        "grad_norm": np.abs(0.2 + 0.05 * noise[3]),
        "learning_rate": rl.learning_rate * (1 - done),
        "clip_low_share": np.abs(0.001 * noise[4]),
        "clip_high_share": np.abs(0.001 * noise[5]),
        "mean_length": 700 + 200 * done + 30 * noise[0],
        "truncated_share": np.clip(0.02 + 0.02 * noise[1], 0, 1),
        "tokens": np.round(6_000 * rl.steps * done),
        "seconds": 12 + np.abs(noise[2]),
    }
    if algorithm.kl != "none":
        columns["kl"] = 0.3 * done + 0.02 * np.abs(noise[3])
    if algorithm.guide:
        columns |= {"q_mean": 1 + 0.02 * noise[4], "q_min": 0.6 + 0 * done, "q_max": 1.4 + 0 * done}
        columns["amplified_share"] = np.clip(0.2 + 0.05 * noise[5], 0, 1)
    rows = pd.DataFrame({"step": np.arange(1, rl.steps + 1), **columns})
    history = folder / "history.jsonl"
    write_text_atomic(history, rows.to_json(orient="records", lines=True, double_precision=15))
    settings = {
        "rl": rl.model_dump(mode="json"),
        "algorithm": algorithm.model_dump(mode="json"),
    }
    write_json_atomic(folder / "manifest.json", manifest | {"settings": settings})


def _write_samples(
    study: ResolvedStudy,
    run: Run,
    benchmark: str,
    problems: Sequence[Problem],
    texts: _Texts,
    path: Path,
) -> int:
    """Graded samples of a run in the schema of `sage.evaluation.samples`."""
    model, row, _ = run
    seeds, samples = study.evaluation(model).seeds, study.evaluation(model).samples
    each = len(seeds) * samples
    count = len(problems) * each
    hardness = np.random.default_rng(zlib.crc32(benchmark.encode())).normal(0.5, 2, len(problems))
    rng = np.random.default_rng(zlib.crc32("|".join([*map(str, run), benchmark]).encode()))
    skill = (zlib.crc32(row.encode()) % 100) / 100 + rng.normal(0, 0.1)
    share = np.repeat(1 / (1 + np.exp(hardness - skill)), each)
    status = np.where(rng.random(count) < share, "correct", "wrong").astype(object)
    status[(status == "wrong") & (rng.random(count) < 0.08)] = "unparsed"
    golds = [problem.answer for problem in problems for _ in range(each)]
    mistakes = rng.integers(0, 999, count)
    answers = [
        gold if verdict == "correct" else None if verdict == "unparsed" else str(mistake)
        for gold, verdict, mistake in zip(golds, status, mistakes, strict=True)
    ]
    lengths = np.clip(rng.lognormal(math.log(35), 0.5, count), 4, 120).astype(int)
    picks = np.split(
        texts.sentences[rng.integers(0, len(texts.sentences), lengths.sum())],
        np.cumsum(lengths)[:-1],
    )
    written = [
        completion(" ".join(pick), answer or "")
        for pick, answer in zip(picks, answers, strict=True)
    ]
    tokens = np.array([len(text) // 3 for text in written])
    starts = rng.integers(0, len(texts.tokens) - tokens.max(), count)
    ids = np.concatenate([texts.tokens[s : s + n] for s, n in zip(starts, tokens, strict=True)])
    offsets = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int32)
    table = pa.table(
        {
            "problem_id": np.repeat([problem.problem_id for problem in problems], each),
            "eval_seed": np.tile(np.repeat(seeds, samples), len(problems)),
            "sample_index": np.tile(np.arange(samples), len(problems) * len(seeds)),
            "completion": written,
            "answer": pa.array(answers, pa.string()),
            "status": pa.array(status, pa.string()),
            "token_ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids)),
            "n_tokens": tokens,
            "finish_reason": np.where(rng.random(count) < 0.03, "length", "stop"),
        }
    ).cast(COLUMNS)
    with atomic_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=4096)
    return count


def _write_measured(
    study: ResolvedStudy,
    problems: dict[str, list[Problem]],
    results: Results,
    manifest: dict[str, Any],
) -> None:
    """The exhibits measured with a model: perplexities, accuracies during training, step times."""
    rng = np.random.default_rng(1)
    for name in study.study.exhibits:
        shown = kind_of(study, name)
        if isinstance(shown, PerplexityFigure):
            asked = [problem.problem_id for problem in problems[shown.benchmark][:2]]
            rows = [
                (shown.model, row, SEEDS[0], shown.benchmark, problem, 0, index, "correct", 900)
                for row in study.rows_of(name)
                for problem in asked
                for index in range(shown.responses)
            ]
            frame = pd.DataFrame(rows, columns=perplexity_of_responses.COLUMNS[:-1])
            frame["perplexity"] = 1 + rng.lognormal(-1, 0.4, len(frame))
            frames = {"perplexities": frame, "tails": tail_table(frame)}
        elif isinstance(shown, StepTimesTable):
            times = [
                (row, turn, rng.uniform(1, 2), 8, 9_000)
                for row in shown.algorithms
                for turn in range(shown.rounds)
            ]
            frames = {"times": pd.DataFrame(times, columns=stopwatch.COLUMNS)}
        elif isinstance(shown, TrajectoryFigure):
            steps = study.model(shown.model).rl.steps
            accuracies = [
                (row, seed, steps * part // shown.snapshots, *np.sort(rng.uniform(0.3, 0.6, 3)))
                for row in study.rows_of(name)
                if row != BASE
                for seed in SEEDS
                for part in range(shown.snapshots + 1)
            ]
            columns = [*snapshots.TRAJECTORY[:3], "low", "value", "high"]
            folders = [results.policy(run) for run in shown.runs(study)]
            frames = {
                "accuracies": pd.DataFrame(accuracies, columns=columns)[snapshots.TRAJECTORY],
                "histories": history_frame(read_histories(folders)),
            }
        else:
            continue
        for key, frame in frames.items():
            with atomic_file(results.measured(name) / f"{key}.parquet") as temporary:
                frame.to_parquet(temporary, index=False)
        write_json_atomic(results.measured(name) / "manifest.json", manifest)
