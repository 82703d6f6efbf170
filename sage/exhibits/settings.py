"""Tables 7 and 8: the settings of SFT and of RL as used, a column for each model.

They are read from the resolved study, so they are the settings that ran. The values are text. A
setting that differs between methods names those methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pandas as pd

from sage.exhibits.kind import Display, Shows
from sage.rendering.labels import row_title
from sage.rendering.numbers import NONE
from sage.rendering.table import TableDocument, plain_table
from sage.study import RL, SFT, Algorithm, Model, ResolvedStudy
from sage.study.bases import HubBase, PackageBase, SharedBase
from sage.study.tuning import LoRA

_OPTIMIZERS = {"adamw": "AdamW", "adamw_8bit": "AdamW (8-bit)"}


class SFTSettings(Shows):
    """Table 7: the settings of SFT as they were used."""

    contents: ClassVar[str] = "Settings of supervised fine-tuning as used, a column for each model."

    def table(self, display: Display) -> TableDocument:
        """A row for each setting."""
        frame = sft_settings(display.study)
        return _document(frame, "Settings of supervised fine-tuning, as used.", display)


class RLSettings(Shows):
    """Table 8: the settings of RL as they were used."""

    contents: ClassVar[str] = "Settings of reinforcement learning as used, a column for each model."

    def table(self, display: Display) -> TableDocument:
        """A row for each setting."""
        caption = "Settings of reinforcement learning, as used; "
        caption += "where methods differ, they are named."
        return _document(rl_settings(display.study), caption, display)


def sft_settings(study: ResolvedStudy) -> pd.DataFrame:
    """Table 7: column `parameter`, then one for each model; NONE for models without SFT."""
    rows: dict[str, Callable[[Model, SFT], object]] = {
        "Data": lambda model, sft: sft.data or "worked solutions of the base's corpus",
        "Examples": lambda model, sft: sft.examples or "all",
        "LoRA": lambda model, sft: _lora(sft.lora),
        "Max sequence length (tokens)": lambda model, sft: sft.max_tokens,
        "May take half of it": lambda model, sft: f"the {sft.length}",
        "Longer than the maximum": lambda model, sft: sft.too_long.replace("_", " "),
        "Loss on": lambda model, sft: {"text": "the whole text"}.get(sft.loss, "the completion"),
        "Chat template": lambda model, sft: {"own": "the model's own"}.get(
            sft.template, "Unsloth's"
        ),
        "Epochs": lambda model, sft: sft.epochs,
        "Batch size": lambda model, sft: sft.batch_size,
        "Learning rate": lambda model, sft: _number(sft.learning_rate),
        "Optimizer": lambda model, sft: _OPTIMIZERS[sft.optimizer],
        "Precision": lambda model, sft: sft.precision,
        "Weight decay": lambda model, sft: _number(sft.weight_decay),
        "LR schedule": lambda model, sft: "linear",
        "Warm-up steps": lambda model, sft: sft.warmup_steps,
        "Random seed": lambda model, sft: sft.seed,
    }
    models = study.study.models
    table: dict[str, list[str]] = {"parameter": ["Base model", *rows]}
    for name, model in models.items():
        sft = model.sft
        values = [NONE if sft is None else str(read(model, sft)) for read in rows.values()]
        table[name] = [_base(study, model), *values]
    return pd.DataFrame(table)


def rl_settings(study: ResolvedStudy) -> pd.DataFrame:
    """Table 8: column `parameter`, then one for each model, by name; NONE for models without RL.

    Settings that a method decides (KL coefficient, clipping, guides) are collected over the
    methods that the model is trained with. Cells of an ablation are left out: their own table
    shows their settings.
    """
    rows: dict[str, Callable[[RL], object]] = {
        "Training data": lambda rl: study.study.problems[rl.problems].title,
        "RL steps": lambda rl: rl.steps,
        "Prompts per step": lambda rl: rl.prompts_per_step,
        "Rollouts per prompt": lambda rl: rl.rollouts,
        "Optimizer steps per generation": lambda rl: rl.steps_per_generation * rl.iterations,
        "Temperature": lambda rl: _number(rl.sampling.temperature),
        "Min-p": lambda rl: _number(rl.sampling.min_p),
        "Top-p": lambda rl: _number(rl.sampling.top_p),
        "Top-k": lambda rl: rl.sampling.top_k or "off",
        "Max completion length (tokens)": lambda rl: rl.sampling.max_tokens,
        "Trained weights": lambda rl: _lora(rl.lora),
        "LR schedule": lambda rl: rl.schedule,
        "Warm-up ratio": lambda rl: _number(rl.warmup_ratio),
        "Weight decay": lambda rl: _number(rl.weight_decay),
        "Max gradient norm": lambda rl: _number(rl.max_grad_norm),
        "Optimizer": lambda rl: _OPTIMIZERS[rl.optimizer],
        "Precision": lambda rl: rl.precision,
    }
    of_models = {name: _of_algorithms(study, name) for name in study.study.models}
    more = list(dict.fromkeys(key for settings in of_models.values() for key in settings))
    table: dict[str, list[str]] = {"parameter": [*rows, *more, "Random seed"]}
    for name, model in study.study.models.items():
        rl = model.rl
        values = [NONE if rl is None else str(read(rl)) for read in rows.values()]
        values += [of_models[name].get(key, NONE) for key in more]
        table[name] = [*values, study.seeds_text(name) if rl else NONE]
    return pd.DataFrame(table)


def _document(frame: pd.DataFrame, caption: str, display: Display) -> TableDocument:
    titles = {name: model.title for name, model in display.study.study.models.items()}
    return TableDocument(frame, plain_table(frame, "Setting", titles), caption)


def _of_algorithms(study: ResolvedStudy, model: str) -> dict[str, str]:
    """Settings that methods decide, by parameter, collected over the model's methods."""
    trained = [name for name in study.trained(model) if name not in study.variants]
    rows = {name: study.algorithms[name] for name in trained}
    with_kl = {name: row for name, row in rows.items() if row.kl != "none"}
    settings = {
        "Learning rate": _by_value(
            study, {name: _number(study.rl(model, name).learning_rate) for name in rows}
        ),
        "KL coefficient": _by_value(
            study,
            {
                n: _number(a.kl_coefficient or study.rl(model).kl_coefficient)
                for n, a in with_kl.items()
            },
        ),
        "KL term and estimator": _by_value(
            study, {name: f"{row.kl}, {row.estimator}" for name, row in with_kl.items()}
        ),
        "Clipping ε, low": _by_value(study, {n: _clip(a.clip_low) for n, a in rows.items()}),
        "Clipping ε, high": _by_value(study, {n: _clip(a.clip_high) for n, a in rows.items()}),
    }
    guides: dict[str, dict[str, str]] = {}
    for name, row in rows.items():
        for key, value in _guide(row).items():
            guides.setdefault(key, {})[name] = value
    settings |= {key: _by_value(study, values) for key, values in guides.items()}
    return {key: value for key, value in settings.items() if value}


def _clip(width: float | None) -> str:
    return "none" if width is None else _number(width)


def _guide(row: Algorithm) -> dict[str, str]:
    if row.guide is None:
        return {}
    kind = row.guide.kind
    settings = {
        f"Guide {kind}: {key}": value if isinstance(value, str) else _number(value)
        for key, value in row.guide.settings.items()
    }
    low, high = row.guide.clamp
    return settings | {f"Guide {kind}: clamp": f"{_number(low)} to {_number(high)}"}


def _by_value(study: ResolvedStudy, values: Mapping[str, str]) -> str:
    """``0.2; 0.28 (DAPO)``: the most common value, then the others with their methods."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(row_title(study, name))
    (first, _), *others = sorted(groups.items(), key=lambda group: -len(group[1])) or [("", [])]
    return "; ".join([first, *(f"{value} ({', '.join(rows)})" for value, rows in others)])


def _base(study: ResolvedStudy, model: Model) -> str:
    base = model.base
    if isinstance(base, HubBase):
        return base.repository
    if isinstance(base, PackageBase):
        return f"{base.file} of {base.package}"
    if isinstance(base, SharedBase):
        return f"that of {study.model(base.model).title}"
    return f"{model.title}, made here"


def _lora(lora: LoRA | None) -> str:
    if lora is None:
        return "all"
    return f"LoRA, rank {lora.rank}, alpha {lora.alpha}, attention & MLP projections"


def _number(value: float) -> str:
    return f"{value:g}"
