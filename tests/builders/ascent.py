"""Exact gradient ascent on the logits of a tabular policy, to see that it ends at the closed forms.

`ascend` climbs an objective by L-BFGS; `follow` takes natural-gradient steps along any expected
gradient, also one that is the gradient of no objective, as that of a KL estimator used as a loss.
Both are deterministic and refuse to return a point that is not stationary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from enumerated import visits
from scipy.optimize import minimize

from sage.theory.spaces import TokenTree


class NotConvergedError(ArithmeticError):
    """The ascent stopped at a point that is not stationary."""


def ascend(
    objective: Callable[[torch.Tensor], torch.Tensor],
    logits: torch.Tensor,
    tolerance: float = 1e-7,
    steps: int = 5000,
) -> torch.Tensor:
    """Log-probabilities `[S, V]` of the policy that maximises `objective`, from `logits` `[S, V]`.

    `objective` maps a table of log-probabilities to a scalar. `tolerance` bounds every entry of
    the gradient in the logits. Raises NotConvergedError above it.
    """

    def negated(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(flat.copy()).view(logits.shape).requires_grad_()
        value = -objective(torch.log_softmax(free, dim=-1))
        (gradient,) = torch.autograd.grad(value, free)
        return value.item(), gradient.numpy().ravel()

    found = minimize(
        negated,
        logits.detach().numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": 1e-11, "maxcor": 40},
    )
    steepest = float(np.abs(found.jac).max())
    if steepest > tolerance:
        raise NotConvergedError(f"gradient {steepest:.1e} after {found.nit} steps: {found.message}")
    return torch.log_softmax(torch.from_numpy(found.x).view(logits.shape), dim=-1)


def follow(
    tree: TokenTree,
    gradient: Callable[[torch.Tensor], torch.Tensor],
    logits: torch.Tensor,
    step_size: float,
    tolerance: float = 1e-10,
    steps: int = 20_000,
) -> torch.Tensor:
    """Log-probabilities `[S, V]` of the fixed point of natural-gradient ascent along `gradient`.

    `gradient` maps logits `[S, V]` to a direction `[S, V]`. The Fisher matrix of a state is
    d(s) (diag(pi) - pi pi^T), so the natural gradient is the direction over d(s) pi(v|s), up to a
    shift per state; a step changes no logit by more than 1 nat. With the gradient of Eq. 6 and
    `step_size` 1/beta this is soft policy iteration and ends after T steps. Ends when no logit of
    a step changes by `tolerance` nats; raises NotConvergedError after `steps`.
    """
    tree.check(logits, "logits")
    log_table = torch.log_softmax(logits.detach(), dim=-1)
    change = float("inf")
    for _ in range(steps):
        fisher = visits(tree, log_table)[:, None] * log_table.exp()
        natural = gradient(log_table) / fisher
        natural = natural - (log_table.exp() * natural).sum(dim=-1, keepdim=True)
        step = (step_size * natural).clamp(-1.0, 1.0)
        log_table = torch.log_softmax(log_table + step, dim=-1)
        change = float(step.abs().max())
        if change < tolerance:
            return log_table
    raise NotConvergedError(f"a logit still changes by {change:.1e} nats after {steps} steps")
