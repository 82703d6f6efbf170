"""What tests of training share: random tiny models, and trainers as `train_rl` builds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sage.grading import Grader
from sage.policies import build_tiny, load_model, load_tokenizer, save_checkpoint, train_tokenizer
from sage.problems.record import Problem
from sage.study import RL, Algorithm, Architecture
from sage.training import rl
from sage.training.adapters import lora_config
from sage.training.processes import world_size
from sage.training.trainer import SageTrainer

ARCHITECTURE = Architecture(
    hidden_size=32,
    intermediate_size=64,
    layers=2,
    heads=2,
    key_value_heads=1,
    max_positions=128,
    vocab_size=300,
)


def odd_length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that also an untrained policy earns now and then."""
    return [float(len(ids) % 2) for ids in completion_ids]


def write_parent(folder: Path, problems: Sequence[Problem], spread: float = 1.0) -> Path:
    """A random tiny model in `folder`; a `spread` above 1 makes tokens differ in probability."""
    tokenizer = train_tokenizer([p.problem for p in problems], ARCHITECTURE.vocab_size)
    model: Any = build_tiny(ARCHITECTURE, tokenizer, 0)
    model.model.norm.weight.data *= spread
    save_checkpoint(model, tokenizer, folder)
    (folder / "manifest.json").write_text("{}")
    return folder


def trainer_of(
    parent: Path,
    problems: Sequence[Problem],
    settings: RL,
    algorithm: Algorithm,
    scratch: Path,
    reward: Callable[..., list[float]] | None = None,
    trl: dict[str, Any] | None = None,
    kind: type[Any] = SageTrainer,
    **more: Any,
) -> Any:
    """A trainer of `kind` on the checkpoint `parent`; nothing is saved.

    `reward` takes the place of the algorithm's rewards, `trl` changes TRL's configuration, `more`
    are arguments of the trainer.
    """
    config = rl.grpo_config(settings, algorithm, 1, "cpu", scratch, world_size())
    config.save_strategy = "no"
    if reward is not None:
        config.reward_weights = None
    for name, value in (trl or {}).items():
        setattr(config, name, value)
    rewards = [reward] if reward else rl.reward_functions(settings, algorithm, Grader())
    return kind(
        model=load_model(parent, rl.weights_dtype(settings)),
        reward_funcs=rewards,
        args=config,
        train_dataset=rl.prompt_dataset(problems, rl.needs_hints(algorithm)),
        processing_class=load_tokenizer(parent),
        peft_config=lora_config(settings.lora) if settings.lora else None,
        **more,
    )


def is_of_trl(key: str) -> bool:
    """Whether a plain GRPOTrainer logs it too, and again the same."""
    return not ("time" in key or "sage/" in key or key in ("zero_advantages", "drawn_tokens"))
