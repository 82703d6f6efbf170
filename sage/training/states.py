"""Hidden states of the last layer, taken from the forward pass of the loss as it runs."""

from __future__ import annotations

from typing import Any

import torch
from trl import GRPOTrainer


class HiddenStates(GRPOTrainer):
    """GRPOTrainer that collects the last layer's states of completion tokens in `_states`.

    Where it is None nothing is collected. Each pass appends `[rows, tokens, D]`, after the last
    norm, without gradient.
    """

    _states: list[torch.Tensor] | None = None

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        read = super()._get_per_token_logps_and_entropies
        if (states := self._states) is None:
            return read(model, input_ids, attention_mask, logits_to_keep, **kwargs)
        policy: Any = self.accelerator.unwrap_model(model)
        policy = policy.get_base_model() if hasattr(policy, "get_base_model") else policy

        def keep(module: Any, given: Any, output: Any) -> None:
            states.append(output.last_hidden_state[:, -logits_to_keep:].detach())

        hook = policy.base_model.register_forward_hook(keep)
        try:
            return read(model, input_ids, attention_mask, logits_to_keep, **kwargs)
        finally:
            hook.remove()
