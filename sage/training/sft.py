"""Supervised fine-tuning to the answer format: a LoRA adapter, trained and merged.

The result is the parent of every RL run and the reference policy of its KL term. Prompt and
completion are tokenised apart from each other (`examples`); TRL gets tokens and cuts nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from sage import prompting
from sage.policies import load_model, load_tokenizer, save_checkpoint
from sage.runtime.files import atomic_directory, text_sum
from sage.runtime.identity import code_digest
from sage.runtime.manifest import Manifest
from sage.runtime.tracking import reporting
from sage.study import SFT
from sage.study.watch import Watch
from sage.training.adapters import DTYPES, OPTIMIZERS, lora_config
from sage.training.checkpoints import KEPT, Sealing, claim
from sage.training.examples import Solution, tokenised
from sage.training.processes import rank, world_size
from sage.training.watching import Watching


class EachExampleOnce(SFTTrainer):
    """TRL's SFT, in which the last batch of a pass holds no example twice.

    Where several processes share it, they are all handed full batches, filled up with examples from
    the start of the pass. Those go: the batch is that of one process.
    """

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> Any:
        batches = map(self._without_repeats, epoch_iterator)
        return super().get_batch_samples(batches, num_batches, device)

    def _without_repeats(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        state, rows = self.accelerator.gradient_state, len(batch["labels"])
        if not state.end_of_dataloader or state.remainder <= 0:
            return batch
        own = max(0, min(rows, state.remainder - self.accelerator.process_index * rows))
        batch = {name: value[: max(own, 1)] for name, value in batch.items()}
        if not own:  # one row, without loss, for a process that has no other
            batch["labels"] = torch.full_like(batch["labels"], -100)
            batch["attention_mask"] = torch.zeros_like(batch["attention_mask"])
            batch["attention_mask"][:, 0] = 1
        return batch


def fine_tune(
    base: Path,
    solutions: Sequence[Solution],
    settings: SFT,
    device: str,
    scratch: Path,
    output: Path,
    manifest: Manifest,
) -> None:
    """Train an adapter on `base`, merge it; write checkpoint and manifest into `output`.

    A killed run goes on from its last checkpoint in `scratch`, which is removed at the end. In
    several processes each takes an equal share of every batch, and the first writes. Raises
    ValueError if the batch cannot be shared evenly.
    """
    if settings.batch_size % world_size():
        raise ValueError(f"batch_size {settings.batch_size} among {world_size()} processes")
    tokenizer = load_tokenizer(base)
    if settings.template == "unsloth":
        tokenizer.chat_template = prompting.UNSLOTH_CHAT_TEMPLATE
    examples = tokenised(solutions, tokenizer, settings)
    print(f"examples: {examples.counts}")
    manifest = replace(manifest, settings={**manifest.settings, "examples": examples.counts})
    config = _config(settings, device, scratch)
    if rank() == 0:
        made = (base / "manifest.json").read_text(encoding="utf-8")
        code = code_digest("sage.training.sft")
        claim(scratch, [manifest.settings, made, text_sum(json.dumps(examples.rows)), code])
    config.distributed_state.wait_for_everyone()
    trainer = EachExampleOnce(
        model=load_model(base, DTYPES[settings.precision]),
        args=config,
        train_dataset=Dataset.from_list(examples.rows),
        processing_class=tokenizer,
        peft_config=lora_config(settings.lora),
    )
    trainer.add_callback(Sealing())
    trainer.add_callback(Watching(Watch(), scratch, place=None, rows=list))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(scratch)))
    if rank() == 0:
        adapted: Any = trainer.model
        with atomic_directory(output) as folder:
            save_checkpoint(adapted.merge_and_unload(), tokenizer, folder)
            manifest.write(folder / "manifest.json", int(trainer.state.num_input_tokens_seen))
        shutil.rmtree(scratch, ignore_errors=True)


def _config(settings: SFT, device: str, scratch: Path) -> SFTConfig:
    return SFTConfig(
        output_dir=str(scratch),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size // world_size(),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup_steps,
        max_length=None,  # the rows are no longer than sft.max_tokens
        completion_only_loss=settings.loss == "completion",
        gradient_checkpointing=False,
        bf16=settings.precision == "bfloat16",
        optim=OPTIMIZERS[settings.optimizer],
        seed=settings.seed,
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        save_total_limit=KEPT,
        logging_steps=20,
        logging_nan_inf_filter=False,  # a loss that is not finite must be seen
        include_num_input_tokens_seen="non_padding",
        **reporting(scratch),
        use_cpu=device == "cpu",
        ddp_find_unused_parameters=False,
    )


def processes_for(settings: SFT, processes: int) -> int:
    """The most processes, up to `processes`, that can share a batch evenly."""
    return max(n for n in range(1, processes + 1) if settings.batch_size % n == 0)
