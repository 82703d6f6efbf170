"""A tiny base model, trained from scratch on a generated corpus.

Plain language modelling with two simplifications: the problem's tokens carry no loss, for
they are random and only add noise, and batches hold documents of similar length, so that
little is spent on padding. Everything is drawn from the seed; the same seed and number of
threads give the same weights.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import PreTrainedModel, get_linear_schedule_with_warmup

from sage.policies import END_OF_TEXT, build_tiny, save_checkpoint, train_tokenizer
from sage.problems.corpora import AnyCorpus
from sage.problems.corpus import Worked
from sage.prompting import WORK_OPEN, completion
from sage.runtime.files import atomic_directory
from sage.runtime.manifest import Manifest
from sage.study import Pretraining, ScratchBase

IGNORED = -100
_BUCKET = 32  # batches sorted by length together


Document = tuple[str, str]
"""A corpus document: the problem, which carries no loss, and the solution, which does."""

Encoded = tuple[list[int], int]
"""Token ids of a document, and how many of them belong to the problem."""


def draw_documents(corpus: AnyCorpus, settings: Pretraining) -> list[Document]:
    """The pretraining corpus: mostly plain layout, a share in the answer format."""
    rng = random.Random(f"layout/{settings.seed}")
    stream = itertools.islice(corpus.worked(settings.seed), settings.documents)
    return [_document(worked, rng.random() < settings.tagged_share) for worked in stream]


def pretrain(base: ScratchBase, output: Path, manifest: Manifest) -> None:
    """Train tokenizer and model of `base`; write checkpoint and manifest into `output`."""
    settings = base.pretraining
    documents = draw_documents(base.corpus, settings)
    texts = (problem + solution for problem, solution in documents[:5_000])
    tokenizer = train_tokenizer(texts, base.architecture.vocab_size)
    model = build_tiny(base.architecture, tokenizer, settings.seed)
    problems, solutions = (
        tokenizer(list(part))["input_ids"] for part in zip(*documents, strict=True)
    )
    encoded = [(a + b, len(a)) for a, b in zip(problems, solutions, strict=True)]
    tokens = _optimise(model, encoded, settings)
    with atomic_directory(output) as folder:
        save_checkpoint(model, tokenizer, folder)
        manifest.write(folder / "manifest.json", tokens)


def _document(worked: Worked, tagged: bool) -> Document:
    if tagged:
        solution = WORK_OPEN + completion(worked.working, worked.answer)
    else:
        solution = f"Solution: {worked.working}. Answer: {worked.answer}"
    return f"Problem: {worked.problem}\n", solution + END_OF_TEXT


def _batches(
    encoded: list[Encoded], batch_size: int, rng: random.Random
) -> Iterator[list[Encoded]]:
    """Batches of documents of similar length, epoch after epoch."""
    while True:
        order = rng.sample(encoded, len(encoded))
        for start in range(0, len(order), batch_size * _BUCKET):
            bucket = sorted(order[start : start + batch_size * _BUCKET], key=lambda d: len(d[0]))
            batches = [bucket[i : i + batch_size] for i in range(0, len(bucket), batch_size)]
            rng.shuffle(batches)
            yield from batches


def _collate(batch: list[Encoded], padding: int) -> dict[str, torch.Tensor]:
    """Right-padded `[B, T]` inputs; labels ignore the problem and the padding."""
    longest = max(len(ids) for ids, _ in batch)
    inputs = torch.tensor([ids + [padding] * (longest - len(ids)) for ids, _ in batch])
    position = torch.arange(longest)
    lengths = torch.tensor([len(ids) for ids, _ in batch])[:, None]
    problems = torch.tensor([prefix for _, prefix in batch])[:, None]
    scored = (position >= problems) & (position < lengths)
    return {
        "input_ids": inputs,
        "attention_mask": (position < lengths).long(),
        "labels": inputs.masked_fill(~scored, IGNORED),
    }


def _optimise(model: PreTrainedModel, encoded: list[Encoded], settings: Pretraining) -> int:
    """Train `model` in place; returns the number of tokens read, padding not counted."""
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=settings.weight_decay,
    )
    schedule = get_linear_schedule_with_warmup(optimizer, settings.warmup_steps, settings.steps)
    padding = int(model.config.pad_token_id)
    batches = _batches(encoded, settings.batch_size, random.Random(f"order/{settings.seed}"))
    tokens = 0
    model.train()
    progress = tqdm(range(1, settings.steps + 1), desc="pretraining", mininterval=5)
    for step, batch in zip(progress, batches, strict=False):
        tokens += sum(len(ids) for ids, _ in batch)
        loss = model(**_collate(batch, padding)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == settings.steps:
            progress.set_postfix(loss=f"{loss.item():.3f}")
            if not loss.isfinite():
                raise RuntimeError(
                    f"pretraining is stopped: the loss is {loss.item()} at step {step}; lower "
                    f"base.pretraining.learning_rate ({settings.learning_rate:g})"
                )
    return tokens
