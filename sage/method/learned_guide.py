"""A guide that learns, beside the policy, which tokens to amplify: the paper's future work.

A small network turns the policy's own signals of a token into log q. It is trained after each
optimizer step of the policy, by an optimizer of its own, on the tokens of that step. The policy
gets no gradient from it, and it gets none from the policy's loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from sage.fields import NonNegativeFloat, Positive, PositiveFloat, about
from sage.method.guides import Moment, Signals

if TYPE_CHECKING:
    import torch

LEARNED = "guide.json"
"""The file beside a trained policy that holds what `LearnedGuide.learned` returns."""

SIGNALS = ("surprisal", "entropy", "position")
"""What the network sees of a token: nats, nats, and its place in the completion from 0 to 1."""


@dataclass
class LearnedGuide:
    """Learns log q from surprisal, entropy and position, starting at q = 1.

    log q_t = f(x_t), a network with one hidden layer. After each optimizer step it takes one step
    of Adam up the objective, over all tokens with loss of that step:

    J = E[A u f] - E[f²] / (2 strength) - (balance / 2) E[f]²

    A is the advantage of the completion, positive for right ones and negative for wrong ones, and
    u = 1 - π_ref(y_t) says how unlikely the reference finds the token. So log q rises on tokens of
    right completions that the reference finds unlikely, falls on those of wrong ones, and has a
    mean near 0. Without limits of the network the maximum is
    f(x) = strength (E[A u | x] - balance E[f]).
    """

    units: Annotated[Positive, about("units of the hidden layer", unit="units")] = 16
    learning_rate: Annotated[
        PositiveFloat, about("step size of the network's Adam", unit="per step")
    ] = 0.003
    strength: Annotated[PositiveFloat, about("log q for an expected A u of 1", unit="nats")] = 5.0
    balance: Annotated[
        NonNegativeFloat, about("weight of the penalty on the mean of log q", unit="per nat")
    ] = 10.0
    _network: Network | None = field(init=False, default=None, repr=False, compare=False)
    _optimizer: Any = field(init=False, default=None, repr=False, compare=False)
    _seen: list[tuple[torch.Tensor, torch.Tensor]] = field(
        init=False, default_factory=list, repr=False, compare=False
    )
    _sums: list[float] = field(
        init=False, default_factory=lambda: [0.0] * 7, repr=False, compare=False
    )

    def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
        """See the class; `[B, T]`, without gradient."""
        inputs = inputs_of(signals)
        return self._made(inputs.device).log_q(inputs).detach().exp()

    def observe(
        self, signals: Signals, reference_log_probs: torch.Tensor, advantages: torch.Tensor
    ) -> None:
        """Keep what the next `end_step` learns from, of the micro-batch that `signals` are of.

        `reference_log_probs` are log π_ref, `[B, T]`; `advantages` those of completions, `[B]`.
        """
        inside = signals.mask.bool()
        unlikely = 1.0 - reference_log_probs.detach().float().exp()
        gain = advantages.detach().float()[:, None] * unlikely
        self._seen.append((inputs_of(signals)[inside], gain[inside]))

    def end_step(self, total: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """One step up the objective on what was observed since the last.

        `total` adds a tensor up over all processes, which then hold the same network.
        """
        import torch

        if not self._seen:
            return
        inputs, gains = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        self._seen.clear()
        network = self._made(inputs.device)
        values = network.log_q(inputs)
        wide = inputs.double()
        sums = [wide.new_tensor([len(wide)]), wide.sum(0), wide.square().sum(0)]
        *seen, mean = total(torch.cat([*sums, values.detach().double().sum()[None]])).tolist()
        tokens = seen[0]
        if not tokens:
            return
        self._sums = [a + b for a, b in zip(self._sums, seen, strict=True)]
        mean /= tokens
        slope = (gains - values.detach() / self.strength - self.balance * mean) / tokens
        weights = network.weights
        gradients = torch.autograd.grad((slope * values).sum(), weights)
        flat = total(torch.cat([one.flatten() for one in gradients]))
        for weight, gradient in zip(weights, flat.split([w.numel() for w in weights]), strict=True):
            weight.grad = -gradient.view_as(weight)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Network, optimizer and what was seen, as tensors and numbers."""
        network = self._made(None)
        return {
            "weights": [weight.detach().cpu().clone() for weight in network.weights],
            "optimizer": deepcopy(self._optimizer.state_dict()),
            "sums": list(self._sums),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._take(Network(*(weight.clone() for weight in state["weights"])))
        self._optimizer.load_state_dict(deepcopy(state["optimizer"]))
        self._sums = list(state["sums"])

    def learned(self) -> dict[str, Any]:
        """The network, and mean and standard deviation of the SIGNALS it was trained on, as JSON.

        Both are those of the network's inputs (`inputs_of`).
        """
        tokens, *sums = self._sums
        means = [total / max(tokens, 1.0) for total in sums[:3]]
        squares = [total / max(tokens, 1.0) for total in sums[3:]]
        spreads = [max(b - a * a, 0.0) ** 0.5 for a, b in zip(means, squares, strict=True)]
        return {
            "weights": [weight.tolist() for weight in self._made(None).weights],
            "tokens": tokens,
            "mean": dict(zip(SIGNALS, means, strict=True)),
            "deviation": dict(zip(SIGNALS, spreads, strict=True)),
        }

    def _made(self, device: torch.device | None) -> Network:
        """The network, on `device`; None leaves it where it is."""
        if self._network is None:
            self._take(Network.fresh(self.units))
        assert self._network is not None
        if device is not None and self._network.weights[0].device != device:
            state = deepcopy(self._optimizer.state_dict())
            self._take(Network(*(w.detach().to(device) for w in self._network.weights)))
            self._optimizer.load_state_dict(state)  # which brings it to the device of the weights
        return self._network

    def _take(self, network: Network) -> None:
        import torch

        self._network = network
        self._optimizer = torch.optim.Adam(network.weights, lr=self.learning_rate)


class Network:
    """log q of a token: one hidden layer of tanh units, and a linear layer.

    Weights in order: `[units, inputs]`, `[units]`, `[units]`, `[]`.
    """

    def __init__(self, *weights: torch.Tensor) -> None:
        self.weights = [weight.float().requires_grad_() for weight in weights]

    @classmethod
    def fresh(cls, units: int) -> Network:
        """The network at the start: the hidden layer always the same, the last layer 0, so q = 1.

        The generators of the run are left alone.
        """
        import torch

        numbers = torch.Generator().manual_seed(0)
        hidden = torch.randn(units, len(SIGNALS), generator=numbers)
        shifts = torch.randn(units, generator=numbers)
        return cls(hidden, shifts, torch.zeros(units), torch.zeros(()))

    def log_q(self, inputs: torch.Tensor) -> torch.Tensor:
        """`[..., inputs]` to log q `[...]`, before any clamp, in float32 also where the policy
        computes in another precision."""
        import torch

        hidden, shifts, output, shift = self.weights
        with torch.autocast(inputs.device.type, enabled=False):
            return (inputs.float() @ hidden.T + shifts).tanh() @ output + shift


def inputs_of(signals: Signals) -> torch.Tensor:
    """What the network sees, `[B, T, 3]`: log(1 + surprisal), log(1 + entropy), position.

    Position runs from 0 at a completion's first token with loss to 1 at its last.
    """
    import torch

    mask = signals.mask.float()
    place = (mask.cumsum(dim=1) - 1.0) / (mask.sum(dim=1, keepdim=True) - 1.0).clamp(min=1.0)
    surprisal = (-signals.log_probs.detach().float()).clamp(min=0.0)
    entropy = signals.entropies.detach().float().clamp(min=0.0)
    return torch.stack([surprisal.log1p(), entropy.log1p(), place.clamp(min=0.0)], dim=-1)
