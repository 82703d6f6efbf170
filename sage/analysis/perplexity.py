"""How likely completions are under the base model: perplexity from token ids (Eq. 39, Figure 7).

It uses the sampled tokens themselves, because encoding the text again may give other tokens. Each
completion is read once after its prompt (teacher forcing), in batches of similar length. The full
logits of a batch would use the most memory, so positions go through the model in chunks that share
a key-value cache. This module also chooses the responses; `sage.exhibits` draws the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from sage.evaluation.curves import Run, run_of
from sage.policies import load_model, load_tokenizer
from sage.problems.record import Problem, read_problems
from sage.prompting import prompt_ids
from sage.runtime.tables import read_frame

TOKEN_IDS = "token_ids"
"""The column of graded samples with the sampled tokens, a list of integers in each row."""

COLUMNS = ["model", "algorithm", "train_seed", "benchmark", "problem_id", "eval_seed"]
COLUMNS += ["sample_index", "status"]
COLUMNS += ["n_tokens", "perplexity"]

Ids = Sequence[int]


def perplexity(log_probs: np.ndarray) -> float:
    """exp(-mean of the tokens' log-probabilities `[T]`) (Eq. 39); ValueError if there are no
    tokens."""
    if not len(log_probs):
        raise ValueError("a completion without tokens has no perplexity")
    return float(np.exp(-np.mean(log_probs, dtype=np.float64)))


def token_signals(
    model: PreTrainedModel,
    prompts: Sequence[Ids],
    completions: Sequence[Ids],
    batch_tokens: int = 16_384,
    chunk_logits: int = 2**27,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(log-probabilities, entropies) in nats of each completion's tokens, float32 `[T]` each.

    The entropy is that of the distribution that the token was drawn from. The prompt and the
    completion of a pair are token ids. A batch holds at most `batch_tokens` positions (or one
    pair), and at most `chunk_logits` logits at a time (or those of one position of one row). Both
    change speed and memory; the numbers change only by rounding. Raises ValueError for a pair with
    an empty prompt or completion: the first token needs a condition.
    """
    pairs = list(zip(prompts, completions, strict=True))
    for place, (prompt, completion) in enumerate(pairs):
        if not len(prompt) or not len(completion):
            raise ValueError(
                f"pair {place}: prompt of {len(prompt)} and completion of {len(completion)} "
                "tokens; both must have at least one"
            )
    model.eval()
    most_rows = max(1, chunk_logits // model.config.vocab_size)
    signals = [(np.empty(0), np.empty(0))] * len(pairs)
    batches = length_sorted([len(p) + len(c) for p, c in pairs], batch_tokens, most_rows)
    for batch in tqdm(batches, desc="reading", unit="batch", mininterval=5):
        rows = _read(model, [pairs[place] for place in batch], chunk_logits)
        for place, row in zip(batch, rows, strict=True):
            signals[place] = row
    return signals


def length_sorted(lengths: Sequence[int], batch_tokens: int, most_rows: int) -> list[list[int]]:
    """Indices in batches of increasing length; rows times the longest stay within `batch_tokens`.

    A batch has at most `most_rows` rows, and at least one of any length.
    """
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        rows = len(batches[-1]) + 1 if batches else 0
        if rows and rows <= most_rows and rows * lengths[place] <= batch_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


def choose_problems(
    available: Sequence[str], named: Sequence[str] | None = None, count: int = 2
) -> list[str]:
    """The problems of the figure: those `named`, or the first `count` available.

    Raises ValueError for a named problem that is not available, or if there are too few.
    """
    if named is None:
        if len(available) < count:
            raise ValueError(
                f"{count} problems are needed, the benchmark has {len(available)}; choose a "
                "larger benchmark"
            )
        return list(available[:count])
    unknown = [name for name in named if name not in available]
    if unknown:
        raise ValueError(
            f"problems {', '.join(unknown)} are not in the benchmark; its ids go from "
            f"{min(available)} to {max(available)}"
        )
    return list(named)


def choose_responses(
    samples: Mapping[Run, pd.DataFrame],
    algorithms: Sequence[str],
    problems: Sequence[str],
    responses: int = 64,
) -> pd.DataFrame:
    """The first `responses` samples of each run of each method on each problem.

    `samples` are those of one model and benchmark. Returns COLUMNS without the perplexity, and
    TOKEN_IDS. Raises ValueError for a missing method or response, and for samples stored
    without their tokens.
    """
    frames = []
    for algorithm in algorithms:
        runs = sorted(run for run in samples if run[1] == algorithm)
        if not runs:
            there = ", ".join(sorted({run[1] for run in samples}))
            raise ValueError(f"no samples of {algorithm!r}; there are {there}")
        frames += [
            _first_responses(run, samples[run], problem, responses)
            for run in runs
            for problem in problems
        ]
    return pd.concat(frames, ignore_index=True)[[*COLUMNS[:-1], TOKEN_IDS]]


def _first_responses(run: Run, frame: pd.DataFrame, problem: str, responses: int) -> pd.DataFrame:
    model, algorithm, train_seed, benchmark = run
    if TOKEN_IDS not in frame:
        raise ValueError(
            f"samples of {run} have no column {TOKEN_IDS}: perplexity needs the tokens "
            "that were drawn; sample again with this version"
        )
    chosen = frame[frame["problem_id"] == problem]
    chosen = chosen.sort_values(["eval_seed", "sample_index"], kind="stable").head(responses)
    if len(chosen) < responses:
        raise ValueError(
            f"{algorithm}, seed {train_seed}, has {len(chosen)} samples of problem {problem!r}, "
            f"{responses} are needed; ask for fewer responses or draw more samples"
        )
    return chosen.assign(
        model=model, algorithm=algorithm, train_seed=train_seed, benchmark=benchmark
    )


def perplexity_table(
    base: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    responses: pd.DataFrame,
) -> pd.DataFrame:
    """`responses` (see `choose_responses`) with the perplexity of each under `base`; COLUMNS.

    Raises ValueError for a row with another number of tokens than its n_tokens.
    """
    lengths = responses[TOKEN_IDS].map(len)
    faulty = responses[lengths != responses["n_tokens"]]
    if len(faulty):
        row = faulty.iloc[0]
        raise ValueError(
            f"sample {row['sample_index']} of {row['problem_id']!r} ({row['algorithm']}) has "
            f"{len(row[TOKEN_IDS])} tokens but n_tokens {row['n_tokens']}"
        )
    prompts = {p.problem_id: prompt_ids(tokenizer, p.problem) for p in problems}
    signals = token_signals(
        base,
        [prompts[problem] for problem in responses["problem_id"]],
        [list(ids) for ids in responses[TOKEN_IDS]],
    )
    return responses.assign(perplexity=[perplexity(row) for row, _ in signals])[COLUMNS]


def read_perplexities(
    base: Path,
    samples: Sequence[Path],
    problems: Path,
    algorithms: Sequence[str],
    named: Sequence[str] | None,
    more: int,
    responses: int,
    device: str,
) -> pd.DataFrame:
    """Figure 7's data: responses chosen from the sample files, read with the checkpoint `base`;
    COLUMNS.

    The problems of the figure come first, then those with which there are at least `more`, in
    the order of the problem set, or all that there are.
    """
    asked = read_problems(problems)
    ids = [problem.problem_id for problem in asked]
    first = choose_problems(ids, named)
    chosen_ids = [*first, *(name for name in ids if name not in first)][: max(more, len(first))]
    chosen = choose_responses(
        {run_of(path): read_frame(path) for path in samples}, algorithms, chosen_ids, responses
    )
    network: Any = load_model(base)
    return perplexity_table(network.to(device), load_tokenizer(base), asked, chosen)


@torch.inference_mode()
def _read(
    model: PreTrainedModel, pairs: Sequence[tuple[Ids, Ids]], chunk_logits: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Log-probabilities and entropies of the completions of one batch.

    Padding is on the right, where real tokens do not attend to it, so no mask is needed.
    """
    device = model.device
    sequences = [torch.tensor([*prompt, *completion]) for prompt, completion in pairs]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True).to(device)
    first = min(len(prompt) for prompt, _ in pairs) - 1  # the first position with a logit to use
    last = ids.shape[1] - 1
    width = max(1, chunk_logits // (len(pairs) * model.config.vocab_size))
    cache = DynamicCache(config=model.config)
    signals = torch.zeros(2, len(pairs), last)
    ends = [*([first] if first else []), *range(first + width, last, width), last]
    start = 0
    for end in ends:
        logits = model(
            input_ids=ids[:, start:end],
            position_ids=torch.arange(start, end, device=device)[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=0 if end > first else 1,
        ).logits
        if end > first:
            logits = logits.float()
            targets, total = ids[:, start + 1 : end + 1, None], logits.logsumexp(dim=-1)
            signals[0, :, start:end] = logits.gather(-1, targets)[..., 0] - total
            mean = (logits.softmax(dim=-1) * logits).sum(dim=-1)
            signals[1, :, start:end] = total - mean
        start = end
    spans = [slice(len(p) - 1, len(p) + len(c) - 1) for p, c in pairs]
    rows = [signals[:, row, span].numpy().copy() for row, span in enumerate(spans)]
    return [(log_probs, entropies) for log_probs, entropies in rows]
