"""The package in a script of one's own: the lines in the docs, what is public, and the wheel."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from datasets import Dataset
from tiny_models import write_tiny
from trainers import odd_sum
from trl import GRPOConfig

from sage.evaluation.pass_at_k import pass_at_k_with_intervals
from sage.method.anchors import K2
from sage.method.credit import K1InReward
from sage.method.guides import BranchGuide
from sage.policies import PRODUCTS, load_model, load_tokenizer
from sage.prompting import last_boxed
from sage.rivals.steer import Steer
from sage.runtime.manifest import hardware
from sage.sampling.interface import complete
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Sampling
from sage.tasks import Grader
from sage.training.drawers import transformers_rollouts
from sage.training.rewards import graded_reward
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

LIGHT = [
    "sage.method.advantages",
    "sage.method.anchors",
    "sage.method.credit",
    "sage.grading",
    "sage.method.guides",
    "sage.method.planners",
    "sage.method.rewards",
    *sorted(f"sage.rivals.{path.stem}" for path in (ROOT / "sage/rivals").glob("[a-z]*.py")),
    "sage.sampling.interface",
]
PUBLIC = [
    *LIGHT,
    "sage.evaluation.pass_at_k",
    "sage.sampling.transformers_engine",
    "sage.training.drawers",
    "sage.training.rewards",
    "sage.training.shaping",
    "sage.training.trainer",
]
SUMS = [f"{a}+{b}" for a in range(4) for b in range(4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model with its tokenizer."""
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny", SUMS, max_positions=256)


def test_products_of_float32_may_be_rounded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests say so, also without a GPU; by default nothing is rounded, and nothing is said."""
    before = torch.get_float32_matmul_precision()
    load_model(model)
    assert torch.get_float32_matmul_precision() == before
    try:
        monkeypatch.setenv(PRODUCTS, "medium")
        load_model(model)
        assert hardware()["float32_products"] == torch.get_float32_matmul_precision() == "medium"
        monkeypatch.setenv(PRODUCTS, "low")
        with pytest.raises(ValueError, match="SAGE_FLOAT32_PRODUCTS=low: set one of highest, high"):
            load_model(model)
    finally:
        torch.set_float32_matmul_precision(before)
    assert "float32_products" not in hardware()


def config_in(folder: Path, **changes: Any) -> GRPOConfig:
    """TRL's arguments of a run of two steps."""
    settings = {
        "beta": 0.04,
        "use_bias_correction_kl": False,
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 12,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
    }
    return GRPOConfig(str(folder), **(settings | changes))


DATASET = Dataset.from_list([{"prompt": each, "answer": str(eval(each))} for each in SUMS])


def block_of(page: str, heading: str) -> str:
    """The Python of a page's section."""
    section = (ROOT / page).read_text().split(f"## {heading}\n")[1]
    (block,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.S)
    return str(block)


@pytest.mark.parametrize(
    ("page", "heading"),
    [("docs/method.md", "In a script of your own"), ("README.md", "Your own")],
)
def test_the_documented_trainer_trains_with_the_guide(
    page: str, heading: str, model: Path, tmp_path: Path
) -> None:
    names: dict[str, Any] = {
        "model": str(model),
        "config": config_in(tmp_path),
        "dataset": DATASET,
        "reward": odd_sum,
    }
    exec(block_of(page, heading), names)
    trainer = names["trainer"]
    log = [row for row in trainer.state.log_history if "loss" in row]
    assert len(log) == 2
    # A random model of 300 tokens is near 5.7 nats, so that its factors reach the clamp.
    assert log[0]["sage/q_mean"] == pytest.approx(1.4, abs=1e-4)
    assert any(key.startswith("rewards/") for key in log[0])


def trainer_in(folder: Path, model: Path, more: dict[str, Any], **trl: Any) -> SageTrainer:
    args, names = config_in(folder, **trl), {"model": str(model), "train_dataset": DATASET}
    return SageTrainer(reward_funcs=odd_sum, args=args, **names, **more)


def test_a_choice_is_given_as_an_object(model: Path, tmp_path: Path) -> None:
    def trainer(shaping: Shaping, **changes: Any) -> SageTrainer:
        return trainer_in(tmp_path, model, {"shaping": shaping}, **changes)

    for estimator in (K2(), K1InReward()):
        trainer(Shaping(estimator=estimator)).train()
    with pytest.raises(ValueError, match="K1InReward and credit rule Steer both set"):
        Shaping(estimator=K1InReward(), credit=Steer())


@pytest.mark.parametrize(
    ("shaping", "named", "paper"),
    [
        (Shaping(guide=BranchGuide(ratio=0.3)), "SAGE (guide BranchGuide(ratio=0.3", "2605.18864"),
        (Shaping(estimator=K2()), "GRPO (estimator K2())", "2402.03300"),
        (Shaping(), "trained with GRPO,", "2402.03300"),
    ],
)
def test_the_model_card_names_the_method_and_its_paper(
    model: Path, tmp_path: Path, shaping: Shaping, named: str, paper: str
) -> None:
    trainer = trainer_in(tmp_path, model, {"shaping": shaping})
    trainer.create_model_card("mine")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert named in card
    assert f"https://huggingface.co/papers/{paper}" in card
    assert ("- sage\n" in card) == (shaping.guide is not None)


def test_rollouts_follow_the_arguments_of_trl(model: Path, tmp_path: Path) -> None:
    def trainer(**changes: Any) -> SageTrainer:
        more = {"stop_texts": ["1"], "make_drawer": transformers_rollouts()}
        return trainer_in(tmp_path, model, more, **changes)

    drawn = trainer()
    drawn.train()
    lengths = [row["completions/max_length"] for row in drawn.state.log_history if "loss" in row]
    assert max(lengths) <= 12


def test_the_graders_reward_reads_texts_and_conversations() -> None:
    grader = Grader()
    reward = graded_reward(grader)
    talk = [{"role": "assistant", "content": "<SOLUTION>4</SOLUTION>"}]
    assert reward(completions=[talk, "<SOLUTION>5</SOLUTION>"], answer=["4", "4"]) == [1.0, 0.0]
    by_name = graded_reward(grader, answer="gold")
    assert by_name(completions=["<SOLUTION>7</SOLUTION>"], gold=[7]) == [1.0]
    with pytest.raises(ValueError, match="no column 'answer'"):
        reward(completions=["<SOLUTION>7</SOLUTION>"], gold=["7"])
    grader = Grader(find_answer=last_boxed)
    assert grader.grade(r"so \boxed{4}", "4", "math").status == "correct"
    assert grader.grade("<SOLUTION>4</SOLUTION>", "4", "math").status == "unparsed"


def test_pass_at_k_from_verdicts_alone() -> None:
    # One of two right, and both: pass@1 is (1/2 + 1) / 2, pass@2 is 1.
    table = pass_at_k_with_intervals([[1, 0], [1, 1]])
    assert table["k"].tolist() == [1, 2]
    assert table["value"].tolist() == [0.75, 1.0]
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()
    runs = pass_at_k_with_intervals([[[1, 0], [1, 1]], [[0, 0], [1, 1]]], ks=[1])
    assert runs["value"].tolist() == [0.625]
    assert runs["n_runs"].tolist() == [2]
    for wrong, message in [
        ([[0.5, 1.0]], "0 and 1 only"),
        ([1, 0], "shape"),
        ([[1], [1, 0]], "equally many"),
    ]:
        with pytest.raises(ValueError, match=message):
            pass_at_k_with_intervals(wrong)


def test_completions_of_a_prompt_depend_on_it_and_the_seed_alone(model: Path) -> None:
    tokenizer = load_tokenizer(model)
    sampler = TransformersSampler.from_model(load_model(model), tokenizer, batch_size=5)
    sampling = Sampling(temperature=1.0, max_tokens=6)
    talk = [{"role": "user", "content": "1+2"}]
    both = complete(sampler, tokenizer, ["1+1", talk], sampling, samples=3)
    assert [len(each) for each in both] == [3, 3]
    assert len({each.token_ids for each in both[0]}) == 3
    assert complete(sampler, tokenizer, [talk], sampling, samples=3)[0] == both[1]
    assert complete(sampler, tokenizer, ["1+1"], sampling, samples=3, seed=1)[0] != both[0]
    with pytest.raises(ValueError, match="at least 1"):
        complete(sampler, tokenizer, ["1+1"], sampling, samples=0)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_explained(name: str) -> None:
    module = importlib.import_module(name)
    own = {
        key: value
        for key, value in vars(module).items()
        if getattr(value, "__module__", "") == name and not key.startswith("_")
    }
    assert own
    for key, value in own.items():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{key}"


def test_importing_the_light_modules_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "trl", "pandas", "scipy", "datasets")
    code = f"import sys, {', '.join(LIGHT)}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


DATA = (
    "sage/py.typed",
    "sage/study/open_choices.yaml",
    "sage/tools/speeds.json",
    "sage/training/settings.yaml",
)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.mark.slow
def test_the_wheel_works_without_the_repository(tmp_path: Path) -> None:
    source = tmp_path / "source"
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "sage").rglob("*.py")]
    for name in [*modules, *DATA, "pyproject.toml", "LICENSE", "README.md"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    # What `python -m build --wheel --no-isolation` calls.
    subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)], cwd=source, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    of_package = {name for name in packed if ".dist-info/" not in name}
    assert of_package == {*modules, *DATA}
    code = (
        "import sage; from sage.method.guides import BranchGuide; from sage.tasks import Grader\n"
        "from sage.training.shaping import Shaping\n"
        "Shaping(guide=BranchGuide())\n"
        "print(Grader().grade('<SOLUTION>1/2</SOLUTION>', r'\\frac{1}{2}', 'math').status)\n"
        "print(sage.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["correct", str(tmp_path / "site/sage/__init__.py")], done.stderr
