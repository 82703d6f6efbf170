"""Checkpoints of a run under way, in a scratch folder that outlives its job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from sage.runtime.files import write_text_atomic


def claim(scratch: Path, identity: Any) -> None:
    """Keep the checkpoints in `scratch` only if a run of the same identity left them, and whole.

    The trainer's state is what a checkpoint gets last: one without was being written at a kill.
    """
    text = json.dumps(identity, sort_keys=True)
    mark = scratch / "identity.json"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != text:
        shutil.rmtree(scratch, ignore_errors=True)
        write_text_atomic(mark, text)
    for checkpoint in scratch.glob("checkpoint-*"):
        try:
            json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            print(f"{checkpoint} is not whole and is removed", flush=True)
            shutil.rmtree(checkpoint)
