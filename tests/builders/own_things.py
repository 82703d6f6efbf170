"""A model folder and a data file of one's own, small enough for any test."""

from __future__ import annotations

from pathlib import Path

from tiny_models import write_tiny

STUDY = """\
title: Mine
problems:
  mine: {source: file, title: Doubles, file: doubles.csv, fields: {problem: q, answer: a}}
models:
  own: {title: My model, base: {source: folder, folder: model}, benchmarks: [mine]}
evaluation: {samples: 4, seeds: [0], primary_k: 2, sampling: SAMPLING, batch_size: 64}
exhibits:
  accuracy: {kind: accuracy, title: Accuracy and coverage, model: own}
  coverage: {kind: curves, title: Coverage over k, model: own}
""".replace("SAMPLING", "{temperature: 1.0, max_tokens: 16}")


def make(folder: Path, rows: int = 10) -> Path:
    """A random model of 0.03 M weights, a CSV of `rows` problems, and a study of both."""
    texts = [f"{n}+{n}={2 * n}" for n in range(99)]
    write_tiny(folder / "model", texts, seed=1, max_positions=256, vocab_size=320)
    write_doubles(folder, rows)
    study = folder / "mine.yaml"
    study.write_text(STUDY, encoding="utf-8")
    return study


def write_doubles(folder: Path, rows: int, names: str = "q,a") -> Path:
    """The problems, under two names of columns."""
    lines = [names, *(f'"What is {n} + {n}, please?",{2 * n}' for n in range(rows))]
    file = folder / "doubles.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
