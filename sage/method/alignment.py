"""What a guide does to a policy before any training: its dose, and its alignment with pass@k.

A guide acts through L = log q(x, y), the sum of its log factors over a completion, and only through
differences of L between completions of a prompt. All is measured on groups of G completions of each
of N prompts, drawn from the policy from which RL starts.

- The dose in the reward is beta times the standard deviation of L within a prompt, in those of the
  advantages: what Eq. 3 adds to the reward beside what the verdict does.
- The dose in the loss is beta times that of q among the tokens that a state offers. There, at
  pi = pi_ref, k3 pushes each token by beta (q_t - 1), and what is the same for every token of a
  state cancels: for the branch and the random guide it is 0.
- The alignment a_k is the derivative of pass@k, in shares per unit of lambda, as the policy is
  tilted to pi(y | x) q(x, y)^lambda, at lambda = 0. beta a_k says in which direction a guide in the
  reward moves coverage, and which of two guides moves it further; not how far.
"""

from __future__ import annotations

from sage.method import Tensor
from sage.method.advantages import chance_of_none, check_rewards, right_counts


def alignment(rewards: Tensor, log_q: Tensor, k: int) -> Tensor:
    """An unbiased estimate of the derivative of pass@k along log q, of each prompt; `[N]`.

    `rewards` (0 or 1) and `log_q` are `[N, G]`. With c right completions of G, and L bar the
    mean of L over completions outside of a set of k in which i is right and all others are wrong:

        a_k = mean over i of r_i k C(G - c, k - 1) / C(G - 1, k - 1) (L_i - L bar)

    A mean over all other completions in the place of L bar would be too large by the factor
    1 + p (k - 1) / ((G - 1) (1 - p)), p the chance of a right one. Raises ValueError unless k is
    below G: the mean needs a completion outside.
    """
    check_rewards(rewards, binary=True)
    size = rewards.shape[1]
    if not 1 <= k < size:
        raise ValueError(f"k is {k}, but must be from 1 to {size - 1}: {size} samples are drawn")
    count, right = right_counts(rewards, k)
    reward, values = rewards.double(), log_q.double()
    of_right = (reward * values).sum(dim=1, keepdim=True)
    of_wrong = ((1.0 - reward) * values).sum(dim=1, keepdim=True)
    left = 1.0 - (k - 1) / (count - right).clamp(min=1.0)  # wrong ones that the set leaves outside
    outside = (of_right - values + left * of_wrong) / (size - k)
    credit = reward * k * chance_of_none(count - 1, right - 1, k - 1)
    return (credit * (values - outside)).mean(dim=1)


def spread(values: Tensor) -> Tensor:
    """The mean over prompts of the standard deviation within each; `[N, G]` to a number."""
    return values.double().std(dim=1).mean()


def at_equal_length(values: Tensor, lengths: Tensor) -> Tensor:
    """`values` less what their prompt's mean and their length explain, `[N, G]`.

    One slope for all prompts, by least squares within them.
    """
    off, longer = (
        each.double() - each.double().mean(1, keepdim=True) for each in (values, lengths)
    )
    return off - (off * longer).sum() / longer.square().sum().clamp(min=1e-12) * longer


def length_correlation(values: Tensor, lengths: Tensor) -> float:
    """Correlation of `values` and `lengths` `[N, G]` within prompts; 0 where either is constant."""
    off, longer = (
        each.double() - each.double().mean(1, keepdim=True) for each in (values, lengths)
    )
    scale = (off.square().sum() * longer.square().sum()).sqrt()
    return float((off * longer).sum() / scale) if scale > 1e-12 else 0.0


def spread_without_noise(draws: Tensor) -> Tensor:
    """`spread` of what a guide's draws of noise have in common, from D draws `[D, N, G]`.

    The variance that draws of the same completions differ by is taken away. With one draw, which a
    guide without noise needs, it is that draw's spread.
    """
    if len(draws) == 1:
        return spread(draws[0])
    noise = draws.double().var(dim=0).mean()
    whole = draws.double().var(dim=2).mean()
    left = (1.0 - noise / whole.clamp(min=1e-300)).clamp(min=0.0)
    return left.sqrt() * draws.double().std(dim=2).mean()


def dose_in_reward(log_q: Tensor, advantages: Tensor, beta: float) -> float:
    """beta SD(L) in standard deviations of the advantages, from `[N, G]` each.

    That of the advantages is a mean over prompts in which they differ; NaN without one.
    """
    own = advantages.double().std(dim=1)
    return float(beta * spread(log_q) / own[own > 1e-3].mean())


def dose_in_loss(factors: Tensor, others: Tensor, mask: Tensor, beta: float) -> float:
    """beta times the root of the mean over tokens of Var q_t(v), v drawn from the policy's state.

    `factors` are q of the drawn tokens and `others` q of a second token drawn from the same states,
    with the same noise; half of the squared difference estimates the variance. `[B, T]` each.
    """
    inside = mask.double()
    variance = ((factors.double() - others.double()).square() / 2 * inside).sum() / inside.sum()
    return float(beta * variance.sqrt())


def coverage_weights(rewards: Tensor, k: int) -> Tensor:
    """Weights w with sum_i w_i grad log pi(y_i) an unbiased gradient of pass@k, `[N, G]`.

    `rewards` are 0 or 1. `alignment` is linear in its second argument, and these are its
    coefficients: where that is log q it is the derivative along q, where it is log pi the gradient.
    Raises ValueError as `alignment` does.
    """
    import torch

    values = torch.zeros_like(rewards, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(alignment(rewards, values, k).sum(), values)[0]


def guide_credit(log_factors: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """Weights of the tokens' scores in an unbiased gradient of E[log q], log q fixed; `[N, G, T]`.

    A token is credited with the log factors from it on, or with all of them where a guide is not
    `causal`, less the same of the prompt's other completions. That is what the KL term in the
    reward credits it with (`sage.method.credit.K1InReward`), without its factor of 1 - 1/G. The
    gradient is the mean over prompts and completions of the sum over tokens.
    """
    values = log_factors.double() * mask
    if causal:
        values = values.flip(2).cumsum(dim=2).flip(2)
    else:
        values = values.sum(dim=2, keepdim=True).expand_as(values)
    others = (values.sum(dim=1, keepdim=True) - values) / (values.shape[1] - 1)
    return (values - others) * mask
