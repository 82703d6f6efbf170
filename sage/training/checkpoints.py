"""Checkpoints of a run under way, in a scratch folder that outlives its job.

The two newest are kept, each with the SHA-256 of its files, which it gets last. One without these
sums, or with other files, was cut off or damaged: it is removed, and training continues from the
one before. So is one whose states hold more than tensors and plain values: torch writes them as
pickles, and a pickle can name code to run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_pt_utils import safe_globals

from sage.problems.record import Problem
from sage.runtime.dependencies import WITHOUT_EFFECT, module_files
from sage.runtime.files import file_sum, file_sums, write_json_atomic, write_text_atomic
from sage.runtime.manifest import settings_sum
from sage.study import Algorithm
from sage.study.algorithms import choice_files
from sage.training.processes import rank

KEPT = 2
"""How many checkpoints a run keeps: the newest, and one to fall back on."""

SUMS = "sums.json"
"""The file of a checkpoint that names its other files with their SHA-256."""

PICKLED = (".bin", ".pt", ".pth")
"""Endings of the files that torch writes as pickles."""


def claim(scratch: Path, identity: Any) -> None:
    """Keep the checkpoints in `scratch` only if a run of the same identity left them, and whole."""
    text = json.dumps(identity, sort_keys=True)
    mark = scratch / "identity.json"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != text:
        shutil.rmtree(scratch, ignore_errors=True)
        write_text_atomic(mark, text)
    for _, checkpoint in checkpoints(scratch):
        if fault := damage(checkpoint):
            print(
                f"{checkpoint} is removed: {fault}; training continues from the checkpoint before "
                "it, or from the start",
                flush=True,
            )
            shutil.rmtree(checkpoint)


def sources(
    parent: Path,
    problems: Sequence[Problem],
    algorithm: Algorithm,
    reference: Path | None,
    task_files: Collection[Path] = (),
) -> dict[str, Any]:
    """What a run is made from, by content: checkpoints of another are not continued.

    Checkpoints are told apart by their manifests, which say when they were made; the code, that of
    training, of the method's choices and of the user's own classes and tasks (`task_files`), by its
    files as they are.
    """
    folders = [parent, *([reference] if reference else [])]
    training = map(Path, module_files("sage.training.rl", WITHOUT_EFFECT))
    code = sorted({*training, *choice_files(algorithm), *task_files})
    return {
        "checkpoints": [(folder / "manifest.json").read_text("utf-8") for folder in folders],
        "problems": settings_sum([asdict(problem) for problem in problems]),
        "code": [file_sum(file) for file in code],
    }


def checkpoints(scratch: Path) -> list[tuple[int, Path]]:
    """The checkpoints in `scratch` with their steps, oldest first."""
    named = [(path.name.removeprefix("checkpoint-"), path) for path in scratch.glob("checkpoint-*")]
    return sorted((int(step), path) for step, path in named if step.isdecimal())


def damage(checkpoint: Path) -> str:
    """What is wrong with the files of a checkpoint; empty if they are as they were written."""
    try:
        sums = json.loads((checkpoint / SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "its writing was interrupted"
    now = {name: digest for name, digest in file_sums(checkpoint).items() if name != SUMS}
    changed = sorted(name for name in sums.keys() | now.keys() if sums.get(name) != now.get(name))
    if changed:
        return f"{changed[0]} is not as it was written (SHA-256)"
    unsafe = [name for name in sorted(now) if not _is_plain(checkpoint / name)]
    return f"{unsafe[0]} holds more than tensors and plain values" if unsafe else ""


def _is_plain(path: Path) -> bool:
    """Whether torch reads the file as the trainer does, running nothing, or it is none of torch."""
    if path.suffix not in PICKLED:
        return True
    try:
        with safe_globals():
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # torch refuses by errors of many types
        return False
    return True


class Sealing(TrainerCallback):
    """Writes the sums of a checkpoint once the trainer has written all of it.

    The trainer's settings, a pickle of many classes that nothing reads, are removed first.
    """

    def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Seal the checkpoint of this step; the first process does it, all others wait."""
        if rank() == 0:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)
            write_json_atomic(folder / SUMS, file_sums(folder))
        args.distributed_state.wait_for_everyone()
