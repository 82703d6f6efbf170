"""Holds what training and vLLM take of GPUs and of the machine's memory against what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from sage.results import Results
from sage.runtime.devices import OF_TRAINER, OF_VLLM, SHARE_OF_VLLM
from sage.study import RL, Model, ResolvedStudy
from sage.study.bases import HubBase
from sage.tools.check.findings import Finding, State, need
from sage.tools.gpus import BYTES, TRAINED, lighter, shape_of
from sage.tools.plan import plan

_ASLEEP = 2
"""Bytes of the machine's memory for each byte of weights that sleep there, at most.

vLLM keeps them in pinned blocks, which torch rounds up to powers of two.
"""


def gpu_memory(study: ResolvedStudy, results: Results, totals: list[int]) -> Iterator[Finding]:
    """Findings for each model with something known; `totals` are bytes, one for each GPU."""
    stages, total = plan(study, results), min(totals, default=0)
    for name, model in study.study.models.items() if totals else ():
        used = 1e9 * max(stage.used_gpu_gb or 0.0 for stage in stages if stage.model == name)
        if used:
            yield need(
                f"GPU memory, {name}",
                f"{_gb(used)}, the most used so far",
                _gb(total),
                used <= total,
                "raise micro_batches, or lower batch_size in evaluation and vllm_memory",
            )
        if model.rl and (count := _count(results.rl_start(name), model)):
            yield _training(name, model.rl, model.job.gpus, count, total)
        if model.rl and not used and (shape := shape_of(results, name, model)):
            yield _peak(name, lighter(shape[0], model.rl, model.job.gpus), total)


def asleep(study: ResolvedStudy, results: Results) -> Iterator[Finding]:
    """Whether the weights of vLLM that sleep have room in a job's memory."""
    for name, model in study.study.models.items():
        rl, job, count = model.rl, model.job, _count(results.rl_start(name), model)
        if rl is None or rl.engine != "vllm" or rl.vllm_sleep is False or not count:
            continue
        needed = _ASLEEP * count * BYTES[rl.precision] * max(1, job.gpus)
        yield need(
            f"memory for vLLM's sleep, {name}",
            f"up to {_gb(needed)} a job",
            f"{job.host_memory_gb} GB a job",
            needed <= job.host_memory_gb * 1e9,
            "raise memory_gb, or set `vllm_sleep: false` in rl where a GPU holds vLLM beside the "
            "training",
        )


def _training(name: str, rl: RL, gpus: int, count: int, total: int) -> Finding:
    """Training `count` weights, with vLLM beside it if it draws, held against a GPU's `total`."""
    weights, trainer = count * BYTES[rl.precision], _resident(rl, count, gpus)
    larger = "use GPUs with more memory" + (
        "" if rl.lora else ", more of them a job, or an adapter"
    )
    if rl.engine != "vllm":
        what, needed = f"GPU for training, {name}", f"{_gb(trainer)} and activations"
        return need(what, needed, _gb(total), trainer <= total, larger)
    least, most = (weights + OF_VLLM) / total, 1.0 - trainer / total
    share = rl.vllm_memory or (None if rl.lora else SHARE_OF_VLLM)
    return need(
        f"GPU for vLLM, {name}",
        f"{_gb(weights + OF_VLLM + trainer)} and a cache"
        + ("" if share is None else f", vllm_memory {share:g}"),
        _gb(total),
        least <= most if share is None else least <= share <= most,
        f"set vllm_memory to {least:.2f} to {most:.2f}" + (", or leave it out" if rl.lora else "")
        if least <= most
        else f"{larger}, or engine: transformers in rl",
    )


def _peak(name: str, sizes: list[tuple[str, float]], total: int) -> Finding:
    """What RL is estimated to take, as set and with other settings; a warning if that is more than
    a GPU's `total`."""
    (_, own), *others = sizes
    fits = [f"{words} ({_gb(size)})" for words, size in others if size <= total]
    way_out = f"set {' or '.join(fits)}" if fits else "use GPUs with more memory"
    state: State = "ok" if own <= total else "warning"
    what = f"GPU memory of RL, {name}"
    more = "an estimate; if a job runs out of memory"
    return Finding(what, f"{_gb(own)}, estimated", _gb(total), state, f"{more}: {way_out}")


def _resident(rl: RL, count: int, gpus: int) -> int:
    """Bytes that training `count` weights holds on each GPU at least.

    Of an adapter they are the frozen base. Else processes share weights, gradients, AdamW's state
    and the reference of the KL term.
    """
    if rl.lora is not None:
        return count * BYTES[rl.precision] + OF_TRAINER
    each = TRAINED[rl.optimizer] + BYTES[rl.precision]
    return count * each // max(1, gpus) + OF_TRAINER


def _count(checkpoint: Path, model: Model) -> int:
    """The number of the base's weights; 0 where nothing says it."""
    size = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    config = checkpoint / "config.json"
    if size and config.is_file():
        held = json.loads(config.read_text(encoding="utf-8")).get("dtype")
        return size // BYTES.get(str(held), BYTES[model.rl.precision if model.rl else "bfloat16"])
    name = model.base.repository if isinstance(model.base, HubBase) else ""
    said = re.search(r"(\d+(?:\.\d+)?)B\b", name)
    return round(float(said[1]) * 1e9) if said else 0


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
