"""Where a completion that TRL generates ends, and whether anything ended it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from trl import GRPOTrainer


class EndedCompletions(GRPOTrainer):
    """GRPOTrainer whose completions also end behind `stop_texts`, whatever tokens they take."""

    _stop_texts: tuple[str, ...]

    def _ends_with_one_token(self, text: str) -> bool:
        """Whether `text` is a single token that generation already stops at."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return len(ids) == 1 and ids[0] in self.eos_token_ids

    def _stop_at_texts(self) -> None:
        """Have transformers look for the stop texts, for which it needs the tokenizer."""
        self.generation_config.stop_strings = list(self._stop_texts)
        self.generation_kwargs["stop_strings"] = list(self._stop_texts)
        policy = self.accelerator.unwrap_model(self.model)
        policy.generate = partial(policy.generate, tokenizer=self._tokenizer)

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        completions, *rest = super()._generate_single_turn(*args, **kwargs)
        padding = self._tokenizer.pad_token_id
        for ids in completions:  # what follows a stop text is padding, and no end-of-text token
            while len(ids) > 1 and ids[-1] == padding and ids[-2] == padding:
                ids.pop()
            if len(ids) > 1 and ids[-1] == padding and self._holds_stop(ids[:-1]):
                ids.pop()
        return completions, *rest

    def _holds_stop(self, ids: list[int]) -> bool:
        text = self._tokenizer.decode(ids[-64:])
        return any(stop in text for stop in self._stop_texts)

    def _truncated(self, batch: dict[str, Any]) -> torch.Tensor:
        """Which completions were cut off at the length limit, `[B]`."""
        lengths = batch["completion_mask"].sum(dim=1)
        last = batch["completion_ids"].gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        ends = torch.tensor(self.eos_token_ids, device=last.device)
        cut = (lengths >= self.max_completion_length) & ~torch.isin(last, ends)
        for row in cut.nonzero()[:, 0].tolist():
            cut[row] = not self._holds_stop(batch["completion_ids"][row, : lengths[row]].tolist())
        return cut
