"""A row of history per optimizer step, whatever one generation of rollouts serves."""

from sage.training.history import history_rows

FIRST = {
    "step": 1,
    "reward": 0.5,
    "rewards/correct/mean": 0.5,
    "rewards/brief/mean": 0.25,
    "num_tokens": 100.0,
    "drawn_tokens": 60.0,
    "learning_rate": 1e-3,
    "grad_norm": 0.1,
    "step/kl": 0.01,
}
SECOND = {"step": 2, "learning_rate": 5e-4, "grad_norm": 0.3, "step/kl": 0.02}


def test_a_step_that_draws_nothing_keeps_the_rollouts_it_learns_from() -> None:
    one, two = history_rows([FIRST, SECOND])
    assert (one["step"], two["step"]) == (1, 2)
    assert [two[key] for key in ("reward", "brief", "tokens", "drawn_tokens")] == [
        *(0.5, 0.25, 100.0, 60.0)
    ]
    assert (two["grad_norm"], two["kl"]) == (0.3, 0.02)  # its own


def test_a_new_generation_replaces_the_last() -> None:
    third = FIRST | {"step": 3, "rewards/correct/mean": 0.75, "num_tokens": 200.0}
    assert [row["reward"] for row in history_rows([FIRST, SECOND, third])] == [0.5, 0.5, 0.75]


def test_what_is_no_step_is_left_out() -> None:
    log = [FIRST, {"step": 1, "eval_reward": 0.1}, {"step": 1, "train_runtime": 3.0}]
    assert [row["step"] for row in history_rows(log)] == [1]
