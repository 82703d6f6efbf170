"""Tables 7 and 8, the settings of SFT and of RL as used, and the choices left open.

They are read from the resolved study, so they are the settings that ran. The values are text. A
setting that differs between methods names those methods.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from sage.exhibits.kind import Display, Shows
from sage.rendering.labels import method_title
from sage.rendering.numbers import NONE, listing
from sage.rendering.table import Column, TableDocument, plain_table, table_of
from sage.study import Model, ResolvedStudy
from sage.study.bases import HubBase, PackageBase, SharedBase
from sage.study.models import LoRA

_KL, _CLIPS = "KL coefficient", ("Clipping ε, low", "Clipping ε, high")
_OPTIMIZERS = {"adamw": "AdamW", "adamw_8bit": "AdamW (8-bit)"}


class SFTSettings(Shows):
    """Settings of supervised fine-tuning as used, a column for each model."""

    def table(self, display: Display) -> TableDocument:
        frame = sft_settings(display.study)
        return _document(frame, "Settings of supervised fine-tuning, as used.", display)


class RLSettings(Shows):
    """Settings of reinforcement learning as used, a column for each model."""

    def table(self, display: Display) -> TableDocument:
        text = "Settings of reinforcement learning, as used; where methods differ, they are named."
        return _document(rl_settings(display.study), text, display)


def sft_settings(study: ResolvedStudy) -> pd.DataFrame:
    """Table 7: column `parameter`, then one for each model; NONE for models without SFT."""
    table: dict[str, dict[str, object]] = {}
    for name, model in study.study.models.items():
        table[name] = {"Base model": _base(study, model)}
        if sft := model.sft:
            table[name] |= {
                "Data": sft.data or "worked solutions of the base's corpus",
                "Examples": sft.examples or "all",
                "LoRA": _lora(sft.lora),
                "Max sequence length (tokens)": sft.max_tokens,
                "May take half of it": f"the {sft.length}",
                "Longer than the maximum": sft.too_long.replace("_", " "),
                "Loss on": "the whole text" if sft.loss == "text" else "the completion",
                "Chat template": "the model's own" if sft.template == "own" else "Unsloth's",
                "Epochs": sft.epochs,
                "Batch size": sft.batch_size,
                "Learning rate": sft.learning_rate,
                "Optimizer": _OPTIMIZERS[sft.optimizer],
                "Precision": sft.precision,
                "Weight decay": sft.weight_decay,
                "LR schedule": "linear",
                "Warm-up steps": sft.warmup_steps,
                "Random seed": sft.seed,
            }
    return _by_parameter(table)


def rl_settings(study: ResolvedStudy) -> pd.DataFrame:
    """Table 8: column `parameter`, then one for each model, by name; NONE for models without RL.

    Settings that a method decides (KL coefficient, clipping, guides) are collected over the
    methods that the model is trained with. Cells of an ablation are left out: their own table
    shows their settings.
    """
    table: dict[str, dict[str, object]] = {}
    for name, model in study.study.models.items():
        table[name] = {}
        if rl := model.rl:
            table[name] = {
                "Training data": study.study.problems[rl.problems].title,
                "RL steps": rl.steps,
                "Prompts per step": rl.prompts_per_step,
                "Rollouts per prompt": rl.rollouts,
                "Optimizer steps per generation": rl.steps_per_generation * rl.iterations,
                "Temperature": rl.sampling.temperature,
                "Min-p": rl.sampling.min_p,
                "Top-p": rl.sampling.top_p,
                "Top-k": rl.sampling.top_k or "off",
                "Max completion length (tokens)": rl.sampling.max_tokens,
                "Trained weights": _lora(rl.lora),
                "LR schedule": rl.schedule,
                "Warm-up ratio": rl.warmup_ratio,
                "Weight decay": rl.weight_decay,
                "Max gradient norm": rl.max_grad_norm,
                "Optimizer": _OPTIMIZERS[rl.optimizer],
                "Precision": rl.precision,
                **_of_algorithms(study, name),
                "Random seed": study.seeds_text(name),
            }
    return _by_parameter(table)


def _by_parameter(table: Mapping[str, Mapping[str, object]]) -> pd.DataFrame:
    """A row for each parameter of any model, as text; the random seed is the last."""
    names = dict.fromkeys(name for settings in table.values() for name in settings)
    names["Random seed"] = names.pop("Random seed", None)
    columns = {
        model: [_text(own.get(name, NONE)) for name in names] for model, own in table.items()
    }
    return pd.DataFrame({"parameter": list(names), **columns})


def _document(frame: pd.DataFrame, caption: str, display: Display) -> TableDocument:
    titles = {name: model.title for name, model in display.study.study.models.items()}
    return TableDocument(frame, plain_table(frame, "Setting", titles), caption)


def _of_algorithms(study: ResolvedStudy, model: str) -> dict[str, str]:
    """Settings that methods decide, by parameter, collected over the model's methods.

    ``0.2; 0.28 (DAPO)``: the most common value, then the others with their methods.
    """
    in_order = ("Learning rate", _KL, "KL term and estimator", *_CLIPS)
    collected: dict[str, dict[str, list[str]]] = {name: {} for name in in_order}
    for name in study.trained(model):
        row = study.algorithms[name]
        if name in study.variants:
            continue
        own: dict[str, object] = {"Learning rate": study.rl(model, name).learning_rate}
        for clip, width in zip(_CLIPS, (row.clip_low, row.clip_high), strict=True):
            own[clip] = "none" if width is None else width
        if row.kl != "none":
            own[_KL] = study.kl_coefficient(model, name)
            own["KL term and estimator"] = f"{row.kl}, {row.estimator}"
        if guide := row.guide:
            low, high = guide.clamp
            known = guide.family.settings(guide.kind)(**guide.settings).model_dump()
            of_guide = {**guide.settings, **known, "clamp": f"{low:g} to {high:g}"}
            own |= {f"Guide {guide.kind}: {key}": value for key, value in of_guide.items()}
        for parameter, value in own.items():
            rows = collected.setdefault(parameter, {}).setdefault(_text(value), [])
            rows.append(method_title(study, name))
    settings = {}
    for parameter, values in collected.items():
        (first, _), *others = sorted(values.items(), key=lambda one: -len(one[1])) or [("", [])]
        more = (f"{value} ({', '.join(rows)})" for value, rows in others)
        settings[parameter] = "; ".join([first, *more])
    return {parameter: text for parameter, text in settings.items() if text}


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


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


CHOICE_COLUMNS = ["reading", "question", "answer", "source", "meaning", "default", "in_force"]

OWN = "settings of its own"
"""In force where a model or method has settings that are those of no answer."""


class OpenChoicesTable(Shows):
    """Choices where the paper and its official release differ or are silent: each `answer` to a
    `question` with its `source`, whether it is the `default` of the paper's study, and the models
    or rows of this study for which it is `in_force`."""

    def table(self, display: Display) -> TableDocument:
        frame = open_choices_frame(display.study)
        caption = (
            "Choices where the paper and its official release differ or are silent. Default: the "
            "answer of the paper’s study; `open_choices` in a study switches one. In force for: "
            "the models or rows of this study whose settings are those of the answer."
        )
        columns: list[Column] = [
            ("", "Source", lambda row: row["source"]),
            ("", "Meaning", lambda row: row["meaning"]),
            ("", "In force for", lambda row: listing(row["in_force"].split("; "), most=4) or NONE),
        ]
        groups = []
        for (name, question), answers in frame.groupby(["reading", "question"], sort=False):
            rows = [
                (row["answer"] + " (default)" * row["default"], row)
                for row in answers.to_dict("records")
            ]
            groups.append((f"{name}: {question}", rows))
        table = table_of("Answer", columns, groups, words=True)
        return TableDocument(frame, table, caption)


def open_choices_frame(study: ResolvedStudy) -> pd.DataFrame:
    """CHOICE_COLUMNS, a row per choice and answer; OWN follows where it is in force somewhere."""
    from sage.study.open_choices import answers_in

    rows = []
    for one in answers_in(study):
        choice, by_answer = one.choice, dict[str | None, list[str]]()
        for place, given in one.answers.items():
            by_answer.setdefault(given, []).append(_titled(study, place))
        for name, known in choice.answers.items():
            where = "; ".join(by_answer.get(name, ()))
            own = (name, known.source, known.meaning, name == choice.default, where)
            rows.append((choice.name, choice.question, *own))
        if None in by_answer:
            own = (OWN, NONE, "", False, "; ".join(by_answer[None]))
            rows.append((choice.name, choice.question, *own))
    return pd.DataFrame(rows, columns=CHOICE_COLUMNS)


def _titled(study: ResolvedStudy, name: str) -> str:
    """What a model or method is called where people read it; other names stand for themselves."""
    if name in study.study.models:
        return study.model(name).title
    return method_title(study, name) if name in study.algorithms else name
