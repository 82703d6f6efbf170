"""Whether what a model's jobs hold on a GPU fits into this machine's.

Known are what runs on disk have used and, once the base is there, its weights. While vLLM draws
rollouts for an adapter, a GPU holds them twice: vLLM's and the trainer's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sage.results import Results
from sage.runtime.devices import OF_TRAINER, OF_VLLM
from sage.study import ResolvedStudy
from sage.tools.check.findings import Finding, met
from sage.tools.plan import plan

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def gpu_memory(study: ResolvedStudy, results: Results, totals: list[int]) -> Iterator[Finding]:
    """A finding for each model with something known; `totals` are bytes, one for each GPU."""
    if not totals:
        return
    total = min(totals)
    stages = plan(study, results)
    for name, model in study.study.models.items():
        peaks = [s.measured.gpu_memory_gb or 0.0 for s in stages if s.model == name]
        if used := max(peaks) * 1e9:
            yield Finding(
                f"GPU memory, {name}",
                f"{_gb(used)}, the most used so far",
                _gb(total),
                met(used <= total),
                "raise micro_batches, or lower batch_size in evaluation and vllm_memory",
            )
        weights = _weights(results.parent(name), model.rl.precision)
        if model.rl.engine != "vllm" or model.rl.lora is None or not weights:
            continue
        least, most = (weights + OF_VLLM) / total, 1.0 - (weights + OF_TRAINER) / total
        share = model.rl.vllm_memory
        fits = least <= most if share is None else least <= share <= most
        yield Finding(
            f"GPU for vLLM, {name}",
            f"{_gb(2 * weights + OF_VLLM + OF_TRAINER)} and a cache"
            + ("" if share is None else f", vllm_memory {share:g}"),
            _gb(total),
            met(fits),
            f"set vllm_memory to {least:.2f} to {most:.2f}, or leave it out"
            if least <= most
            else "use GPUs with more memory, or engine: transformers in rl",
        )


def _weights(checkpoint: Path, precision: str) -> int:
    """Bytes of a checkpoint's weights in `precision`; 0 if it is not there."""
    size = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    config = checkpoint / "config.json"
    held = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    return size * _BYTES[precision] // _BYTES.get(str(held.get("dtype")), _BYTES[precision])


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
