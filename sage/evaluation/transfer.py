"""What a guide on training problems would do to pass@k of others, to first order, before training.

A step of size eta along the guide's gradient moves mean pass@k of the evaluation problems by

    eta beta <g_eval, P g_guide> + O(eta^2),

with g_eval the gradient of their mean pass@k, g_guide that of E[log q(x, y)] over the training
problems (log q fixed, each token credited with what its choice can change), both at the policy
from which RL starts, and P the optimiser's preconditioner (none: SGD). Both gradients are unbiased
(`sage.method.alignment`) and from different completions, so their product is too.

No gradient of a single problem is kept. One backward pass over the training completions gives
g_guide; the derivative of each evaluation completion's log-probability along it, by two forward
passes, gives the transfer to each evaluation problem, for every k. The other way round, g_eval and
the derivatives of the training tokens along it give what each training problem adds, and the
transfer of any other guide on the same completions: placebos, and the reward itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from transformers import PreTrainedModel

from sage.evaluation.token_signals import Ids, length_sorted, padded, token_signals
from sage.method.alignment import alignment, coverage_weights, guide_credit, spread

Pair = tuple[Ids, Ids]
"""A prompt and a completion of it, as token ids."""
Direction = dict[str, torch.Tensor]
"""A change of each of a model's parameters, by name."""

PLACEBOS = 200
"""Guides whose factors are shuffled among the tokens of a prompt: the null distribution."""

_CHANGE = 0.01  # nats: the largest change of a log-probability in a difference of two passes


@dataclass(frozen=True)
class Completions:
    """G completions of each of P problems: `pairs`, problem by problem; `right` `[P, G]` (0 or 1).

    `strata` `[P]` are empty texts where a set has none; `log_factors` are log q_t, with `mask`,
    `[P G, T]`; `causal` is the guide's.
    """

    pairs: Sequence[Pair]
    right: torch.Tensor
    strata: Sequence[str]
    log_factors: torch.Tensor
    mask: torch.Tensor
    causal: bool

    def credit(self, log_factors: torch.Tensor) -> torch.Tensor:
        """The weight of each token's score in the gradient of E[log q], `[P, G, T]`."""
        shape = (*self.right.shape, -1)
        return guide_credit(log_factors.view(shape), self.mask.view(shape), self.causal)


def gradient(
    model: PreTrainedModel,
    pairs: Sequence[Pair],
    weights: torch.Tensor,
    temperature: float = 1.0,
    chunk_logits: int = 2**25,
) -> Direction:
    """The gradient of the sum of `weights` `[B, T]` times the log-probabilities of the tokens.

    In the parameters that require one (those of an adapter, where the policy has one). Completions
    whose weights are all 0 are not read.
    """
    model.eval()
    model.zero_grad(set_to_none=True)
    asked = [row for row in range(len(pairs)) if weights[row].any()]
    lengths = [len(pairs[row][0]) + len(pairs[row][1]) for row in asked]
    width = max(lengths, default=1)
    rows = max(1, chunk_logits // (width * model.config.vocab_size))
    for batch in length_sorted(lengths, rows * width, rows):
        chosen = [asked[place] for place in batch]
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([*pairs[row][0], *pairs[row][1]]) for row in chosen], batch_first=True
        ).to(model.device)
        # Padding is on the right, where no real token attends to it, so no mask is needed.
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float() / temperature
        scores = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        total = scores.new_zeros(())
        for place, row in enumerate(chosen):
            prompt, completion = pairs[row]
            own = weights[row, : len(completion)].to(scores)
            start = len(prompt) - 1
            total = total + (own * scores[place, start : start + len(completion)]).sum()
        total.backward()
    found = {
        name: part.grad if part.grad is not None else torch.zeros_like(part)
        for name, part in model.named_parameters()
        if part.requires_grad
    }
    model.zero_grad(set_to_none=True)
    return found


def derivatives(
    model: PreTrainedModel, direction: Direction, pairs: Sequence[Pair], temperature: float = 1.0
) -> torch.Tensor:
    """d log pi(y_t) / d epsilon along theta + epsilon `direction`, of each token, `[B, T]`.

    A central difference, whose step is chosen so that a log-probability changes by 0.01 nats at
    most: its error is of the second order in that.
    """
    if not any(part.any() for part in direction.values()):
        return torch.zeros(len(pairs), max(len(completion) for _, completion in pairs))

    def read(step: float, some: Sequence[Pair]) -> torch.Tensor:
        with _moved(model, direction, step):
            prompts, completions = zip(*some, strict=True)
            rows = token_signals(model, prompts, completions, temperature=temperature)
        return padded([row[0] for row in rows]).double()

    def difference(step: float, some: Sequence[Pair]) -> torch.Tensor:
        return (read(step, some) - read(-step, some)) / 2

    own = dict(model.named_parameters())
    norms = [
        math.sqrt(sum(float(part.detach().double().square().sum()) for part in parts))
        for parts in ((own[name] for name in direction), direction.values())
    ]
    step = 1e-3 * norms[0] / norms[1]
    tried = [
        pairs[place] for place in np.linspace(0, len(pairs) - 1, min(16, len(pairs))).astype(int)
    ]
    for _ in range(2):  # the first try may be far from linear
        step *= min(
            max(_CHANGE / max(float(difference(step, tried).abs().max()), 1e-12), 1e-3), 1e3
        )
    return difference(step, pairs) / step


@contextmanager
def _moved(model: PreTrainedModel, direction: Direction, step: float) -> Iterator[None]:
    """The model with its parameters moved by `step` along `direction`; exactly as before after."""
    parts = {name: part for name, part in model.named_parameters() if name in direction}
    before = {name: part.detach().clone() for name, part in parts.items()}
    try:
        with torch.no_grad():
            for name, part in parts.items():
                part.add_(direction[name], alpha=step)
        yield
    finally:
        with torch.no_grad():
            for name, part in parts.items():
                part.copy_(before[name])


def transfer(
    model: PreTrainedModel,
    train: Completions,
    test: Completions,
    k: int,
    temperature: float = 1.0,
    scale: Mapping[str, torch.Tensor] | None = None,
    placebos: int = PLACEBOS,
) -> list[dict[str, Any]]:
    """The guide's transfer from the problems of `train` to those of `test`, per unit of eta beta.

    A row for each part of `test`: `all`, and where it has strata `trained` (those of `train`) and
    `others`. `transfer` is that to pass@k and `transfer_1` to pass@1, each with the ends of a 95 %
    interval over problems of both sets; `reward` what a step along the reward's own gradient does,
    per unit of eta; `placebo_mean`, `placebo_sd` and `z`, the transfer among guides whose factors
    are shuffled among the tokens of a prompt, with the same spread of log q. `scale` is the
    diagonal of P by parameter. Raises ValueError unless k is below the completions of a problem.
    """
    scaled = (lambda found: found) if scale is None else lambda found: _times(found, scale)
    credit = train.credit(train.log_factors)
    count = credit.shape[0] * credit.shape[1]
    guided = gradient(model, train.pairs, credit.flatten(0, 1) / count, temperature)
    moves = derivatives(model, scaled(guided), test.pairs, temperature)
    moves = moves.sum(dim=1).view(test.right.shape)
    of_problem = {each: alignment(test.right, moves, each) for each in dict.fromkeys((k, 1))}
    taught = {*train.strata} - {""}
    inside = torch.tensor([name in taught for name in test.strata])
    parts = {"all": torch.ones(len(inside), dtype=torch.bool)}
    if inside.any() and not inside.all():
        parts |= {"trained": inside, "others": ~inside}
    return [
        {"part": name, "problems": int(which.sum())}
        | _row(model, train, test, of_problem, which, k, temperature, scaled, placebos)
        for name, which in parts.items()
    ]


def _row(
    model: PreTrainedModel,
    train: Completions,
    test: Completions,
    of_problem: Mapping[int, torch.Tensor],
    which: torch.Tensor,
    k: int,
    temperature: float,
    scaled: Any,
    placebos: int,
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, each in (("transfer", k), ("transfer_1", 1)):
        weights = coverage_weights(test.right, each) * which[:, None] / which.sum()
        tokens = weights.flatten()[:, None] * test.mask
        wanted = scaled(gradient(model, test.pairs, tokens, temperature))
        scores = derivatives(model, wanted, train.pairs, temperature)
        scores = torch.nn.functional.pad(scores, (0, train.mask.shape[1] - scores.shape[1]))
        scores = scores.view(*train.right.shape, -1)

        def of(credit: torch.Tensor, scores: torch.Tensor = scores) -> torch.Tensor:
            """What each training problem adds, `[P]`."""
            return (credit * scores).sum(dim=2).mean(dim=1)

        adds = of(train.credit(train.log_factors))
        value = float(of_problem[each][which].mean())
        row |= dict(
            zip(
                (name, f"{name}_low", f"{name}_high"),
                _ends(value, of_problem[each][which], adds),
                strict=True,
            )
        )
        if name == "transfer":
            others = (train.right.sum(1, keepdim=True) - train.right) / (train.right.shape[1] - 1)
            row["reward"] = float(of((train.right - others)[..., None].expand_as(scores)).mean())
            null = np.array(
                [float(of(train.credit(each)).mean()) for each in shuffled(train, placebos)]
            )
            row |= {"placebo_mean": null.mean(), "placebo_sd": null.std(ddof=1)}
            row["z"] = (value - null.mean()) / null.std(ddof=1) if null.std() > 0 else math.nan
    return row


def _ends(value: float, *samples: torch.Tensor) -> tuple[float, float, float]:
    """`value` and the ends of its 95 % interval by Student's t; variances of `samples` add."""
    if min(map(len, samples)) < 2:  # one problem says nothing of others
        return value, math.nan, math.nan
    variance = sum(float(each.double().var() / len(each)) for each in samples)
    half = float(stdtrit(min(len(each) for each in samples) - 1, 0.975)) * math.sqrt(variance)
    return value, value - half, value + half


def shuffled(train: Completions, count: int) -> Iterator[torch.Tensor]:
    """Guides that say nothing: log q_t shuffled among the tokens of a prompt's completions.

    Scaled so that log q has the same spread within prompts as that of the guide.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (*train.right.shape, -1)
    mask, own = train.mask.view(shape).bool(), train.log_factors.view(shape)
    wanted = spread(own.double().sum(dim=2))
    for _ in range(count):
        drawn = torch.zeros_like(own)
        for problem in range(len(own)):
            values = own[problem][mask[problem]]
            drawn[problem][mask[problem]] = values[torch.randperm(len(values), generator=generator)]
        yield (drawn * (wanted / spread(drawn.double().sum(dim=2)).clamp(min=1e-12))).flatten(0, 1)


def _times(found: Direction, scale: Mapping[str, torch.Tensor]) -> Direction:
    return {name: part * scale[name] for name, part in found.items()}
