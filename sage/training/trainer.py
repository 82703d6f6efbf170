"""TRL's GRPO with what this project adds, at small seams and without a copy of TRL's loss.

The loss is shaped where TRL hands over log-probs (`sage.training.anchoring`, and for single tokens
`sage.training.crediting`), rollouts where it hands on scored completions
(`sage.training.scoring`), of which a planner may draw more (`sage.training.planned`). They are
drawn by this project's samplers (`sage.training.drawing`) instead of TRL's generation, whose
completions would end where this project says (`sage.training.ends`).

In several processes each holds a slice of the completions of a generation. What is done does
not depend on how many there are: noise is named by a completion's place in the whole
generation, a planner sees the groups of all processes, and means over the
tokens of a micro-batch are taken over all processes that share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from accelerate.utils import set_seed
from transformers import PreTrainedModel
from trl import GRPOConfig
from trl.models.utils import prepare_fsdp
from trl.trainer.utils import add_fused_lm_head

from sage.training.answers import AnswerProbabilities
from sage.training.correction import CorrectedSampling, Correction
from sage.training.crediting import CreditedLoss
from sage.training.drawing import MakeDrawer
from sage.training.passes import PassSampler
from sage.training.planned import PlannedRollouts
from sage.training.remembering import RememberedChoices
from sage.training.shaping import Shaping
from sage.training.tally import GapTally
from sage.training.trimming import TrimmedPasses

__all__ = ["SageTrainer", "Shaping"]


class SageTrainer(
    CorrectedSampling,
    CreditedLoss,
    PlannedRollouts,
    AnswerProbabilities,
    RememberedChoices,
    TrimmedPasses,
):
    """TRL's GRPOTrainer with `shaping`; without any it is GRPOTrainer.

    It takes all arguments of GRPOTrainer: model, reward functions, `args` (GRPOConfig, vLLM's
    settings included), data sets, adapter. TRL's `beta` is 0 unless set, and a guide needs a KL
    term; for the paper's k3, set `use_bias_correction_kl=False` as well. Further arguments:

    - `shaping`: guide, estimator, advantage, credit rule, filter or planner
      (`sage.training.Shaping`).
    - `reference`: a model that the KL term refers to, instead of the policy at the start; TRL then
      loads none. It may have a shorter dtype than the policy.
    - `stop_texts`: a completion also ends once it holds one of them, whatever tokens they take.
    - `make_drawer`: what draws rollouts instead of TRL (`sage.training.transformers_rollouts`,
      `sage.training.vllm_rollouts`); `correction` then weights tokens by what the sampler's
      probabilities differ from the trainer's.
    - `trims`: log-probs are computed without padding, and equal TRL's but for rounding.
    - `micro_batches`: the number of parts that all processes together run a step in; by default
      each accumulates `gradient_accumulation_steps` of its own.

    Raises ValueError for a policy without a trainable parameter, for a guide or an estimator
    without a KL term, and for settings of TRL that go past the seam.
    """

    def __init__(
        self,
        *args: Any,
        shaping: Shaping | None = None,
        reference: PreTrainedModel | None = None,
        stop_texts: Sequence[str] = (),
        micro_batches: int | None = None,
        make_drawer: MakeDrawer | None = None,
        correction: Correction | None = None,
        trims: bool = False,
        **kwargs: Any,
    ) -> None:
        with _loading_no_reference((*args, *kwargs.values()) if reference is not None else ()):
            super().__init__(*args, **kwargs)
        arguments: Any = self.args
        self.beta = arguments.beta
        if self.use_vllm:  # which seeds torch with 0, whatever the seed of the run
            set_seed(self.args.seed, device_specific=True)
        self._shaping = shaping or Shaping()
        self._stop_texts = tuple(stop_texts)
        self._make_drawer, self._trims = make_drawer, trims
        self._correction = correction or Correction()
        self._gaps = GapTally(self.accelerator)
        by_trl = make_drawer is None and not self.use_vllm
        if by_trl and not all(map(self._ends_with_one_token, self._stop_texts)):
            self._stop_at_texts()
        if by_trl and self.is_fsdp_enabled:
            # Parts of the weights are with processes that draw more tokens.
            policy = self.accelerator.unwrap_model(self.model)
            policy.generate = partial(policy.generate, synced_gpus=True)
        if not any(weights.requires_grad for weights in self.model.parameters()):
            raise ValueError(
                "the policy has no trainable parameter, so nothing would be learnt; load its "
                "adapter with is_trainable=True, or give peft_config"
            )
        if self._shaping.shapes_kl:
            self._check_seam()
        if reference is not None and self.beta != 0.0:
            add_fused_lm_head(reference, temperature=self.temperature)
            self.ref_model = self._prepared_reference(reference)
        self._start_anchoring(micro_batches or self.args.gradient_accumulation_steps)
        if self._shaping.token_rule is not None:
            self._check_credit(self._shaping.token_rule)
        if self._shaping.planning is not None:
            self._check_planner(self._shaping.planning)

    def _check_seam(self) -> None:
        if self.beta == 0.0:
            raise ValueError(
                "a guide or an estimator needs a KL term, but its coefficient is 0; set `beta` in "
                "GRPOConfig"
            )
        if self.args.use_liger_kernel:
            raise ValueError(
                "liger's kernels replace the forward pass that hands log-probs and entropies to "
                "the guide; use_liger_kernel must be off"
            )
        replaced = self._shaping.replaces_k3 or self._shaping.kl_in_reward
        if replaced and getattr(self.args, "use_bias_correction_kl", False):
            raise ValueError(
                "use_bias_correction_kl (TRL's default) corrects k3 only, but another estimator is "
                "set; set use_bias_correction_kl=False in GRPOConfig"
            )

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> PassSampler:
        """TRL's, made to keep its order when a run is resumed after its first pass."""
        return PassSampler.like(super()._get_train_sampler(*args, **kwargs))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """A pass over the problems; none where a run is resumed that has taken its last step.

        transformers takes a step before it looks at their number. And where it skips the first
        batches of a pass it does not reach the sampler of several processes: it is told here.
        """
        if self.state.global_step < self.state.max_steps:
            kwargs["train_dataloader"].set_epoch(kwargs["epoch"])
            super()._run_epoch(*args, **kwargs)

    def _prepared_reference(self, reference: PreTrainedModel) -> Any:
        if self.is_fsdp_enabled:
            return prepare_fsdp(reference, self.accelerator)
        return self.accelerator.prepare_model(reference, evaluation_mode=True)


@contextmanager
def _loading_no_reference(arguments: Sequence[Any]) -> Iterator[None]:
    """Keep GRPOTrainer with these `arguments` from loading a reference, as it does for a KL term.

    It would be held beside the one that is given, also after that one has taken its place.
    """
    configs = [(each, each.beta) for each in arguments if isinstance(each, GRPOConfig)]
    for config, _ in configs:
        config.beta = 0.0
    try:
        yield
    finally:
        for config, beta in configs:
            config.beta = beta
