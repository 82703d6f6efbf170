"""What switching a reading does: each effect on numbers worked by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import ROOT
from report_frames import table_of
from test_sft import merging_tokenizer, tiny
from transformers import Qwen2ForCausalLM

from sage.analysis.switching import (
    of_batching,
    of_pass_at_1,
    of_reference,
    of_room,
    of_schedule,
    of_template,
)
from sage.exhibits import load_study
from sage.exhibits.readings import OPEN
from sage.policies import load_model
from sage.problems.record import Problem
from sage.study import RL
from sage.study.readings import READINGS

MINI = load_study("mini", ROOT / "config")


def rl_with(**changes: object) -> RL:
    return MINI.model("sums").rl.model_copy(update=changes)


def samples_of(**columns: list[object]) -> pd.DataFrame:
    size = len(next(iter(columns.values())))
    return pd.DataFrame({"eval_seed": [0] * size, "sample_index": range(size), **columns})


def test_a_constant_rate_is_a_larger_dose() -> None:
    """Ten steps, two of warm-up: 0, 1/2, then 8/8 to 1/8, or 1 eight times; `constant` has none."""
    found = {
        answer: value for _, answer, _, value in of_schedule(rl_with(steps=10, warmup_ratio=0.2))
    }
    assert found == pytest.approx(
        {
            "linear": (0.5 + 4.5) / 10,
            "constant": 1.0,
            "constant_with_warmup": (0.5 + 8) / 10,
        }
    )


def test_the_same_rollouts_make_eight_times_the_steps() -> None:
    lengths: list[object] = [2, 4, 3, 12]
    samples = samples_of(problem_id=["a", "a", "b", "b"], n_tokens=lengths)
    found = {row[1:3]: row[3] for row in of_batching(rl_with(), samples)}
    steps, reused = "optimizer steps for the run's rollouts", "share of steps off-policy"
    assert found["completions", steps] == 800
    assert found["prompts", steps] == 100
    assert (found["completions", reused], found["prompts", reused]) == (0.5, 0.0)
    weights = {answer: value for (answer, what), value in found.items() if "BNPO" in what}
    assert weights == {
        "one mean over a prompt's completions": 1,
        "a mean for each completion": 3,  # the median of 4/2 and 12/3
    }
    other = [row[2] for row in of_batching(rl_with(rollouts=4), samples)]
    assert steps not in other  # with other rollouts the question does not arise


def test_half_the_room_cuts_what_is_longer_than_half() -> None:
    rl = rl_with()
    rl = rl.model_copy(update={"sampling": rl.sampling.model_copy(update={"max_tokens": 8})})
    samples = samples_of(n_tokens=[2, 4, 5, 8], status=["wrong", "correct", "correct", "wrong"])
    found = {row[1:3]: row[3] for row in of_room(rl, samples)}
    assert found["half", "share of completions over 4 tokens"] == 0.5
    assert found["half", "the same of correct ones, 4 tokens"] == 0.5
    assert found["whole", "share of completions over 8 tokens"] == 0


def test_the_release_counts_its_last_problem_only() -> None:
    status: list[object] = ["correct", "correct", "wrong", "wrong", "wrong", *["correct"] * 3]
    samples = samples_of(problem_id=["a"] * 4 + ["b"] * 4, status=status)
    problems = [Problem(name, "?", "1", "math", "", "", "") for name in ("a", "b")]
    found = [row[3] for row in of_pass_at_1(samples, problems)]
    assert found == [(0.5 + 0.75) / 2, (1 + 0) / 2, 3 / 2]  # the last is no share at all


def test_a_template_has_its_own_length() -> None:
    tokenizer = merging_tokenizer()
    own = tokenizer.chat_template
    problem = Problem("a", "What is 6 times 7?", "42", "math", "", "", "")
    found = {answer: value for _, answer, _, value in of_template([problem], tokenizer)}
    assert tokenizer.chat_template == own
    # ChatML writes a role, two tags and line breaks around each of two messages.
    assert found["own"] > found["unsloth"] > 0


def test_another_reference_has_a_kl_term_from_the_first_step(tmp_path: Path) -> None:
    torch.manual_seed(0)  # else an earlier test may have left the state that is set below
    parent = tiny(tmp_path / "parent")
    torch.manual_seed(1)
    other: Qwen2ForCausalLM = Qwen2ForCausalLM(load_model(parent).config)
    pretrained = tiny(tmp_path / "pretrained")
    other.save_pretrained(pretrained)
    problems = [Problem("a", "What is 6 times 7?", "42", "math", "", "", "")]
    samples = pd.DataFrame({"problem_id": ["a"], "n_tokens": [3], "token_ids": [[5, 6, 7]]})
    same = [row[3] for row in of_reference(parent, parent, problems, samples, "cpu")]
    assert same == [0.0, pytest.approx(0.0, abs=1e-9)]
    (_, released) = of_reference(pretrained, parent, problems, samples, "cpu")
    assert released[3] > 1e-6


def test_a_reading_without_an_effect_here_says_why() -> None:
    measured = set(READINGS) - set(OPEN) - {"chat_template"}
    effects = pd.DataFrame(
        [(name, answer, "what", 1.0) for name in measured for answer in READINGS[name].choices],
        columns=["reading", "answer", "quantity", "value"],
    )
    document = table_of(MINI, "effects", effects=effects)
    table = document.frame
    assert set(table["reading"]) >= set(READINGS)
    open_rows = table[table["value"].isna()].set_index("reading")["quantity"]
    assert set(open_rows.index) == {*OPEN, "chat_template", "pass_at_1"}
    assert open_rows["forward_kl"] == "not measured here: needs training"
    in_force = table[table["in_force"]].set_index("reading")["answer"]
    assert (in_force["sft_length"], in_force["schedule"]) == ("prompt", "linear")
    assert in_force["kl_reference"] == "paper"  # of every row with such a term
    assert len(document.table.groups) == table["reading"].nunique()


def test_every_reading_has_an_effect_in_the_smoke_study_or_a_reason(smoke: Path) -> None:
    table = pd.read_csv(smoke / "report/tables/effects.csv")
    measured = set(table.loc[table["value"].notna(), "reading"])
    assert measured == (set(READINGS) - set(OPEN)) | {"pass_at_1"}
