"""Generations of rollouts that follow a planner: what is drawn further, and the batch of it all.

TRL hands over a generation's prompts, G times each, and takes back a batch of any size. What a
planner (`sage.method.planners`) asks for is drawn in TRL's own way, in rows that all processes
share evenly; all of them hold the rows of all, plan alike, and take their slice of what is chosen.

Ragged groups make the number of completions vary from step to step. It is filled up to a multiple
of the micro-batches of all processes with rows that carry no loss, and the loss is put right for
these (`sage.training.anchoring`): a mean over completions is one over real completions, each with
the same weight, whatever its group. A micro-batch so holds more completions where a planner draws
more, and needs the memory for them.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from trl.trainer.utils import pad, use_adapter

from sage.method.advantages import Centred, GroupNormalised
from sage.method.planners import Chosen, Draw, Drawn, Planner
from sage.training.rollouts import (
    Rollouts,
    filled,
    gathered,
    join,
    laid_out,
    rows_by_prompt,
    take_rows,
)
from sage.training.scoring import DRAWN, ScoredRollouts
from sage.training.shaping import Advantage

OLD = "old_per_token_logps"
GUIDED = "guided_prompt"
"""Column of the data set with the conversation that asks the problem and gives its hint."""


@dataclass
class Generation:
    """What is drawn so far: `examples` of the prompts, and the rows of all processes in `parts`.

    `prompts` `[R]` says which prompt each row is of, `further` whether it was drawn because of
    what was drawn before, `guided` whether under the prompt with guidance.
    """

    wanted: int
    rollouts: int
    examples: list[dict[str, Any]]
    parts: list[Rollouts]
    prompts: torch.Tensor
    further: torch.Tensor
    guided: torch.Tensor

    def add(self, rows: Rollouts, prompts: torch.Tensor, draw: Draw) -> None:
        """Add the rows of a draw."""
        self.parts.append(rows)
        self.prompts = torch.cat([self.prompts, prompts])
        more = torch.full_like(prompts, draw.more is not None, dtype=torch.bool)
        self.further = torch.cat([self.further, more])
        self.guided = torch.cat([self.guided, more & draw.guided])

    def of(self, key: str) -> torch.Tensor:
        """What `key` holds of each row, `[R]`."""
        return torch.cat([part[key] for part in self.parts])

    def drawn(self) -> Drawn:
        """What a planner is shown."""
        table = rows_by_prompt(self.prompts)
        return Drawn(
            present=table >= 0,
            correct=laid_out(self.of("correct"), table),
            rewards=laid_out(self.of("reward"), table),
            guided=self.guided[table.clamp(min=0)] & (table >= 0),
            prompts=self.wanted,
            rollouts=self.rollouts,
            draws=len(self.parts),
        )


class PlannedRollouts(ScoredRollouts):
    """Rollouts that follow the planner of `shaping`, if it has one."""

    ref_model: Any
    beta: float

    def _check_planner(self, planner: Planner) -> None:
        """Raise ValueError for what the planner cannot work with."""
        name, arguments = type(planner).__name__, self._arguments()
        columns = getattr(self.train_dataset, "column_names", None) or ()
        if getattr(planner, "needs_guidance", False) and GUIDED not in columns:
            raise ValueError(
                f"the planner {name} draws under a prompt with guidance, but the data set has no "
                f"column {GUIDED!r}, only {sorted(columns)}; add it, or choose another planner"
            )
        if getattr(planner, "ragged", True):
            if self.use_vllm and arguments.vllm_mode == "server":
                raise ValueError(
                    f"the planner {name} draws unequal numbers of completions, but a vLLM server "
                    "is asked for G of each prompt; set vllm_mode to 'colocate'"
                )
            if self._shaping.advantage is None and arguments.scale_rewards == "batch":
                raise ValueError(
                    f"the planner {name} needs advantages of single groups; set scale_rewards to "
                    "'group' or 'none', not 'batch'"
                )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        training, planner = self.model_wrapped.training, self._shaping.planning
        if planner is not None and training:
            batch = self._follow(planner, inputs)
        else:
            batch = self._scored(inputs)
            zeros = self.accelerator.gather((batch["advantages"] == 0).float().mean()).mean()
            self._log("zero_advantages", zeros)
            # A completion's place in the generation; on the CPU, where its noise is drawn.
            size = int(self.num_generations or 1)
            batch["rollout"] = torch.arange(len(inputs)) + self._first_row(len(inputs))
            batch["group"] = batch["rollout"] // size
            batch["group_size"] = torch.full_like(batch["group"], size)
        if training:
            # The log is in every checkpoint, so a resumed run goes on counting.
            logged = [entry[DRAWN] for entry in self.state.log_history if DRAWN in entry]
            before = self._metrics["train"][DRAWN] or logged or [0.0]  # not logged yet, or logged
            self._metrics["train"][DRAWN] = [before[-1] + self._drawn_tokens]
        self._drawn_tokens = 0.0
        return batch

    def _arguments(self) -> Any:
        """TRL's settings, which its trainer types as those of any trainer."""
        return self.args

    def _log(self, name: str, value: Any) -> None:
        """Add a number to what is logged of the step."""
        if name == "zero_advantages" and self._shaping.token_rule is not None:
            return  # the loss gets other advantages
        mode = "train" if self.model_wrapped.training else "eval"
        self._metrics[mode][name].append(float(value))

    def _follow(self, planner: Planner, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """A generation of `inputs`, this process's rows, drawn further as the planner says."""
        rollouts = int(self.num_generations or 1)
        examples = gather_object(inputs)[::rollouts]
        rows = self._everyones(self._scored(inputs))
        device = rows["advantages"].device
        prompts = torch.arange(len(examples), device=device).repeat_interleave(rollouts)
        none = torch.zeros_like(prompts, dtype=torch.bool)
        generation = Generation(len(examples), rollouts, examples, [rows], prompts, none, none)
        while (draw := planner.further(generation.drawn())) is not None:
            if draw.more is None:
                self._draw_others(generation, draw)
            elif draw.more.any():
                self._draw_more(generation, draw)
            else:
                break
        chosen = planner.chosen(generation.drawn())
        if self._shaping.filter is not None:
            self._log("refills", len(generation.parts) - 1)
        else:
            self._log("extra_rollouts", generation.further.sum())
            if generation.guided.any():
                right = (generation.of("correct")[generation.guided] > 0).float().mean()
                self._log("guided_correct", right)
        return self._chosen_batch(generation, chosen)

    def _draw_others(self, generation: Generation, draw: Draw) -> None:
        """G completions of each of further prompts, taken at random."""
        first = len(generation.examples)
        examples = self._other_prompts(draw.prompts, len(generation.parts))
        generation.examples.extend(examples)
        device = generation.prompts.device
        prompts = torch.arange(first, first + len(examples), device=device)
        prompts = prompts.repeat_interleave(generation.rollouts)
        asked = [generation.examples[i] for i in prompts.tolist()]
        if len(asked) % (processes := self.accelerator.num_processes):
            raise ValueError(
                f"{len(asked)} completions of other prompts cannot be shared evenly by {processes} "
                "processes; a planner must ask for another number of prompts"
            )
        generation.add(self._everyones(self._scored(self._share(asked))), prompts, draw)

    def _draw_more(self, generation: Generation, draw: Draw) -> None:
        """Further completions of known prompts.

        They were chosen for what was drawn before, so the log, whose means are those of the
        policy, goes without them.
        """
        assert draw.more is not None
        known = torch.arange(len(draw.more), device=draw.more.device)
        prompts = known.repeat_interleave(draw.more)
        examples = [generation.examples[i] for i in prompts.tolist()]
        asked = [{**e, "prompt": e[GUIDED]} for e in examples] if draw.guided else examples
        unit = math.lcm(self.accelerator.num_processes, generation.rollouts)
        missing = -len(asked) % unit
        log = {key: list(values) for key, values in self._metrics["train"].items()}
        batch = self._scored_rows(self._share([*asked, *asked[-1:] * missing]), len(asked))
        self._metrics["train"] = defaultdict(list, log)
        self._metrics["train"]["num_tokens"] = [float(self.state.num_input_tokens_seen)]
        if draw.guided:
            self._put_under_own_prompts(batch, self._share([*examples, *examples[-1:] * missing]))
        rows = take_rows(self._everyones(batch), slice(len(asked)))
        generation.add(rows, prompts, draw)

    @torch.no_grad()
    def _put_under_own_prompts(self, batch: dict[str, Any], examples: list[dict[str, Any]]) -> None:
        """Give guided completions their prompts without guidance, and reference log-probs for it.

        The old log-probs stay those of the policy that drew them: under guidance.
        """
        if OLD not in batch:
            batch[OLD] = self._log_probs_of(self.model, batch)
        prompts = [
            torch.tensor(i) for i in self._tokenize_prompts([e["prompt"] for e in examples])[0]
        ]
        device = batch["prompt_ids"].device
        sides: dict[str, Any] = {
            "padding_side": "left",
            "pad_to_multiple_of": self.pad_to_multiple_of,
        }
        batch["prompt_ids"] = pad(prompts, padding_value=self._tokenizer.pad_token_id, **sides).to(
            device
        )
        batch["prompt_mask"] = pad([torch.ones_like(i) for i in prompts], **sides).to(device)
        if "ref_per_token_logps" not in batch:
            return
        if self.ref_model is not None:
            batch["ref_per_token_logps"] = self._log_probs_of(self.ref_model, batch)
            return
        model: Any = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            batch["ref_per_token_logps"] = self._log_probs_of(self.model, batch)

    def _log_probs_of(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        """Log-probs of the completions in `batch` under `model`, `[B, T]`."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        # Rows that only fill up have no completion in their mask.
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        rows = int(self.args.per_device_train_batch_size)
        length = batch["completion_ids"].shape[1]
        log_probs: torch.Tensor = self._get_per_token_logps_and_entropies(
            model, ids, attention, length, batch_size=rows
        )[0]
        return log_probs

    def _chosen_batch(self, generation: Generation, chosen: Chosen) -> dict[str, Any]:
        """This process's share of what is chosen, filled up to what all processes can share."""
        table = rows_by_prompt(generation.prompts)
        table = table.masked_fill(~chosen.rows, -1)[chosen.prompts]
        taken, counts = table[table >= 0], (table >= 0).sum(dim=1)
        batch = take_rows(self._joined(generation.parts), taken)
        if chosen.loss is not None:
            with_loss = chosen.loss[generation.prompts[taken]]
            batch["completion_mask"] = batch["completion_mask"] * with_loss[:, None]
        if generation.further[taken].any() or (counts != generation.rollouts).any():
            by_trl: Advantage = (
                Centred() if self._arguments().scale_rewards == "none" else GroupNormalised()
            )
            advantage = self._shaping.advantage or by_trl
            values = advantage.advantages(laid_out(generation.of("reward"), table))
            batch["advantages"] = values[table >= 0]
        counts = counts.cpu()
        batch["group"] = torch.arange(len(counts)).repeat_interleave(counts)
        batch["group_size"] = counts.repeat_interleave(counts)
        self._log("zero_advantages", (batch["advantages"] == 0).float().mean())
        real = len(taken)
        parts = int(self._arguments().steps_per_generation or 1) * self.accelerator.num_processes
        batch = filled(batch, -(-real // parts) * parts)
        total = len(batch["advantages"])
        own = self._own(total // self.accelerator.num_processes)
        result = take_rows(batch, own)
        result["rollout"] = torch.arange(total)[own]
        result["num_items_in_batch"] = self._tokens_of(result)
        if total > real:
            result["real_share"] = torch.tensor(real / total, device=result["advantages"].device)
        return result

    def _joined(self, parts: list[Rollouts]) -> Rollouts:
        """All rows; old log-probs of the policy as it is now are NaN until the loss has them."""
        if any(OLD in part for part in parts):
            parts = [part if OLD in part else {**part, OLD: _unknown(part)} for part in parts]
        return join(parts, self._padding())

    def _everyones(self, batch: dict[str, Any]) -> Rollouts:
        """The rows of all processes."""
        return gathered(batch, self.accelerator, self._padding())

    def _padding(self) -> dict[str, float]:
        return dict.fromkeys(("prompt_ids", "completion_ids"), self._tokenizer.pad_token_id)

    def _share(self, rows: list[Any]) -> list[Any]:
        """This process's part of the rows of all."""
        return rows[self._own(len(rows) // self.accelerator.num_processes)]

    def _other_prompts(self, count: int, draw: int) -> list[dict[str, Any]]:
        """`count` examples of the data set taken at random."""
        name = f"{self.args.seed}|refill|{self.state.global_step}|{draw}"
        digest = hashlib.sha256(name.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        dataset: Any = self.train_dataset
        indices = torch.randperm(len(dataset), generator=generator)[:count].tolist()
        return [dataset[i] for i in indices]


def _unknown(part: Rollouts) -> torch.Tensor:
    """NaN for each token of the completions, `[B, T]`."""
    return torch.full_like(part["completion_ids"], torch.nan, dtype=torch.float)
