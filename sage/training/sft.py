"""Supervised fine-tuning to the answer format: a LoRA adapter, trained and merged.

The result is the parent of every RL run and the reference policy of its KL term. Only the
completion carries loss.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from sage import prompting
from sage.policies import load_model, load_tokenizer, save_checkpoint
from sage.runtime.files import atomic_directory
from sage.runtime.manifest import Manifest
from sage.study import SFT
from sage.training.adapters import DTYPES, OPTIMIZERS, lora_config
from sage.training.checkpoints import claim
from sage.training.examples import Solution
from sage.training.processes import rank, world_size


def conversations(
    solutions: Sequence[Solution], tokenizer: PreTrainedTokenizerBase, max_tokens: int
) -> list[dict[str, Any]]:
    """Conversations in the answer format, of problems whose prompt takes at most half of
    `max_tokens` tokens. Raises ValueError if none is left.
    """
    kept = [
        {
            "prompt": prompting.messages(solution.problem),
            "completion": [
                {
                    "role": "assistant",
                    "content": prompting.WORK_OPEN
                    + prompting.completion(solution.working, solution.answer),
                }
            ],
        }
        for solution in solutions
        if len(prompting.prompt_ids(tokenizer, solution.problem)) <= max_tokens // 2
    ]
    if not kept:
        raise ValueError(
            f"of {len(solutions)} examples none has a prompt of at most sft.max_tokens / 2 = "
            f"{max_tokens // 2} tokens"
        )
    return kept


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
    examples = conversations(solutions, tokenizer, settings.max_tokens)
    config = _config(settings, device, scratch)
    if rank() == 0:
        made = (base / "manifest.json").read_text(encoding="utf-8")
        told = hashlib.sha256(json.dumps(examples).encode()).hexdigest()
        claim(scratch, [manifest.settings, made, told])
    config.distributed_state.wait_for_everyone()
    trainer = SFTTrainer(
        model=load_model(base, DTYPES[settings.precision]),
        args=config,
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        peft_config=lora_config(settings.lora),
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(scratch)))
    if rank() == 0:
        adapted: Any = trainer.model
        merged = adapted.merge_and_unload()
        with atomic_directory(output) as folder:
            save_checkpoint(merged, tokenizer, folder)
            tokens = int(trainer.state.num_input_tokens_seen)
            manifest.write(folder / "manifest.json", tokens)
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
        max_length=settings.max_tokens,
        completion_only_loss=True,
        gradient_checkpointing=False,
        bf16=settings.precision == "bfloat16",
        optim=OPTIMIZERS[settings.optimizer],
        seed=settings.seed,
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        save_total_limit=1,
        logging_steps=20,
        include_num_input_tokens_seen="non_padding",
        report_to="none",
        use_cpu=device == "cpu",
        ddp_find_unused_parameters=False,
    )


def processes_for(settings: SFT, processes: int) -> int:
    """The most processes, up to `processes`, that can share a batch evenly."""
    return max(n for n in range(1, processes + 1) if settings.batch_size % n == 0)
