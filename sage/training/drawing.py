"""Rollouts as they are drawn and scored: in which order, by what, and where they end.

A `Drawer` takes the place of TRL's generation. Each completion has a random stream named by the
run's seed, the step, the draw within the step and its place in the whole generation: what is drawn
depends neither on the size of batches or the number of processes, nor on a kill and a resume.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import lcm
from typing import Any, Protocol, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.nn.functional import pad
from trl.trainer.utils import RepeatSampler

from sage.method.advantages import Groups
from sage.runtime.files import text_sum
from sage.sampling.interface import Completion, Request
from sage.training.shaping import Shaping, loss_mask

OLD = "old_per_token_logps"
"""TRL's name, in a batch, of the log-probs of the policy that drew it."""

REFERENCE = "ref_per_token_logps"
"""TRL's name, in a batch, of the reference's log-probs."""

GUIDED = "guided_prompt"
"""Column of the data set with the conversation that asks the problem and gives its hint."""

DRAWN = "drawn_tokens"
"""Key of TRL's log: completion tokens drawn so far, those that are not trained on among them."""

PARTS = "reward_parts"
"""Key of a batch with the single rewards `[B, F]`, for advantages that look at them."""

_LEFT_PADDED = ("prompt_ids", "prompt_mask")
_OF_THE_BATCH = ("num_items_in_batch",)

Rollouts = dict[str, Any]
Examples = list[dict[str, Any]]


def start_at_epoch(dataloader: Any, epoch: int) -> None:
    """Have `dataloader` take its prompts in the order of the pass `epoch`, counted from 0.

    TRL's sampler shuffles with a generator that starts anew when a run is resumed, so that a run
    killed in its third pass would go on with the order of the first.
    """
    batches = dataloader.batch_sampler
    while hasattr(batches, "batch_sampler"):  # around it, where several processes share batches
        batches = batches.batch_sampler
    order = batches.sampler
    if isinstance(order, RepeatSampler) and order.shuffle and order.seed is not None:
        order.generator.manual_seed(order.seed)
        for _ in range(epoch):
            torch.randperm(order.num_samples, generator=order.generator)


def filters_of(args: Any) -> list[str]:
    """TRL's settings in `args` that cut tokens off the distribution that is drawn from."""
    cuts = {
        "top_k": (args.top_k or 0) > 0,
        "top_p": args.top_p is not None and args.top_p < 1.0,
        "min_p": (args.min_p or 0.0) > 0.0,
    }
    return [name for name, cut in cuts.items() if cut]


def other_prompts(dataset: Any, count: int, seed: int, step: int, draw: int) -> Examples:
    """`count` examples of the data set taken at random, others for each step and draw."""
    digest = hashlib.sha256(f"{seed}|refill|{step}|{draw}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    indices = torch.randperm(len(dataset), generator=generator)[:count].tolist()
    return [dataset[i] for i in indices]


def problem_name(example: Mapping[str, Any]) -> str:
    """A name for the problem of an example, the same whenever it is drawn."""
    return text_sum(json.dumps(example["prompt"]))


class Drawer(Protocol):
    """Draws completions of a policy that is being trained."""

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        """A completion per request, with log-probs, from `policy` as it is now."""
        ...


MakeDrawer = Callable[[Any], Drawer]
"""Makes the drawer of a trainer, when its first rollouts are drawn."""


class NamedDraws:
    """Draws with the drawer that `make` makes, and names the stream of each completion."""

    def __init__(self, make: Callable[[], Drawer], seed: int, padding: int) -> None:
        self.drawer: Drawer | None = None
        self._make, self._seed, self._padding = make, seed, padding
        self._last: tuple[tuple[str, int], int] = (("", 0), 0)  # moment, and draw within it
        self._is_said = False

    def draw(
        self,
        policy: Any,
        prompts: Sequence[Sequence[int]],
        moment: tuple[str, int],
        first: int,
        wanted: int | None,
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Tokens and log-probs of a completion of each of this process's `prompts`.

        Their places begin at `first` in a draw of `moment`, the mode and the step. Of all
        processes' completions `wanted` are drawn; those behind are a token of padding.
        """
        self.drawer = self.drawer or self._make()
        draw = self._last[1] + 1 if self._last[0] == moment else 0
        self._last = (moment, draw)
        # A process that only fills up draws one all the same: drawing may be done together.
        asked = prompts if wanted is None else prompts[: max(1, wanted - first)]
        requests = [
            Request(tuple(ids), rollout_stream(self._seed, *moment, draw, first + row))
            for row, ids in enumerate(asked)
        ]
        drawn = self.drawer.draw(policy, requests)
        self._say_what_is_too_long(policy, requests, drawn)
        missing = len(prompts) - len(drawn)
        return (
            [list(one.token_ids) for one in drawn] + [[self._padding]] * missing,
            [[math.nan if value is None else value for value in one.log_probs] for one in drawn]
            + [[0.0]] * missing,
        )

    def _say_what_is_too_long(
        self, policy: Any, requests: Sequence[Request], drawn: Sequence[Completion]
    ) -> None:
        """Warn once, as transformers does, of texts behind the positions that the model knows."""
        limit = getattr(policy.config.get_text_config(), "max_position_embeddings", None)
        if limit is None or self._is_said:
            return
        pairs = zip(requests, drawn, strict=True)
        longer = sum(len(asked.prompt_ids) + len(one.token_ids) > limit for asked, one in pairs)
        if longer:
            self._is_said = True
            warnings.warn(
                f"{longer} of {len(drawn)} prompts with their completions have more tokens than "
                f"the model has positions (max_position_embeddings {limit}); what it computes "
                "behind them is not what it was trained for. Leave out long prompts, or lower "
                "max_completion_length",
                stacklevel=2,
            )


def rollout_stream(seed: int, mode: str, step: int, draw: int, place: int) -> str:
    """The name of a rollout's random stream; different rollouts have different names.

    Neither model nor method is part of it: runs of one seed draw with the same numbers, which
    makes their comparison sharper.
    """
    return json.dumps(["rollout", seed, mode, step, draw, place])


class StopRule:
    """Where completions end: at `tokens`, and behind `texts`, whatever tokens these take."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], tokens: Sequence[int]) -> None:
        self._tokenizer, self._texts, self._tokens = tokenizer, texts, tokens

    def have_trl_stop(self, trainer: Any, policy: Any) -> None:
        """Have TRL's generation stop at the texts, for which transformers needs the tokenizer."""
        if self._texts:
            trainer.generation_config.stop_strings = list(self._texts)
            trainer.generation_kwargs["stop_strings"] = list(self._texts)
            policy.generate = partial(policy.generate, tokenizer=self._tokenizer)

    def cut(self, completions: list[list[int]]) -> list[list[int]]:
        """What TRL generated, cut in place: padding follows a stop text, no end-of-text token."""
        padding = self._tokenizer.pad_token_id
        for ids in completions:
            while len(ids) > 1 and ids[-1] == padding and ids[-2] == padding:
                ids.pop()
            if len(ids) > 1 and ids[-1] == padding and self._holds_text(ids[:-1]):
                ids.pop()
        return completions

    def truncated(self, completions: Sequence[Sequence[int]]) -> list[bool]:
        """Which completions did not end: at no token of `tokens` or padding, with no stop text."""
        ends = {*self._tokens, self._tokenizer.pad_token_id}
        return [ids[-1] not in ends and not self._holds_text(ids) for ids in completions]

    def _holds_text(self, ids: Sequence[int]) -> bool:
        text = self._tokenizer.decode(ids[-64:]) if self._texts else ""
        return any(stop in text for stop in self._texts)


@dataclass(frozen=True)
class ProcessSlices:
    """How all processes share completions: each holds an equal slice of them, in their order.

    `group` is G, the completions of a prompt, and `padding` the token that fills shorter rows.
    `micro_batches` is the number of parts that all processes together run a step in.
    """

    accelerator: Accelerator
    group: int
    padding: int
    micro_batches: int = 1

    @property
    def sharing(self) -> int:
        """How many processes run one micro-batch together."""
        return max(1, self.accelerator.num_processes // self.micro_batches)

    def first(self, rows: int) -> int:
        """Where this process's `rows` completions begin among those of all."""
        return int(self.accelerator.process_index * rows)

    def own(self, rows: int) -> slice:
        """This process's `rows` rows among those of all."""
        return slice(self.first(rows), self.first(rows) + rows)

    def part(self, rows: Sequence[Any]) -> list[Any]:
        """This process's part of the rows of all."""
        return list(rows[self.own(len(rows) // self.accelerator.num_processes)])

    def tokens(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """Completion tokens with loss, of all processes."""
        return self.accelerator.gather(loss_mask(batch).sum()).sum()

    def of_the_micro_batch(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of this process `[B, ...]` with those of all that share its micro-batch."""
        if self.sharing == 1:
            return rows
        every = self.accelerator.gather(self.accelerator.pad_across_processes(rows, dim=1))
        first = self.accelerator.process_index // self.sharing * self.sharing * len(rows)
        return every[first : first + self.sharing * len(rows)]

    def weight(self, tokens: torch.Tensor) -> torch.Tensor:
        """The weight of a mean over this process's `tokens` in that over its whole micro-batch.

        The latter is the average over the processes that share it, as gradients are.
        """
        counts = self.accelerator.gather(tokens).view(-1, self.sharing).sum(dim=1)
        total = counts[self.accelerator.process_index // self.sharing].clamp(min=1)
        return tokens * self.sharing / total

    def everyones(self, batch: Mapping[str, Any]) -> Rollouts:
        """The rows of all processes in their order, padded as by `join`, on each of them."""
        rows = {}
        for key, value in batch.items():
            if key not in _OF_THE_BATCH:
                padded = self.accelerator.pad_across_processes(
                    value, dim=1, pad_index=self._fill(key), pad_first=key in _LEFT_PADDED
                )
                rows[key] = self.accelerator.gather(padded)
        return rows

    def join(self, parts: Sequence[Mapping[str, Any]]) -> Rollouts:
        """Rows of several batches in one, padded to a common length.

        Prompts are padded on the left, the rest on the right. Raises ValueError if the parts differ
        in their keys.
        """
        if any(part.keys() != parts[0].keys() for part in parts):
            raise ValueError(f"batches with different keys: {[sorted(part) for part in parts]}")
        rows = {}
        for key, first in parts[0].items():
            values = [part[key] for part in parts]
            if first.ndim > 1:
                longest = max(value.shape[1] for value in values)
                missing = [longest - value.shape[1] for value in values]
                sides = [(n, 0) if key in _LEFT_PADDED else (0, n) for n in missing]
                fill = self._fill(key)
                values = [pad(v, side, value=fill) for v, side in zip(values, sides, strict=True)]
            rows[key] = torch.cat(values)
        return rows

    def _fill(self, key: str) -> int:
        return self.padding if key in ("prompt_ids", "completion_ids") else 0


def take_rows(batch: Mapping[str, Any], rows: torch.Tensor | slice) -> Rollouts:
    """Those rows, in that order; what belongs to the batch is dropped."""
    return {key: value[rows] for key, value in batch.items() if key not in _OF_THE_BATCH}


def texts_of(batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Ids and masks of prompts with completions, `[B, P + T]`, and T.

    Rows that only fill up have no completion in their mask.
    """
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, mask, batch["completion_ids"].shape[1]


@dataclass
class GenerationCall:
    """The draws of one generation, in TRL's own way (`score`): it does not outlive TRL's call.

    `state` and `log` are the trainer's. `wanted` is how many completions of all processes the draw
    under way wants; rows behind them only fill up. `scores` `[R, 1 + F]` are the rewards of all
    processes in the last draw, their sum and each, and `parts` `[R, P]` those that count, weighted.
    `truncated`, and `strategies` if they are compared, are those of this process's rows, `tokens`
    the completion tokens of all draws.
    """

    score: Callable[[Examples], Rollouts]
    shaping: Shaping
    shares: ProcessSlices
    ends: StopRule
    state: Any
    log: dict[str, list[float]]
    wanted: int | None = None
    scores: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    parts: torch.Tensor = field(default_factory=lambda: torch.empty(0, 0))
    truncated: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    strategies: torch.Tensor | None = None
    tokens: float = 0.0

    def groups(self, inputs: Examples, training: bool = True) -> Rollouts:
        """A completion of each of this process's `inputs`, whole groups, with its advantage.

        Without `training` it is TRL's advantage, which groups of any size have.
        """
        batch, own = self._scored(inputs), self.shares.own(len(inputs))
        if (made := cast(Any, self.shaping.advantage)) is not None and training:
            size, asked = self.shares.group, cast(tuple[Groups, ...], ())
            if self.shaping.asks_for_groups:
                names = tuple(map(problem_name, gather_object(inputs)[::size]))
                asked = (Groups(self.parts.view(len(names), size, -1), names),)
            values = made.advantages(self.scores[:, 0].view(-1, size), *asked)
            batch["advantages"] = values.flatten()[own]
        return batch

    def note_ends(self, completions: list[list[int]], own: list[list[int]] | None) -> None:
        """Put what `ends` says of this process's completions in the place of TRL's log of it.

        Where tools or a user wrote some of their tokens, `own` are masks of the policy's.
        """
        accelerator = self.shares.accelerator
        self.truncated = torch.tensor(self.ends.truncated(completions), device=accelerator.device)
        lengths = torch.tensor([sum(m) for m in own] if own else [len(c) for c in completions])
        cut = accelerator.gather(self.truncated)
        lengths = accelerator.gather(lengths.to(cut.device))
        ended = lengths[~cut].float() if not cut.all() else torch.zeros(1)
        self.log["completions/clipped_ratio"][-1] = cut.float().mean().item()
        for name, value in (("mean", ended.mean()), ("min", ended.min()), ("max", ended.max())):
            self.log[f"completions/{name}_terminated_length"][-1] = value.item()

    def further(self, asked: Examples, guided: bool) -> tuple[Rollouts, Examples]:
        """This process's part of completions of `asked`, any known prompts, and their examples.

        Of the rows of all processes, those behind `asked` only make the number what TRL can take:
        they are not drawn, count nowhere and have no mask. The log, whose means are those of the
        policy, goes without these completions; their advantages mean nothing.
        """
        missing = -len(asked) % lcm(self.shares.accelerator.num_processes, self.shares.group)
        own = self.shares.part([*asked, *asked[-1:] * missing])
        log, self.wanted = {key: list(values) for key, values in self.log.items()}, len(asked)
        batch = self._scored([{**one, "prompt": one[GUIDED]} for one in own] if guided else own)
        self.wanted = None
        self.log.clear()
        self.log.update(log, num_tokens=[float(self.state.num_input_tokens_seen)])
        return batch, own

    def count(self) -> None:
        """Log the tokens drawn so far; the log is in every checkpoint, so a resumed run goes on."""
        logged = [entry[DRAWN] for entry in self.state.log_history if DRAWN in entry]
        before = self.log[DRAWN] or logged or [0.0]  # not logged yet, or logged
        self.log[DRAWN] = [before[-1] + self.tokens]

    def _scored(self, inputs: Examples) -> Rollouts:
        batch = self.score(inputs)
        if self.wanted is not None:
            self._discount(batch, max(0, self.wanted - self.shares.first(len(inputs))))
        self.tokens += float(self.shares.tokens(batch))
        if self.shaping.mask_truncated:
            batch["completion_mask"] = batch["completion_mask"] * ~self.truncated[:, None]
            batch["num_items_in_batch"] = self.shares.tokens(batch)
            for name in batch.keys() & {REFERENCE, OLD}:  # 0 as TRL's, which it reads under it
                batch[name] = batch[name] * batch["completion_mask"]
        own = self.shares.own(len(inputs))
        batch["correct"], batch["reward"] = self.scores[own, 1], self.scores[own, 0]
        if self.strategies is not None:
            batch["strategy"] = self.strategies
        if self.shaping.asks_for_groups:
            batch[PARTS] = self.parts[own]
        return batch

    def _discount(self, batch: Rollouts, wanted: int) -> None:
        """Take the rows behind the first `wanted` out of the mask and of TRL's count of tokens."""
        masks = (batch["prompt_mask"], batch["completion_mask"])
        tokens = torch.stack([mask[wanted:].sum() for mask in masks]).sum()
        self.state.num_input_tokens_seen -= int(self.shares.accelerator.gather(tokens).sum())
        batch["completion_mask"][wanted:] = 0
