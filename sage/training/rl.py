"""Reinforcement learning with verifiable rewards: one method, one seed.

Translates a study's settings into TRL's, trains from the SFT checkpoint, and leaves a policy and a
history row per optimizer step. The reference of the KL term is the parent checkpoint: the same
model with the fresh adapter switched off, or a frozen copy of it. In several processes
(`sage.training.processes`) each runs an equal share of every micro-batch, or of the micro-batches
of every step; the first writes.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from datasets import Dataset
from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig

from sage.method.learned_guide import LEARNED
from sage.policies import load_model, load_tokenizer
from sage.problems.record import Problem
from sage.prompting import messages, prompt_ids, with_hint
from sage.runtime.devices import SHARE_OF_VLLM
from sage.runtime.files import atomic_directory, write_json_atomic
from sage.runtime.manifest import Manifest
from sage.runtime.tracking import reporting
from sage.study import RL, Algorithm
from sage.study.algorithms import needs_hints, needs_strategies
from sage.tasks import Grader, own_kinds, task_files
from sage.training.adapters import DTYPES, OPTIMIZERS, lora_config
from sage.training.checkpoints import KEPT, Sealing, claim, sources
from sage.training.credit import Correction
from sage.training.drawers import drawer_for
from sage.training.drawing import GUIDED
from sage.training.history import history_rows, write_history
from sage.training.processes import allow_numbered_cpus, rank, world_size
from sage.training.rewards import SOURCE, Reward, graded
from sage.training.shaping import Shaping
from sage.training.signs import findings
from sage.training.trainer import SageTrainer
from sage.training.watching import Watching

# What TRL computes itself.
OF_TRL = {"estimator": ("k3", "k3_corrected"), "advantage": ("group", "centred")}

NO_CLIP = 1e9
"""A clip so wide that no probability ratio reaches it, for methods with `clip_low: null`."""

SNAPSHOTS = "snapshots"

AnyTrainer = TypeVar("AnyTrainer", bound=SageTrainer)
AnyModel = TypeVar("AnyModel", bound=torch.nn.Module)


def train_rl(
    parent: Path,
    problems: Sequence[Problem],
    settings: RL,
    algorithm: Algorithm,
    seed: int,
    device: str,
    scratch: Path,
    output: Path,
    manifest: Manifest,
    reference: Path | None = None,
    snapshots: int = 0,
) -> None:
    """Train `algorithm` from the checkpoint `parent`, in this process or in all of its world.

    The KL term refers to `parent`, or to the checkpoint `reference` (fidelity `released`). Writes
    the adapter (or the full checkpoint), `history.jsonl`, `manifest.json` and, of a guide that
    learns, `guide.json` into the folder `output`, and the policy at `snapshots` evenly spaced steps
    into `snapshots/step{n}` there. A killed run goes on from its checkpoints in `scratch`, which is
    removed at the end. Raises ValueError for fewer problems than a generation takes, a step that
    cannot be divided among the processes, and vLLM without a GPU.
    """
    needed = settings.prompts_per_step * settings.steps_per_generation
    if len(problems) < needed:
        raise ValueError(
            f"{len(problems)} problems, but a generation takes {needed} (prompts_per_step x "
            "steps_per_generation); lower these or name a larger problem set"
        )
    if settings.engine == "vllm" and settings.lora is None and device == "cpu":
        raise ValueError(
            "rl.engine: vllm with lora: null needs a GPU: on a CPU vLLM packs its weights when it "
            "loads them, and the policy's new ones cannot take their place; use engine: "
            "transformers, or train an adapter"
        )
    processes = world_size()
    tokenizer = load_tokenizer(parent)
    longest = longest_prompt(tokenizer, problems, algorithm)
    config = grpo_config(settings, algorithm, seed, device, scratch, processes, longest)
    if processes > 1:
        allow_numbered_cpus()
        manifest = replace(manifest, settings={**manifest.settings, "processes": processes})
    if rank() == 0:
        own = task_files(own_kinds(problems))
        made_from = sources(parent, problems, algorithm, reference, own)
        claim(scratch, [manifest.settings, seed, made_from])
    config.distributed_state.wait_for_everyone()
    trainer = build_trainer(
        SageTrainer, parent, problems, settings, algorithm, config, Grader(), reference
    )
    if snapshots:
        trainer.add_callback(Snapshots(trainer, snapshots, scratch / SNAPSHOTS))
    trainer.add_callback(Sealing())
    trainer.add_callback(Watching(settings.watch, scratch))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(scratch)))
    weights, log = whole_weights(trainer), trainer.state.log_history
    if rank() == 0:
        with atomic_directory(output) as folder:
            trainer.model.save_pretrained(folder, state_dict=weights, safe_serialization=True)
            write_history(log, folder / "history.jsonl")
            if (learned := getattr(trainer.shaping.guide, "learned", None)) is not None:
                write_json_atomic(folder / LEARNED, learned())
            if snapshots:
                shutil.copytree(scratch / SNAPSHOTS, folder / SNAPSHOTS)
            manifest.write(
                folder / "manifest.json",
                int(trainer.state.num_input_tokens_seen),
                watch=settings.watch.model_dump(),
                signs=[sign.plain() for sign in findings(history_rows(log), settings.watch)],
            )
        shutil.rmtree(scratch, ignore_errors=True)


def build_trainer(
    kind: type[AnyTrainer],
    parent: Path,
    problems: Sequence[Problem],
    settings: RL,
    algorithm: Algorithm,
    config: GRPOConfig,
    grader: Grader,
    reference: Path | None = None,
) -> AnyTrainer:
    """A trainer of `algorithm` from the checkpoint `parent`; `config` is that of `grpo_config`."""
    model = load_model(parent, weights_dtype(settings))
    sharded = shards_weights(settings, world_size())
    tokenizer = load_tokenizer(parent)
    longest = longest_prompt(tokenizer, problems, algorithm)
    make_drawer = drawer_for(settings, model, parent, sharded, longest)
    held = load_model(reference, DTYPES[settings.precision]) if reference else None
    if held is None and kl_coefficient(settings, algorithm):
        if settings.lora is None:  # the policy's own weights change
            held = load_model(parent, DTYPES[settings.precision])
        else:
            held = of_same_weights(model)
    return kind(
        model=model,
        reward_funcs=reward_functions(settings, algorithm, grader, config.seed),
        args=config,
        train_dataset=prompt_dataset(problems, needs_hints(algorithm), needs_strategies(algorithm)),
        processing_class=tokenizer,
        peft_config=lora_config(settings.lora) if settings.lora else None,
        shaping=shaping_of(algorithm),
        stop_texts=settings.sampling.stop,
        reference=held,
        micro_batches=settings.micro_batches,
        make_drawer=make_drawer,
        correction=correction_of(settings) if make_drawer else None,
        trims=True,
    )


def of_same_weights(model: AnyModel) -> AnyModel:
    """A second `model` of the very same weights; an adapter that one of them gets stays its own.

    As the reference it needs no memory, and computes what the policy does with its adapter off, but
    nothing has to be switched off and on for that.
    """
    weights = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(weight): weight for weight in weights})


def whole_weights(trainer: SageTrainer) -> dict[str, torch.Tensor] | None:
    """The policy's weights where processes hold parts of them; all must call it. Else None."""
    return trainer.accelerator.get_state_dict(trainer.model) if trainer.is_fsdp_enabled else None


class Snapshots(TrainerCallback):
    """Keeps the policy at `count` evenly spaced steps, the last of them the end."""

    def __init__(self, trainer: SageTrainer, count: int, folder: Path) -> None:
        steps = trainer.args.max_steps
        self._trainer, self._folder = trainer, folder
        self._steps = {round(steps * (i + 1) / count) for i in range(count)}

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Write the policy if its moment has come; a step done again after a kill is kept."""
        if state.global_step not in self._steps:
            return
        target = self._folder / f"step{state.global_step}"
        weights = whole_weights(self._trainer)
        if rank() == 0 and not target.is_dir():
            with atomic_directory(target) as folder:
                kwargs["model"].save_pretrained(folder, state_dict=weights, safe_serialization=True)


def shaping_of(algorithm: Algorithm) -> Shaping:
    """What the method adds to TRL; k3, corrected or not, and group advantages are TRL's own.

    Each is a copy of its own, for it may learn.
    """
    guide, refilled = algorithm.guide, algorithm.filter
    made = {
        name: choice.fresh()
        for _, name, choice in algorithm.choices()
        if name != "rewards" and choice.kind not in OF_TRL.get(name, ())
    }
    return Shaping(
        **made,
        clamp=(guide.clamp[0], guide.clamp[1]) if guide else (1, 1),
        max_refills=refilled.max_refills if refilled else 0,
        mask_truncated=algorithm.mask_truncated,
        schedule_per_call=algorithm.fidelity == "released",
    )


def correction_of(settings: RL) -> Correction:
    """The model's own, by default that of each token with vLLM, which computes otherwise.

    Behind a filter (top-k, top-p, min-p) probabilities are not comparable: by default none there.
    """
    compared = settings.engine == "vllm" and not settings.sampling.filters()
    by_default = "token" if compared else "none"
    return Correction(settings.correction or by_default, settings.correction_cap)


def reward_functions(settings: RL, algorithm: Algorithm, grader: Grader, seed: int) -> list[Reward]:
    """Correctness, and what else the method rewards; TRL adds them up by `reward_weights`."""
    others = [
        (each.kind.rpartition(":")[2], each.fresh())
        for each in algorithm.rewards
        if each.kind != "correct"
    ]
    return graded(grader, others, settings.sampling.max_tokens, seed)


def reward_weights(algorithm: Algorithm) -> list[float]:
    """1 for each of `reward_functions`, but 0 for correctness in a method that does not name it."""
    others = [each for each in algorithm.rewards if each.kind != "correct"]
    return [float(len(others) < len(algorithm.rewards)), *[1.0] * len(others)]


def kl_coefficient(settings: RL, algorithm: Algorithm) -> float:
    """The method's own coefficient if it has one, else the model's; 0 without a KL term."""
    if algorithm.kl == "none":
        return 0.0
    return algorithm.kl_coefficient or settings.kl_coefficient


def weights_dtype(settings: RL) -> torch.dtype:
    """Frozen weights are kept in the precision of the run, trained ones in float32."""
    return DTYPES[settings.precision] if settings.lora else torch.float32


def prompt_dataset(
    problems: Sequence[Problem], guided: bool = False, sources: bool = False
) -> Dataset:
    """What TRL samples from: conversations, with gold answers for the reward.

    With `guided` also those that give the hint, with `sources` where the problems come from.
    Raises ValueError for a problem without a hint.
    """
    if guided and (without := [p.problem_id for p in problems if not p.hint]):
        raise ValueError(
            f"problem {without[0]!r} carries no hint, but the method draws under hints; set hints: "
            "true for the problem set, if its source writes them"
        )
    columns: dict[str, list[Any]] = {
        "prompt": [messages(p.problem) for p in problems],
        "answer": [p.answer for p in problems],
        "kind": [p.kind for p in problems],
    }
    if sources:
        columns[SOURCE] = [p.source for p in problems]
    if guided:
        columns[GUIDED] = [messages(with_hint(p.problem, p.hint)) for p in problems]
    return Dataset.from_dict(columns)


def longest_prompt(tokenizer: Any, problems: Sequence[Problem], algorithm: Algorithm) -> int:
    """The longest prompt that the method draws under, in tokens."""
    hints = needs_hints(algorithm)
    texts = [with_hint(p.problem, p.hint) if hints else p.problem for p in problems]
    return max(len(prompt_ids(tokenizer, text)) for text in texts)


def grpo_config(
    settings: RL,
    algorithm: Algorithm,
    seed: int,
    device: str,
    scratch: Path,
    processes: int = 1,
    longest_prompt: int | None = None,
) -> GRPOConfig:
    """TRL's configuration of a method; every setting that matters is set, none left to defaults.

    TRL counts a batch per process and micro-batch, and micro-batches per generation.
    `longest_prompt` (tokens) bounds the memory of vLLM. Raises ValueError if a step cannot be
    divided among the processes.
    """
    sampling = settings.sampling
    accumulated = settings.micro_batches_each(processes)
    completions = settings.prompts_per_step * settings.rollouts // processes
    estimator = algorithm.estimator.kind if algorithm.estimator else None
    by_trl = settings.engine == "vllm" and settings.lora is None
    return GRPOConfig(
        output_dir=str(scratch),
        seed=seed,
        max_steps=settings.steps,
        per_device_train_batch_size=completions // accumulated,
        gradient_accumulation_steps=accumulated,
        steps_per_generation=accumulated * settings.steps_per_generation,
        num_generations=settings.rollouts,
        num_iterations=settings.iterations,
        max_completion_length=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        **(_vllm_settings(settings, device, longest_prompt) if by_trl else {}),
        loss_type=algorithm.loss,
        beta=kl_coefficient(settings, algorithm),
        use_bias_correction_kl=estimator == "k3_corrected",
        reward_weights=reward_weights(algorithm),
        scale_rewards="none" if algorithm.advantage.kind == "centred" else "group",
        entropy_coef=algorithm.entropy_bonus,
        epsilon=NO_CLIP if algorithm.clip_low is None else algorithm.clip_low,
        epsilon_high=NO_CLIP if algorithm.clip_high is None else algorithm.clip_high,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=round(settings.warmup_ratio * settings.steps),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        optim=OPTIMIZERS[settings.optimizer],
        bf16=settings.precision == "bfloat16",
        gradient_checkpointing=settings.gradient_checkpointing,
        disable_dropout=True,  # else the policy is none that draws, nor its own reference
        use_cpu=device == "cpu",
        ddp_find_unused_parameters=False,
        fsdp=cast(Any, shards_weights(settings, processes)),  # typed as text, but a switch
        fsdp_config={"version": 2, "state_dict_type": "FULL_STATE_DICT"},
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        save_total_limit=KEPT,
        logging_steps=1,
        logging_nan_inf_filter=False,  # a loss that is not finite must be seen
        **reporting(scratch),
        disable_tqdm=False,
    )


def shards_weights(settings: RL, processes: int) -> bool:
    """Whether the processes share one copy of weights, gradients and optimizer (FSDP).

    They do where every weight is trained; an adapter is small, and its base is only read.
    """
    return processes > 1 and settings.lora is None


def _vllm_settings(settings: RL, device: str, longest_prompt: int | None) -> dict[str, Any]:
    """TRL's settings of a vLLM in each training process, which is handed all weights each step.

    Each holds the whole model, as its trainer does, so the processes need not draw in step. With
    the correction `token` TRL weights each token's policy term by the ratio of probabilities up to
    the cap; its default, one ratio for a whole completion, would be a product of thousands.
    """
    correction, longest = correction_of(settings), settings.sampling.max_tokens
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_tensor_parallel_size": 1,
        "vllm_gpu_memory_utilization": settings.vllm_memory or SHARE_OF_VLLM,
        "vllm_max_model_length": longest_prompt and longest_prompt + longest,
        "vllm_enable_sleep_mode": device == "cuda" and settings.vllm_sleep is not False,
        "vllm_importance_sampling_correction": correction.kind == "token",
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": correction.cap,
        "generation_kwargs": {
            "stop": list(settings.sampling.stop),
            "include_stop_str_in_output": True,
        },
    }
