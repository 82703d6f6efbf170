"""What holds for all rivals: how they are found, what they say, and that they train."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from method_entries import ROWS
from pydantic import ValidationError
from rollout_groups import RAGGED, assert_missing_rollouts_do_not_count
from token_signals import assert_same_in_two_processes
from trainers import SMALL, logged, small_trainer

from sage import rivals
from sage.method.advantages import Centred, GroupNormalised
from sage.method.credit import K1InReward
from sage.named import Named, add_classes
from sage.rivals.apo import ApoPush
from sage.rivals.bbg import BoundaryGated
from sage.rivals.dppo import Dppo
from sage.rivals.f_grpo import FocalGrpo
from sage.rivals.pacs import Pacs
from sage.rivals.pass_at_k import PassAtK
from sage.rivals.pkpo import Pkpo
from sage.rivals.steer import Steer
from sage.rivals.ucpo import Ucpo
from sage.rivals.w_reinforce import WeightedReinforce
from sage.runtime.files import file_sum
from sage.study import CHOICES, RL, Algorithm
from sage.study.algorithms import run_conflicts
from sage.study.choices import RIVALS as PACKAGE
from sage.training import rl
from sage.training.checkpoints import sources

FILES = sorted((ROOT / "sage/rivals").glob("[a-z]*.py"))


def files_of(name: str) -> set[str]:
    """The files of `sage/rivals` that an entry of algorithms.yaml chooses from."""
    choices = Algorithm.model_validate(ROWS[name]).choices()
    modules = {type(choice.made).__module__ for *_, choice in choices}
    return {each.removeprefix("sage.rivals.") for each in modules if "sage.rivals." in each}


RIVALS = [name for name in ROWS if files_of(name)]
KL = {"kl": "reverse", "estimator": "k3"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_has_a_test(file: Path) -> None:
    assert (ROOT / f"tests/rivals/test_{file.stem}.py").is_file()


def test_every_file_serves_an_entry() -> None:
    assert set().union(*map(files_of, RIVALS)) == {file.stem for file in FILES}


OWN = """
class {name}:
    def __init__(self, share: float = 0.5) -> None:
        self.share = share
    def {method}(self, rewards):
        return self.share * rewards
"""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The registries of all rivals with one more file among them, `half_credit.py`."""
    monkeypatch.setattr(rivals, "__path__", [*rivals.__path__, str(tmp_path)])

    def read(text: str) -> dict[str, Named]:
        (tmp_path / "half_credit.py").write_text(text)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        sys.modules.pop("sage.rivals.half_credit", None)
        families = {key: replace(each.family, classes={}) for key, each in CHOICES.items()}
        add_classes(PACKAGE, families.values())
        return families

    return read


def test_a_file_is_enough_for_a_kind_of_its_name(found: Callable[[str], Any]) -> None:
    advantage = found(OWN.format(name="Half", method="advantages"))["advantage"]
    assert advantage.classes["half_credit"] == "sage.rivals.half_credit:Half"
    made = advantage.find("half_credit")(share=0.25)
    assert made.advantages(torch.ones(1, 2)).tolist() == [[0.25, 0.25]]
    assert {"pkpo", "beta"} < advantage.classes.keys()
    with pytest.raises(ValidationError):
        advantage.settings("half_credit")(share="much")


def test_an_estimator_that_sets_advantages_is_no_credit_rule(found: Callable[[str], Any]) -> None:
    families = found(
        OWN.format(name="Half", method="token_advantages") + "    values = token_advantages\n"
    )
    assert "half_credit" in families["estimator"].classes
    assert "half_credit" not in families["credit"].classes


def test_a_class_that_serves_nothing_or_takes_a_kind_is_refused(
    found: Callable[[str], Any],
) -> None:
    useless = OWN.format(name="Half", method="advantage")
    with pytest.raises(ValueError, match=r"half_credit:Half has no method factors, values, adv"):
        found(useless)
    assert "half_credit" not in str(found(useless.replace("Half", "_Half")))
    taken = OWN.format(name="Half", method="advantages") + '    kind = "beta"\n'
    with pytest.raises(ValueError, match=r"Half: 'beta' is sage\.rivals\.bnpo:Beta\w+ already"):
        found(taken)


def test_checkpoints_are_those_of_the_code_of_the_rival(parent: Path) -> None:
    code = {
        name: sources(parent, [], Algorithm.model_validate(ROWS[name]), None)["code"]
        for name in ("pkpo", "grpo_no_kl")
    }
    own = file_sum(Path(sys.modules[Pkpo.__module__].__file__ or ""))
    assert own in code["pkpo"]
    assert own not in code["grpo_no_kl"]
    assert file_sum(Path(rl.__file__)) in {*code["pkpo"]} & {*code["grpo_no_kl"]}


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_can_take_several_steps_a_generation(name: str) -> None:
    settings = RL.model_validate(SMALL.model_dump() | {"steps_per_generation": 4})
    long = settings.sampling.model_copy(update={"max_tokens": 64})
    algorithm = Algorithm.model_validate(ROWS[name])
    large = settings.model_copy(update={"sampling": long, "rollouts": 8})
    assert list(run_conflicts(algorithm, large)) == []
    config = rl.grpo_config(large, algorithm, 1, "cpu", Path("scratch"))
    assert config.steps_per_generation == 4 * config.gradient_accumulation_steps


@pytest.mark.parametrize(
    "row",
    [ROWS["ucpo"] | KL, *map(ROWS.get, ("scope", "unsolved_only", "pacs"))],
    ids=lambda row: row["title"],
)
def test_four_steps_a_generation_train(parent: Path, tmp_path: Path, row: dict[str, Any]) -> None:
    trainer = small_trainer(parent, row, tmp_path, steps_per_generation=4)
    log = logged(trainer)
    assert len(log) == 4
    assert all(math.isfinite(entry["grad_norm"]) for entry in log)
    assert sum("rewards/odd_sum/mean" in entry for entry in log) >= 1


ROW: dict[str, Any] = {"title": "x", "loss": "grpo", "kl": "none"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROWS["pacs"], r"rewards must be \[correct\] alone, not \[correct, overlong\]"),
        (ROW | {"advantage": "beta"}, "fits a Beta density to success rates"),
        (ROW | {"advantage": "pass_at_k"}, "pass_at_k counts right rollouts"),
        (ROW | {"advantage": "pkpo"}, "pkpo counts right rollouts"),
        (ROW | {"advantage": "w_reinforce"}, "tells right from wrong"),
        (ROW | {"credit": "uniqueness"}, "weights right completions only"),
    ],
)
def test_rewards_beside_that_for_a_right_answer_are_refused_with_the_reason(
    row: dict[str, Any], message: str
) -> None:
    overlong = {"kind": "overlong", "settings": {"margin_tokens": 4}}
    with pytest.raises(ValueError, match=message):
        Algorithm.model_validate(row | {"rewards": ["correct", overlong]})


ADVANTAGES = [
    *(GroupNormalised(), Centred(), BoundaryGated(), BoundaryGated(signed=True), FocalGrpo()),
    *(PassAtK(k=2), Pkpo(k=2), WeightedReinforce()),
]


@pytest.mark.parametrize("advantage", ADVANTAGES, ids=str)
def test_missing_rollouts_leave_the_others_as_in_a_smaller_group(advantage: Any) -> None:
    assert_missing_rollouts_do_not_count(advantage)


@pytest.mark.parametrize("advantage", [PassAtK(k=6), Pkpo(k=6)], ids=str)
def test_sets_larger_than_a_group_are_refused(advantage: Any) -> None:
    with pytest.raises(ValueError, match="5 rollouts, fewer than k = 6"):
        advantage.advantages(RAGGED)


RULES = [K1InReward(), ApoPush(), Dppo(), Pacs(), Steer(), Ucpo()]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_micro_batch_in_two_processes_is_as_in_one(rule: Any) -> None:
    assert_same_in_two_processes(rule)
