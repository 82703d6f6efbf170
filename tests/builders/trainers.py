"""What tests of training share: random tiny models, and trainers as `train_rl` builds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tiny_models import write_tiny

from sage.policies import load_model, load_tokenizer
from sage.problems.record import Problem
from sage.study import RL, Algorithm
from sage.tasks import Grader
from sage.training import rl
from sage.training.adapters import lora_config
from sage.training.drawers import drawer_for
from sage.training.processes import world_size
from sage.training.trainer import SageTrainer


def odd_length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that also an untrained policy earns now and then."""
    return [float(len(ids) % 2) for ids in completion_ids]


def write_parent(folder: Path, problems: Sequence[Problem], spread: float = 1.0) -> Path:
    """A random tiny model in `folder`; a `spread` above 1 makes tokens differ in probability."""
    write_tiny(folder, [p.problem for p in problems], spread=spread)
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
    rewards = (
        [reward] if reward else rl.reward_functions(settings, algorithm, Grader(), config.seed)
    )
    return kind(
        model=load_model(parent, rl.weights_dtype(settings)),
        reward_funcs=rewards,
        args=config,
        train_dataset=rl.prompt_dataset(
            problems, rl.needs_hints(algorithm), rl.needs_strategies(algorithm)
        ),
        processing_class=load_tokenizer(parent),
        peft_config=lora_config(settings.lora) if settings.lora else None,
        **more,
    )


def is_of_trl(key: str) -> bool:
    """Whether a plain GRPOTrainer logs it too, and again the same."""
    own = ("time", "sage/", "step/", "zero_advantages", "drawn_tokens")
    return not any(name in key for name in own)


def odd_sum(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that half of all completions earn."""
    return [float(sum(ids) % 2) for ids in completion_ids]


SUMS = [
    Problem(f"{a}+{b}", f"{a}+{b}", str(a + b), "math", "1", "test", "0")
    for a in range(5)
    for b in range(5)
]
SMALL = RL.model_validate(
    {
        "problems": "sums",
        "steps": 4,
        "prompts_per_step": 4,
        "rollouts": 4,
        "sampling": {"temperature": 1.0, "max_tokens": 24, "stop": list("aeiou13579")},
        "learning_rate": 3e-3,
        "schedule": "linear",
        "warmup_ratio": 0.0,
        "weight_decay": 0.01,
        "kl_coefficient": 0.2,
        "lora": {"rank": 4, "alpha": 8},
    }
)


def small_trainer(
    parent: Path,
    row: dict[str, Any],
    scratch: Path,
    reward: Callable[..., list[float]] | None = odd_sum,
    trl: dict[str, Any] | None = None,
    **changes: Any,
) -> Any:
    """A trainer of `row` with SMALL and `changes`, as `train_rl` builds it.

    Without a `reward` the row's own are graded.
    """
    settings = RL.model_validate(SMALL.model_dump() | changes)
    algorithm = Algorithm.model_validate(row)
    return trainer_of(
        parent,
        SUMS,
        settings,
        algorithm,
        scratch,
        reward=reward,
        trl=trl,
        shaping=rl.shaping_of(algorithm),
        stop_texts=settings.sampling.stop,
        micro_batches=settings.micro_batches,
        make_drawer=drawer_for(settings, load_model(parent), parent, sharded=False),
        trims=True,
    )


def unbroken_and_resumed(
    parent: Path, row: dict[str, Any], scratch: Path, **more: Any
) -> tuple[Any, Any]:
    """Two trainers after SMALL's four steps; the second continued the first's checkpoint of two."""
    saving = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": None}
    whole, resumed = (
        small_trainer(parent, row, scratch / "run", trl=saving, **more) for _ in range(2)
    )
    whole.train()
    resumed.train(resume_from_checkpoint=str(scratch / "run/checkpoint-2"))
    return whole, resumed


def assert_same_run(whole: Any, resumed: Any) -> None:
    """Weights, logs and what the choices remember are equal to the last bit."""
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    logs = [
        [
            {key: value for key, value in row.items() if "time" not in key}
            for row in trainer.state.log_history
            if "loss" in row
        ]
        for trainer in (whole, resumed)
    ]
    assert len(logs[0]) == 4
    assert logs[0] == logs[1]
    states = [trainer.shaping.states() for trainer in (whole, resumed)]
    assert states[0]
    planners = [state.pop("planner", None) for state in states]  # texts, which torch cannot compare
    assert planners[0] == planners[1]
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


def logged(trainer: Any) -> list[dict[str, Any]]:
    """Train, and return what each step has logged."""
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]
