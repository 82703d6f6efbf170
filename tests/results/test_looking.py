"""When a policy learns to look: read from its rewards, and foretold from its base's gradients."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from scipy.stats import spearmanr

from benchmarks.looking import FILE, apart, looks_from, own_part, table
from sage.policies import build_tiny, save_checkpoint, train_tokenizer
from sage.problems.sums import STRATEGIES, draw_sheet
from sage.study import Architecture


def test_a_run_looks_once_its_rewards_are_above_what_none_that_does_not_look_can_have() -> None:
    rewards = [0.5] * 30 + [1.0] * 30
    steps = [{"reward": reward} for reward in rewards]
    # Of 20 steps 12 at 1.0 and 8 at 0.5 have the mean 0.8, and 13 are above it.
    assert looks_from(steps) == 43
    assert looks_from(steps[:40]) == 0


def test_a_base_that_cannot_tell_digits_apart_has_the_same_gradient_on_all_sheets(
    tmp_path: Path,
) -> None:
    rng = random.Random(0)
    texts = [f"P T {draw_sheet(rng, name, 5).text}" for name in STRATEGIES for _ in range(50)]
    tokenizer = train_tokenizer(texts, 330)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "layers": 2, "heads": 2}
    sizes |= {"key_value_heads": 1, "max_positions": 128, "vocab_size": 330}
    model = build_tiny(Architecture.model_validate(sizes), tokenizer, 0)
    save_checkpoint(model, tokenizer, tmp_path / "sees")
    assert own_part(tmp_path / "sees", sheets=20)["own"] > 1e-4
    digits = [tokenizer.convert_tokens_to_ids(digit) for digit in "0123456789"]
    with torch.no_grad():
        weights = model.get_input_embeddings().weight
        weights[digits] = weights[digits[0]].clone()
    save_checkpoint(model, tokenizer, tmp_path / "blind")
    assert own_part(tmp_path / "blind", sheets=20)["own"] == pytest.approx(0, abs=1e-6)


def test_bases_stand_in_the_order_of_their_own_part() -> None:
    one, other = {"own": 0.001, "runs": {"grpo": [300, 98.0]}}, {"grpo": [0, 1.5]}
    rows = table({"a": one, "b": {"own": 0.004, "runs": other}}).splitlines()
    assert rows[2:] == ["| `b` | 0.0040 | none, 1.5 |", "| `a` | 0.0010 | 300, 98.0 |"]
    assert apart({"plain_on_plain": 0.995, "plain_on_turn": 0.001}) == 99.4


def test_the_pages_hold_the_tables_and_the_correlation() -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    page = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    both = [kept["looking"], kept["long_bases"]]
    assert all(table(found).strip() in page for found in both)
    bases = [base for found in both for base in found.values()]
    steps = ((base["own"], base["runs"]["grpo_k1_reward"][0]) for base in bases)
    columns = zip(*steps, strict=True)
    assert round(float(spearmanr(*columns).statistic), 2) == -0.04
    looks = [points for base in bases for _, points in base["runs"].values()]
    assert len(looks) == 10
    assert min(looks) > 92
