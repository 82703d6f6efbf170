"""Data of the two conceptual figures: anchors as guides reshape them, and where divergences lead.

Nothing is drawn by hand. Figure 1 calls the guide functions of training on a small token tree;
Figure 5 descends the pseudo-KL of Eq. 5 on a grid and shapes its anchor with the branch guide.
Both return arrays; how they look is left to reporting. The numbers are ours: the paper gives none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from sage.method.anchors import pseudo_kl, shaped_anchor
from sage.method.guides import BranchGuide, GuideFunction, RandomGuide, Signals, TokenGuide
from sage.theory.spaces import TokenTree, entropies, first_log_q, per_token, sequence_log_probs

TREE = TokenTree(vocabulary=6, length=3)

GUIDES: Mapping[str, GuideFunction] = {
    "random": RandomGuide(),
    "token": TokenGuide(),
    "branch": BranchGuide(),
}


@dataclass(frozen=True)
class GuidedAnchors:
    """Completions of a token tree under anchors, from the likeliest to the least likely.

    `completions` are their tokens `[N, T]`, `entropies` those of the states they pass, in nats,
    `[N, T]`; `reference` is pi_ref `[N]`; `factors` q(y) by guide `[N]`; `anchors` q pi_ref by
    guide `[N]`, not normalised, as the pseudo-KL takes it.
    """

    completions: np.ndarray
    entropies: np.ndarray
    reference: np.ndarray
    factors: dict[str, np.ndarray]
    anchors: dict[str, np.ndarray]


def branching_reference() -> torch.Tensor:
    """log pi_ref of TREE, `[43, 6]`: the rarer a token, the more open what follows it.

    Token v of a state has probability proportional to exp(-sharpness * v). The root has sharpness
    1; after token u it falls from 3 to 0 with u, from almost certain to uniform.
    """
    after = torch.linspace(3.0, 0.0, TREE.vocabulary, dtype=torch.float64)
    sharpness = torch.cat(
        [torch.ones(1, dtype=torch.float64), after, after.repeat(TREE.vocabulary)]
    )
    ranks = torch.arange(TREE.vocabulary)
    return torch.log_softmax(-sharpness[:, None] * ranks, dim=-1)


def guided_anchors(seed: int = 0) -> GuidedAnchors:
    """Figure 1: what each guide does to the same reference at the first step of training.

    The policy is the reference, as it is then. `seed` is that of the guides' noise, which every
    completion draws for itself, as in training.
    """
    table = branching_reference()
    log_tokens = per_token(TREE, table)
    signals = Signals(log_tokens, entropies(table)[TREE.states], torch.ones_like(log_tokens))
    log_reference = sequence_log_probs(TREE, table)
    order = log_reference.argsort(descending=True, stable=True)
    factors, anchors = {}, {}
    for name, guide in GUIDES.items():
        log_factors = first_log_q(guide, signals, str(seed))
        log_anchor = shaped_anchor(log_tokens, log_factors).sum(dim=-1)
        factors[name] = log_factors.sum(dim=-1).exp()[order].numpy()
        anchors[name] = log_anchor.exp()[order].numpy()
    return GuidedAnchors(
        completions=TREE.completions[order].numpy(),
        entropies=signals.entropies[order].numpy(),
        reference=log_reference.exp()[order].numpy(),
        factors=factors,
        anchors=anchors,
    )


MODES = ((0.7, -3.0), (0.3, 3.0))
"""Weight and place of the two modes of Figure 5 on a line, the rarer one last."""

WIDTH = 0.7
"""Standard deviation of each."""

BRANCH_TOKENS = 4
"""Open states on the way to the rarer mode."""


@dataclass(frozen=True)
class Fit:
    """A normal policy fitted to an anchor on the grid of `ModeFits`.

    `density` is `[X]`; `path` `[steps + 1, 2]` holds mean and standard deviation at each step,
    the start first; `divergence` what is left at the end, in nats.
    """

    mean: float
    deviation: float
    divergence: float
    density: np.ndarray
    path: np.ndarray


@dataclass(frozen=True)
class ModeFits:
    """Figure 5: a mixture, a guided anchor, and where three divergences take the same policy.

    `grid` `[X]` are positions; `reference` and `anchor` `[X]` densities, the latter q times the
    former and not normalised; `factor` `[X]` is q.
    """

    grid: np.ndarray
    reference: np.ndarray
    factor: np.ndarray
    anchor: np.ndarray
    reverse: Fit
    forward: Fit
    guided: Fit


def mode_fits(
    branch_entropy: float = 2.6, start: tuple[float, float] = (0.0, 3.0), steps: int = 600
) -> ModeFits:
    """Fit one normal policy to MODES by reverse KL, by forward KL, and by SAGE's reverse KL.

    SAGE's anchor is q pi_ref with the branch guide at its defaults. The premise is that the way
    to the rarer mode leads through BRANCH_TOKENS states of up to `branch_entropy` nats: at x the
    entropy is that times the share of the rarer mode in the density at x. All three start from
    the mean and standard deviation `start`.
    """
    grid = torch.linspace(-15.0, 15.0, 601, dtype=torch.float64)
    spacing = float(grid[1] - grid[0])
    width = torch.tensor(WIDTH)
    of_modes = torch.stack(
        [math.log(w) + _log_normal(grid, torch.tensor(center), width) for w, center in MODES]
    )
    log_reference = torch.log_softmax(torch.logsumexp(of_modes, dim=0), dim=-1)
    rarer = torch.softmax(of_modes, dim=0)[1]
    passed = (branch_entropy * rarer)[:, None].expand(-1, BRANCH_TOKENS)
    signals = Signals(torch.zeros_like(passed), passed, torch.ones_like(passed))
    log_factor = first_log_q(BranchGuide(), signals).sum(dim=-1)
    log_anchor = shaped_anchor(log_reference, log_factor)
    return ModeFits(
        grid=grid.numpy(),
        reference=log_reference.exp().numpy() / spacing,
        factor=log_factor.exp().numpy(),
        anchor=log_anchor.exp().numpy() / spacing,
        reverse=_descend(grid, log_reference, False, start, steps),
        forward=_descend(grid, log_reference, True, start, steps),
        guided=_descend(grid, log_anchor, False, start, steps),
    )


def _descend(
    grid: torch.Tensor,
    log_anchor: torch.Tensor,
    forward: bool,
    start: tuple[float, float],
    steps: int,
) -> Fit:
    """Gradient descent of the pseudo-KL of a normal policy, cut into cells, and the anchor.

    The gradient in mean and log deviation is divided by the Fisher information of a normal law
    (1 / deviation^2 and 2), which makes steps alike at every width, and kept below 1.
    """

    def log_policy(place: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(_log_normal(grid, place[0], place[1].exp()), dim=-1)

    def divergence(place: torch.Tensor) -> torch.Tensor:
        policy = log_policy(place)
        return pseudo_kl(log_anchor, policy) if forward else pseudo_kl(policy, log_anchor)

    place = torch.tensor([start[0], math.log(start[1])], dtype=torch.float64)
    path = [place]
    for _ in range(steps):
        free = place.requires_grad_()
        (gradient,) = torch.autograd.grad(divergence(free), free)
        fisher = torch.stack([torch.exp(-2.0 * place[1]), torch.tensor(2.0)])
        place = (place - 0.1 * (gradient / fisher).clamp(-1.0, 1.0)).detach()
        path.append(place)
    walked = torch.stack(path).detach()
    walked[:, 1] = walked[:, 1].exp()
    spacing = float(grid[1] - grid[0])
    return Fit(
        mean=float(walked[-1, 0]),
        deviation=float(walked[-1, 1]),
        divergence=float(divergence(place)),
        density=log_policy(place).exp().numpy() / spacing,
        path=walked.numpy(),
    )


def _log_normal(grid: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """log of the normal density, up to a constant where the grid is normalised over."""
    return -0.5 * ((grid - mean) / deviation).square() - deviation.log()
