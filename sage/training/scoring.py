"""Scored rollouts as TRL hands them on: other advantages, masks and dynamic sampling.

In several processes each holds a slice of the completions of a generation. What is done here
does not depend on how many there are: dynamic sampling chooses from the groups of all
processes, and a completion carries its place in the whole generation.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from sage.training.drawing import DrawnRollouts
from sage.training.rollouts import gathered, join, take_groups
from sage.training.shaping import Keeps, Shaping, loss_mask

DRAWN = "drawn_tokens"
"""Key of TRL's log: completion tokens drawn so far, those of dropped groups among them."""


class ScoredRollouts(DrawnRollouts):
    """Rollouts with the advantages, masks and refills of `shaping`."""

    _shaping: Shaping
    _rewards = torch.empty(0)
    _drawn_tokens = 0.0

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._rewards = super()._calculate_rewards(*args, **kwargs)
        return self._rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = self._scored(inputs)
        if self._shaping.filter is not None and self.model_wrapped.training:
            batch = self._refilled(batch, len(inputs), self._shaping.filter.keep)
        if self._shaping.token_rule is None:  # else the loss gets other advantages
            zeros = self.accelerator.gather((batch["advantages"] == 0).float().mean())
            mode = "train" if self.model_wrapped.training else "eval"
            self._metrics[mode]["zero_advantages"].append(zeros.mean().item())
        # A completion's place in the generation; on the CPU, where its noise is drawn.
        batch["rollout"] = torch.arange(len(inputs)) + self._first_row(len(inputs))
        batch["group"] = batch["rollout"] // int(self.num_generations or 1)
        if self.model_wrapped.training:
            # The log is in every checkpoint, so a resumed run goes on counting.
            logged = [entry[DRAWN] for entry in self.state.log_history if DRAWN in entry]
            self._metrics["train"][DRAWN] = [(logged or [0.0])[-1] + self._drawn_tokens]
        self._drawn_tokens = 0.0
        return batch

    def _scored(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        truncated = self._truncated(batch)
        self._drawn_tokens += float(self._tokens_of(batch))
        mode = "train" if self.model_wrapped.training else "eval"
        share = self.accelerator.gather(truncated).float().mean().item()
        self._metrics[mode]["completions/clipped_ratio"][-1] = share
        if self._shaping.mask_truncated:
            batch["completion_mask"] = batch["completion_mask"] * ~truncated[:, None]
            batch["num_items_in_batch"] = self._tokens_of(batch)
        rewards = (self._rewards * self.reward_weights.to(self._rewards)).nansum(dim=1)
        own = slice(first := self._first_row(len(inputs)), first + len(inputs))
        batch["correct"], batch["reward"] = self._rewards[own, 0], rewards[own]
        if self._shaping.advantage is not None:
            groups = rewards.view(-1, int(self.num_generations or 1))
            batch["advantages"] = self._shaping.advantage.advantages(groups).flatten()[own]
        return batch

    def _refilled(self, batch: dict[str, Any], rows: int, keeps: Keeps) -> dict[str, Any]:
        """Dynamic sampling: groups that `keeps` does not name give way to those of other prompts.

        All processes hold the groups of all, choose alike, and take their own `rows` of what is
        chosen. What is still missing after `max_refills` draws is filled with groups that were
        not to be kept.
        """
        rollouts = int(self.num_generations or 1)
        padding = dict.fromkeys(("prompt_ids", "completion_ids"), self._tokenizer.pad_token_id)
        groups = rows * self.accelerator.num_processes // rollouts
        good: list[dict[str, Any]] = []
        spare: list[dict[str, Any]] = []
        refills = 0
        while True:
            whole = gathered(batch, self.accelerator, padding)
            kept = keeps(*(whole[key].view(-1, rollouts) for key in ("correct", "reward")))
            for part, chosen in ((good, kept), (spare, ~kept)):
                part.append(take_groups(whole, chosen.nonzero()[:, 0], rollouts))
            found = sum(len(part["advantages"]) for part in good) // rollouts
            if found >= groups or refills == self._shaping.max_refills:
                break
            refills += 1
            batch = self._scored(self._other_prompts(groups, refills, rows))
        if getattr(self._shaping.filter, "drops", False):
            for left in spare:
                left["completion_mask"] = torch.zeros_like(left["completion_mask"])
        joined = join([*good, *spare], padding)
        first = self._first_row(rows)
        result = {key: value[first : first + rows] for key, value in joined.items()}
        result["num_items_in_batch"] = self._tokens_of(result)
        self._metrics["train"]["refills"].append(float(refills))
        return result

    def _tokens_of(self, batch: dict[str, Any]) -> torch.Tensor:
        """Completion tokens with loss, over all processes."""
        return self.accelerator.gather(loss_mask(batch).sum()).sum()

    def _other_prompts(self, groups: int, refill: int, rows: int) -> list[dict[str, Any]]:
        """This process's rows of `groups` prompts drawn at random, each repeated for its group."""
        name = f"{self.args.seed}|refill|{self.state.global_step}|{refill}"
        digest = hashlib.sha256(name.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        dataset: Any = self.train_dataset
        indices = torch.randperm(len(dataset), generator=generator)[:groups].tolist()
        repeated = [i for i in indices for _ in range(int(self.num_generations or 1))]
        first = self._first_row(rows)
        return [dataset[i] for i in repeated[first : first + rows]]
