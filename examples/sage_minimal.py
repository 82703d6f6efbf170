"""SAGE in one file: sample, reward, advantages, the shaped anchor, the update, pass@k.

    python examples/sage_minimal.py      # one or two minutes on a laptop's CPU

The method of "SAGE: Shaping Anchors for Guided Exploration in RLVR of LLMs" (arXiv 2605.18864) on a
policy of 0.1 M parameters, with torch and transformers alone. RL with verifiable rewards maximises
E[r] - beta KL(pi || pi_ref) (Eq. 1); the solution is proportional to pi_ref exp(r / beta) (Eq. 2),
so what the reference hardly does stays rare. SAGE puts q pi_ref in the place of pi_ref, with a
guide function q(x, y) > 0 that carries no gradient (Eq. 3, 4).

Simplified: prompts have one length, all weights are trained, each method is trained once. A test
compares losses and gradients with SageTrainer's. Shapes: B completions, P prompt tokens, T
completion tokens, V characters; entropies and log probabilities are in nats.
"""

from __future__ import annotations

import copy
import math
import random
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

ALPHABET = "0123456789+-=,:."
END = ALPHABET.index(".")  # also the padding behind it
MAX_TOKENS = 16

# 1. The world. A problem is a - b + c with digits a, b, c. Two ways lead to the answer: from left
# to right, or a + c first. The base knows no negative numbers, so where a < b only a + c first is
# right. RL trains where a >= b and is tested where a < b: it can unlearn the way needed there.
Problem = tuple[int, int, int]


def problem_sets(seed: int) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """Problems to pretrain on, those of them with a >= b to train on with RL, and a < b to test."""
    every = [(a, b, c) for a, b, c in product(range(10), repeat=3) if a - b + c >= 0]
    random.Random(seed).shuffle(every)
    test = [(a, b, c) for a, b, c in every if a < b][:60]
    read = [problem for problem in every if problem not in test]
    return read, [(a, b, c) for a, b, c in read if a >= b], test


def prompt(problem: Problem) -> str:
    """As `5-3+9:`, always 6 characters."""
    return "{}-{}+{}:".format(*problem)


def solution(problem: Problem, left_to_right: bool) -> str:
    """What the base reads: `5-3=2,2+9=11.` or `5+9=14,14-3=11.`; `3-5=0,0+9=9.` is wrong."""
    a, b, c = problem
    if left_to_right:
        return f"{a}-{b}={max(a - b, 0)},{max(a - b, 0)}+{c}={max(a - b, 0) + c}."
    return f"{a}+{c}={a + c},{a + c}-{b}={a + c - b}."


def reward(problem: Problem, completion: str) -> float:
    """r(x, y): 1 if the answer, and the end, follow the last equals sign, else 0."""
    a, b, c = problem
    return float(completion.rpartition("=")[2] == f"{a - b + c}.")


# 2. The base policy: a small transformer that has read solutions, right and wrong ones.
def encoded(texts: list[str]) -> Tensor:
    """Texts as token ids, padded on the right; `[B, longest]`."""
    rows = [torch.tensor([ALPHABET.index(character) for character in text]) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=END)


def decoded(ids: Tensor) -> list[str]:
    """Token ids `[B, T]` as texts, up to the first end."""
    texts = ["".join(ALPHABET[i] for i in row) for row in ids.tolist()]
    return ["".join(text.partition(".")[:2]) for text in texts]


def pretrained(problems: list[Problem], steps: int, seed: int) -> Qwen2ForCausalLM:
    """The base: next-token prediction on solutions, three of four from left to right."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(ALPHABET),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    base, rng = Qwen2ForCausalLM(config), random.Random(seed)
    optimizer = torch.optim.AdamW(base.parameters(), lr=3e-3)
    for _ in range(steps):
        drawn = rng.choices(problems, k=128)
        ids = encoded([prompt(p) + solution(p, rng.random() < 0.75) for p in drawn])
        base(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return base


# 3. Sampling.
@torch.no_grad()
def sample(policy: Qwen2ForCausalLM, prompts: Tensor) -> Tensor:
    """A completion of each prompt `[B, P]`, at temperature 1: `[B, T]`, padded behind its end."""
    ids, cache, drawn = prompts, None, []
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    while len(drawn) < MAX_TOKENS and not ended.all():
        output = policy(ids, past_key_values=cache, use_cache=True)
        token = output.logits[:, -1].softmax(dim=-1).multinomial(1)[:, 0]
        drawn.append(token.masked_fill(ended, END))
        ended, cache, ids = ended | (token == END), output.past_key_values, token[:, None]
    return torch.stack(drawn, dim=1)


# 4. Advantages: the completions of one prompt, a group, are compared with one another.
def group_advantages(rewards: Tensor) -> Tensor:
    """GRPO's A = (r - mean) / (std + 1e-4) of rewards `[N, G]`, N prompts with G completions."""
    mean, spread = rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)
    return (rewards - mean) / (spread + 1e-4)


# 5. The anchor q pi_ref, and the distance to it.
def log_probs_and_entropies(
    policy: Qwen2ForCausalLM, prompts: Tensor, completions: Tensor
) -> tuple[Tensor, Tensor]:
    """log pi(y_t | s_t) of the completions' tokens and the entropies H_t of pi(. | s_t).

    `prompts` are `[B, P]`, `completions` and both results `[B, T]`; ignore the results on padding.
    """
    ids = torch.cat([prompts, completions], dim=1)
    log_p = policy(ids).logits[:, prompts.shape[1] - 1 : -1].log_softmax(dim=-1)  # [B, T, V]
    chosen = log_p.gather(-1, completions[..., None])[..., 0]
    return chosen, -(log_p.exp() * log_p).sum(dim=-1)


@torch.no_grad()
def branch_guide(entropies: Tensor, ratio: float, threshold: float) -> Tensor:
    """q_t = 1 + ratio max(0, H_t - threshold), at most 1.4 (Eq. 11, 12); `[B, T]`, no gradient.

    It is larger where the policy is undecided, that is where ways part. `threshold` is in nats.
    q(x, y) is the product of the factors q_t. With `ratio` 0 it is 1: plain GRPO.
    """
    return (1 + ratio * (entropies - threshold).clamp(min=0)).clamp(0.6, 1.4)


def shaped_anchor(reference_log_probs: Tensor, factors: Tensor) -> Tensor:
    """log(q_t pi_ref(y_t | s_t)), `[B, T]` (Eq. 8); the anchor need not be normalised."""
    return (reference_log_probs + factors.log()).detach()


def k3(log_probs: Tensor, anchor: Tensor) -> Tensor:
    """rho - log rho - 1 with rho = q pi_ref / pi at the sampled token (Eq. 38); `[B, T]`.

    Its mean is the reverse KL, but its gradient in the loss, as here and in the paper, is that of
    the forward KL. The branch guide then multiplies the pull towards pi_ref by q_t.
    """
    log_ratio = anchor - log_probs
    return log_ratio.exp() - log_ratio - 1


# 6. The loss and the update.
@dataclass(frozen=True)
class Settings:
    """The KL coefficient `beta`, the guide (`ratio` per nat, `threshold` in nats), and sizes."""

    ratio: float = 0.3
    threshold: float = 0.3  # 1.2 in the paper; but where two ways part, H_t is at most log 2 = 0.69
    beta: float = 0.05
    clip: float = 0.2
    prompts: int = 16  # per generation, each with a group of completions
    group: int = 8
    updates: int = 2  # with the same completions; the clip acts from the second on
    generations: int = 40
    learning_rate: float = 2e-4


def sage_loss(
    log_probs: Tensor, old: Tensor, anchor: Tensor, gains: Tensor, mask: Tensor, settings: Settings
) -> Tensor:
    """The mean over completions of the mean over tokens of -min(w A, clip(w) A) + beta k3.

    w = pi / pi_old. `log_probs` of the policy, `old` ones, `anchor` and `mask` (1 on tokens, 0 on
    padding) are `[B, T]`, `gains`, the advantages A, `[B]`.
    """
    w, a = (log_probs - old).exp(), gains[:, None]
    clipped = w.clamp(1 - settings.clip, 1 + settings.clip)
    per_token = settings.beta * k3(log_probs, anchor) - torch.min(w * a, clipped * a)
    return ((per_token * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def train(
    base: Qwen2ForCausalLM, problems: list[Problem], settings: Settings, seed: int
) -> Qwen2ForCausalLM:
    """The policy that RL makes of `base`, which is the reference as well and stays as it is."""
    torch.manual_seed(seed)
    rng, policy = random.Random(seed), copy.deepcopy(base)
    optimizer = torch.optim.AdamW(policy.parameters(), settings.learning_rate, weight_decay=0.0)
    for _ in range(settings.generations):
        asked = [p for p in rng.sample(problems, settings.prompts) for _ in range(settings.group)]
        prompts = encoded(list(map(prompt, asked)))
        completions = sample(policy, prompts)
        rewards = torch.tensor(list(map(reward, asked, decoded(completions))))
        gains = group_advantages(rewards.view(-1, settings.group)).flatten()
        ends = (completions == END).float()
        mask = (ends.cumsum(dim=1) - ends == 0).float()  # nothing ended before
        with torch.no_grad():
            reference, _ = log_probs_and_entropies(base, prompts, completions)
            old, _ = log_probs_and_entropies(policy, prompts, completions)
        for _ in range(settings.updates):
            log_probs, entropies = log_probs_and_entropies(policy, prompts, completions)
            factors = branch_guide(entropies, settings.ratio, settings.threshold)
            anchor = shaped_anchor(reference, factors)
            sage_loss(log_probs, old, anchor, gains, mask, settings).backward()
            optimizer.step()
            optimizer.zero_grad()
    return policy


# 7. What came of it: pass@k, the chance that one of k completions is right.
def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased pass@k of a problem with `correct` of `n` completions right (arXiv 2107.03374)."""
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def solved(policy: Qwen2ForCausalLM, problem: Problem, n: int) -> int:
    """How many of `n` completions are right, working included: 0 to 18 can be guessed."""
    both = {solution(problem, True), solution(problem, False)}
    drawn = decoded(sample(policy, encoded([prompt(problem)] * n)))
    return sum(reward(problem, text) > 0 for text in drawn if text in both)


def main() -> None:
    """Make a base, train it without an anchor and with two, and print pass@k of each policy."""
    read, easy, hard = problem_sets(seed=0)
    base = pretrained(read, steps=200, seed=0)
    methods = {"GRPO, no KL": Settings(beta=0.0), "GRPO": Settings(ratio=0.0), "SAGE": Settings()}
    policies = {"base": base} | {name: train(base, easy, s, seed=0) for name, s in methods.items()}
    ks = (1, 4, 16, 64)
    for title, problems in {"of the kind trained on": easy[:60], "a < b": hard}.items():
        print(f"pass@k in %, {title}".ljust(32) + "".join(f"k={k}".rjust(8) for k in ks))
        for name, policy in policies.items():
            torch.manual_seed(0)
            right = [solved(policy, p, 128) for p in problems]
            values = [sum(pass_at_k(128, c, k) for c in right) / len(right) for k in ks]
            print(f"  {name:30}" + "".join(f"{100 * value:8.1f}" for value in values))
    print("One run of each decides nothing: reports/README.md has more, with intervals.")


if __name__ == "__main__":
    main()
