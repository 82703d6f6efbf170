"""The policy's probability of the gold answer, for rewards without a verifier.

The gold answer takes the place of the completion's own: after its reasoning, up to and with its
last answer tag; and once more after no reasoning. All completions are read in batched forward
passes without gradient, before they are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from sage.problems.record import readable_gold
from sage.prompting import SOLUTION_OPEN, completion
from sage.training.rewards import READS_ANSWER

Ids = list[int]


class AnswerProbabilities(GRPOTrainer):
    """GRPOTrainer that hands `answer_probability` and `prior_probability` to its rewards.

    It measures them only if a reward asks for them, by the attribute READS_ANSWER.
    """

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        if any(getattr(reward, READS_ANSWER, False) for reward in self.reward_funcs):
            after, before = self._answer_probabilities(inputs, prompts, completion_ids_list)
            inputs = [
                {**one, "answer_probability": high, "prior_probability": low}
                for one, high, low in zip(inputs, after, before, strict=True)
            ]
        rewards: torch.Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list
        )
        return rewards

    def _answer_probabilities(
        self, inputs: Sequence[Any], prompts: Sequence[Any], written: Sequence[Ids]
    ) -> tuple[list[float], list[float]]:
        tokenizer: Any = self._tokenizer
        plain = plain_ids(tokenizer, completion("", "").partition(SOLUTION_OPEN)[0] + SOLUTION_OPEN)
        # Several processes must run the same number of passes, whatever was written.
        alone = self.accelerator.num_processes == 1
        texts: list[tuple[Ids, Ids, Ids]] = []
        priors: dict[Any, int] = {}
        places: list[tuple[int | None, int]] = []
        asked: Ids = []
        asked_for: Any = None
        for row, (one, prompt, ids) in enumerate(zip(inputs, prompts, written, strict=True)):
            if prompt != asked_for:  # completions of one prompt follow each other
                asked, asked_for = self._prompt_ids(prompt), prompt
            gold = readable_gold(str(one["answer"]), one.get("kind", "math"))
            answer = plain_ids(tokenizer, gold)
            reasoning = ids_before_answer(tokenizer, list(ids))
            key = (tuple(asked), gold, None if alone else row)
            if key not in priors:
                priors[key] = len(texts)
                texts.append((asked, plain, answer))
            if reasoning is not None or not alone:
                texts.append((asked, reasoning or plain, answer))
            places.append((None if reasoning is None else len(texts) - 1, priors[key]))
        read = self._mean_probabilities(texts)
        after = [0.0 if place is None else read[place] for place, _ in places]
        return after, [read[place] for _, place in places]

    def _prompt_ids(self, prompt: Any) -> Ids:
        tokenizer: Any = self._tokenizer
        if isinstance(prompt, str):
            return plain_ids(tokenizer, prompt)
        encoded = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(encoded["input_ids"])

    def _mean_probabilities(self, texts: Sequence[tuple[Ids, Ids, Ids]]) -> list[float]:
        """For each (prompt, context, answer) the mean probability of the answer's tokens."""
        fill, device = self._tokenizer.pad_token_id, self.accelerator.device
        longest = max(len(asked) for asked, _, _ in texts)
        width = max(len(context) + len(answer) for _, context, answer in texts)
        ids, mask, answers = [], [], []
        for asked, context, answer in texts:
            own = torch.tensor([*asked, *context, *answer], device=device)
            end = len(context) + len(answer)
            sides = (longest - len(asked), width - end)
            ids.append(pad(own, sides, value=fill))
            mask.append(pad(torch.ones_like(own), sides))
            place = torch.arange(width, device=device)
            answers.append((place >= len(context)) & (place < end))
        model: Any = self.model
        checkpointing: Any = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(model, checkpointing):
            log_probs = self._get_per_token_logps_and_entropies(
                model,
                torch.stack(ids),
                torch.stack(mask),
                width,
                batch_size=self.args.per_device_train_batch_size,
            )[0]
        inside = torch.stack(answers)
        means = (log_probs.float().exp() * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
        return list(means.tolist())


def plain_ids(tokenizer: Any, text: str) -> Ids:
    """Token ids of `text` alone, without special tokens around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def ids_before_answer(tokenizer: Any, written: Ids) -> Ids | None:
    """The tokens of a completion up to and with its last answer tag; None if it has none.

    They are its own tokens, but where one goes on behind the tag: of that, the part up to the tag
    is tokenised again.
    """

    def text_of(count: int) -> str:
        text: str = tokenizer.decode(written[:count], clean_up_tokenization_spaces=False)
        return text

    whole = text_of(len(written))
    start = whole.rfind(SOLUTION_OPEN)
    if start < 0:
        return None
    end, low, high = start + len(SOLUTION_OPEN), 0, len(written)
    while low < high:  # the most tokens whose text ends at the tag's end or before
        middle = (low + high + 1) // 2
        if len(text_of(middle)) <= end:
            low = middle
        else:
            high = middle - 1
    return written[:low] + plain_ids(tokenizer, whole[len(text_of(low)) : end])
