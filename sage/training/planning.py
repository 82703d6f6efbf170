"""Generations of rollouts that follow a planner, and the batches that they are made of.

TRL hands over a generation's prompts, G times each, and takes back a batch of any size. What a
planner (`sage.method.planners`) asks for is drawn in TRL's own way, in rows that all processes
share evenly; all of them hold the rows of all, plan alike, and take their slice of what is chosen.

Ragged groups make the number of completions vary from step to step. It is filled up to a multiple
of the micro-batches of all processes with rows that carry no loss, and the loss is put right for
these: a mean over completions is one over real completions, whatever their groups. A micro-batch so
holds more completions where a planner draws more, and needs the memory for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl.trainer.utils import pad

from sage.method.advantages import Centred, GroupNormalised, Groups
from sage.method.planners import Chosen, Draw, Drawn, Planner
from sage.training.drawing import (
    OLD,
    PARTS,
    Examples,
    ProcessSlices,
    Rollouts,
    problem_name,
    take_rows,
)
from sage.training.shaping import Shaping


class Generation:
    """What is drawn so far: `examples` of the prompts, and the rows of all processes in `parts`.

    The first `rows` are `rollouts` completions of each of the `examples`. `prompts` `[R]` says
    which prompt each row is of, `further` whether it was drawn because of what was drawn before,
    `guided` whether under the prompt with guidance.
    """

    def __init__(self, examples: Examples, rows: Rollouts, rollouts: int) -> None:
        self.wanted, self.rollouts, self.examples = len(examples), rollouts, examples
        self.parts = [rows]
        self.prompts = torch.arange(len(examples), device=rows["advantages"].device)
        self.prompts = self.prompts.repeat_interleave(rollouts)
        self.further = self.guided = torch.zeros_like(self.prompts, dtype=torch.bool)

    def add(self, rows: Rollouts, prompts: torch.Tensor, draw: Draw) -> None:
        """Add the rows of a draw."""
        self.parts.append(rows)
        self.prompts = torch.cat([self.prompts, prompts])
        more = torch.full_like(prompts, draw.more is not None, dtype=torch.bool)
        self.further = torch.cat([self.further, more])
        self.guided = torch.cat([self.guided, more & draw.guided])

    def column(self, key: str) -> torch.Tensor:
        """What `key` holds of each row, `[R]`."""
        return torch.cat([part[key] for part in self.parts])

    def counts(self, filtered: bool) -> dict[str, float]:
        """What is logged of further draws; with a filter these are refills."""
        if filtered:
            return {"refills": float(len(self.parts) - 1)}
        counts = {"extra_rollouts": float(self.further.sum())}
        if self.guided.any():
            correct = self.column("correct")[self.guided]
            counts["guided_correct"] = float((correct[~correct.isnan()] > 0).float().mean())
        return counts

    def problems(self) -> tuple[str, ...]:
        """A name for the problem of each prompt."""
        return tuple(map(problem_name, self.examples))

    def drawn(self) -> Drawn:
        """What a planner is shown."""
        table = rows_by_prompt(self.prompts)
        return Drawn(
            present=table >= 0,
            correct=laid_out(self.column("correct"), table),
            rewards=laid_out(self.column("reward"), table),
            guided=self.guided[table.clamp(min=0)] & (table >= 0),
            prompts=self.wanted,
            rollouts=self.rollouts,
            draws=len(self.parts),
            problems=self.problems(),
        )


def follow(
    planner: Planner,
    generation: Generation,
    processes: int,
    others: Callable[[int, int], Examples],
    draw: Callable[[Examples, Draw], Rollouts],
) -> Chosen:
    """Draw further as the planner says, and return what it chooses.

    `others(count, number)` gives prompts for the draw of that number; `draw` the completions of
    all processes. Raises ValueError for prompts that processes cannot share.
    """
    while (asked := planner.further(generation.drawn())) is not None:
        if asked.more is None:  # G completions of each of further prompts
            first = len(generation.examples)
            generation.examples.extend(others(asked.prompts, len(generation.parts)))
            device = generation.prompts.device
            prompts = torch.arange(first, len(generation.examples), device=device)
            prompts = prompts.repeat_interleave(generation.rollouts)
            if len(prompts) % processes:
                raise ValueError(
                    f"{len(prompts)} completions of other prompts cannot be shared evenly by "
                    f"{processes} processes; a planner must ask for another number of prompts"
                )
        elif asked.more.any():  # further completions of known prompts
            known = torch.arange(len(asked.more), device=asked.more.device)
            prompts = known.repeat_interleave(asked.more)
        else:
            break
        rows = draw([generation.examples[i] for i in prompts.tolist()], asked)
        generation.add(rows, prompts, asked)
    return planner.chosen(generation.drawn())


def chosen_rows(
    generation: Generation,
    chosen: Chosen,
    shaping: Shaping,
    scaled: bool,
    shares: ProcessSlices,
) -> Rollouts:
    """The completions that are trained on, of all processes, with the advantages of their groups.

    The advantage of `shaping` sees the groups that are trained on, whichever draws they come from.
    Without one they are TRL's, `scaled` by the group's deviation or not, and stay where every group
    is as it was drawn. Old log-probs that TRL leaves out are NaN until the loss has them.
    """
    parts = generation.parts
    if any(OLD in part for part in parts):
        parts = [{OLD: (part["completion_ids"] * torch.nan).float()} | part for part in parts]
    table = rows_by_prompt(generation.prompts)
    table = table.masked_fill(~chosen.rows, -1)
    table = table if chosen.prompts is None else table[chosen.prompts]
    taken, counts = table[table >= 0], (table >= 0).sum(dim=1)
    batch = take_rows(shares.join(parts), taken)
    grown = generation.further[taken].any() or (counts != generation.rollouts).any()
    if shaping.advantage is not None or grown:
        made: Any = shaping.advantage or (GroupNormalised() if scaled else Centred())
        asked: tuple[Groups, ...] = ()
        if shaping.asks_for_groups:
            parts_of = [laid_out(part, table) for part in generation.column(PARTS).T]
            names = generation.problems()
            order = range(len(names)) if chosen.prompts is None else chosen.prompts.tolist()
            asked = (Groups(torch.stack(parts_of, dim=-1), tuple(names[i] for i in order)),)
        values = made.advantages(laid_out(generation.column("reward"), table), *asked)
        batch["advantages"] = values[table >= 0]
    if chosen.loss is not None:
        with_loss = chosen.loss[generation.prompts[taken]]
        batch["completion_mask"] = batch["completion_mask"] * with_loss[:, None]
        batch["advantages"] = batch["advantages"] * with_loss
    counts = counts.cpu()
    batch["group"] = torch.arange(len(counts)).repeat_interleave(counts)
    batch["group_size"] = counts.repeat_interleave(counts)
    return batch


def in_groups(batch: Rollouts, shares: ProcessSlices) -> Rollouts:
    """`batch`, this process's whole groups, with their places among those of all processes."""
    rows = len(batch["advantages"])
    places = torch.arange(rows) + shares.first(rows)  # on the CPU, where noise is drawn
    sizes = torch.full_like(places, shares.group)
    return batch | {"rollout": places, "group": places // shares.group, "group_size": sizes}


def shared_out(batch: Rollouts, parts: int, shares: ProcessSlices) -> Rollouts:
    """This process's share of `batch`, filled up to what all processes can share.

    `parts` is the number of micro-batches of a generation in each process. `rollout` is a
    completion's place in the whole generation; on the CPU, where its noise is drawn.
    """
    processes, real = shares.accelerator.num_processes, len(batch["advantages"])
    batch = filled(batch, -(-real // (parts * processes)) * parts * processes)
    total = len(batch["advantages"])
    own = shares.own(total // processes)
    result = take_rows(batch, own)
    result["rollout"] = torch.arange(total)[own]
    result["num_items_in_batch"] = shares.tokens(result)
    if total > real:
        result["real_share"] = torch.tensor(real / total, device=result["advantages"].device)
    return result


def with_prompts(
    batch: Rollouts, prompts: Sequence[Sequence[int]], padding: int, multiple: int | None
) -> Rollouts:
    """The completions of `batch` under other prompts, given as token ids."""
    ids = [torch.tensor(each) for each in prompts]
    device = batch["prompt_ids"].device
    sides: dict[str, Any] = {"padding_side": "left", "pad_to_multiple_of": multiple}
    mask = pad([torch.ones_like(each) for each in ids], **sides)
    return batch | {
        "prompt_ids": pad(ids, padding_value=padding, **sides).to(device),
        "prompt_mask": mask.to(device),
    }


def rows_by_prompt(prompts: torch.Tensor) -> torch.Tensor:
    """Where the rows of each prompt are, `[N, M]`, in their order, -1 behind the last.

    `prompts` `[R]` names the prompt of each row, from 0 to N - 1.
    """
    rows = prompts.argsort(stable=True).split(torch.bincount(prompts).tolist())
    return pad_sequence(list(rows), batch_first=True, padding_value=-1)


def laid_out(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """`values` `[R]` of rows in the shape of `table` (`rows_by_prompt`), NaN where it has none."""
    return values[table.clamp(min=0)].masked_fill(table < 0, torch.nan)


def filled(batch: Mapping[str, Any], rows: int) -> Rollouts:
    """The batch with rows at its end that carry no loss, up to `rows`.

    They repeat the first row, without a token in the mask, with advantage 0, and in no group.
    """
    missing = rows - len(batch["advantages"])
    if not missing:
        return dict(batch)
    result = {
        key: torch.cat([value, value[:1].expand(missing, *value.shape[1:])])
        for key, value in batch.items()
    }
    for key, value in (("completion_mask", 0), ("advantages", 0.0), ("group", -1)):
        result[key][-missing:] = value
    return result
