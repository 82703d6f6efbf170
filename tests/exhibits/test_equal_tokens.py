"""Every method at equal steps and at equal drawn tokens: which snapshots, and the table of both."""

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from peft import get_peft_model
from report_frames import a_study, changed, comparisons, pass_at_k, table_of
from tiny_models import write_tiny

from sage.evaluation.samples import evaluate
from sage.exhibits.equal_tokens import EqualTokensTable, moments
from sage.exhibits.kind import Measuring
from sage.policies import load_model
from sage.problems.record import Problem, write_problems
from sage.rendering.table import TableDocument
from sage.runtime.manifest import Manifest
from sage.study import Draws, LoRA, ResolvedStudy
from sage.training.adapters import lora_config


def history(per_step: float, steps: int) -> list[dict[str, float]]:
    return [{"step": step, "drawn_tokens": per_step * step} for step in range(1, steps + 1)]


def test_each_run_is_looked_at_nearest_to_what_all_have_drawn() -> None:
    histories = {
        ("short", 1): history(10, 8),  # 80 in all: the budget
        ("long", 1): history(30, 8),  # 60 after step 2, 120 after step 4
        ("tied", 1): history(20, 8),  # 40 after step 2, 80 after step 4
        ("between", 1): history(16, 8),  # 64 after step 4, 96 after step 6: as near
    }
    found = moments(histories, dict.fromkeys(histories, (2, 4, 6, 8)))
    assert found["budget"].tolist() == [80.0] * 4
    assert found["step"].tolist() == [8, 2, 4, 4]
    assert found["step_tokens"].tolist() == [80.0, 60.0, 80.0, 64.0]
    assert found["steps"].tolist() == [8] * 4
    assert found["tokens"].tolist() == [80.0, 240.0, 160.0, 128.0]


def test_the_budget_is_of_every_seed() -> None:
    histories = {("grpo", 1): history(10, 4), ("grpo", 2): history(5, 4)}
    found = moments(histories, dict.fromkeys(histories, (1, 2, 3, 4)))
    assert found["budget"].tolist() == [20.0, 20.0]
    assert found["step"].tolist() == [2, 4]


def test_a_history_of_an_earlier_version_is_refused() -> None:
    with pytest.raises(ValueError, match="grpo, seed 1: the history lacks drawn_tokens"):
        moments({("grpo", 1): [{"step": 1, "tokens": 5.0}]}, {("grpo", 1): [1]})


def study(seeds: tuple[int, ...] = (1, 2), k: int | None = None) -> ResolvedStudy:
    shown = EqualTokensTable(
        kind="equal_tokens", title="Methods", model="tiny", benchmark="easy", k=k
    )
    return changed(a_study(seeds=seeds), exhibits={"methods": shown})


def values_with(*branch: tuple[str, int, float]) -> pd.DataFrame:
    """Those of the base and of GRPO are the same at both moments; intervals reach 0.1 each way."""
    common = [("base", 1, 0.30), ("base", 4, 0.70), ("grpo", 1, 0.60), ("grpo", 4, 0.50)]
    rows = [
        (name, "easy", k, v, round(v - 0.1, 2), round(v + 0.1, 2))
        for name, k, v in (*common, *branch)
    ]
    return pass_at_k(rows, seeds=(1, 2))


GAINS = [("grpo", "base", "easy", 1, 0.30, 0.001)]
FRAMES = {
    "pass_at_k": values_with(("branch", 1, 0.62), ("branch", 4, 0.65)),
    "comparisons": comparisons(
        [
            *GAINS,
            ("branch", "base", "easy", 1, 0.32, 0.001),
            ("branch", "grpo", "easy", 1, 0.02, 0.8),
        ]
    ),
    "tokens/pass_at_k": values_with(("branch", 1, 0.45), ("branch", 4, 0.68)),
    "tokens/comparisons": comparisons(
        [
            *GAINS,
            ("grpo", "branch", "easy", 1, 0.15, 0.01),
            ("branch", "base", "easy", 1, 0.15, 0.03),
        ]
    ),
}
MOMENTS = pd.DataFrame(
    [
        ("grpo", 1, 40, 2.0e6, 2.0e6, 40, 2.0e6),
        ("grpo", 2, 40, 2.2e6, 2.0e6, 40, 2.2e6),
        ("branch", 1, 40, 4.0e6, 2.0e6, 20, 2.0e6),
        ("branch", 2, 40, 4.5e6, 2.0e6, 16, 1.9e6),
    ],
    columns=["algorithm", "train_seed", "steps", "tokens", "budget", "step", "step_tokens"],
)


def document() -> TableDocument:
    return table_of(study(), "methods", moments=MOMENTS, **FRAMES)


def test_one_row_holds_a_method_at_both_moments() -> None:
    table = document().frame.set_index("algorithm")
    branch = table.loc["branch"]
    assert branch["steps pass@1 value"] == 0.62
    assert branch["tokens pass@1 value"] == 0.45
    assert branch["tokens pass@4 high"] == 0.78
    ends = [branch[f"step_tokens{part}"] for part in ("", " low", " high")]
    assert ends == [1.95e6, 1.9e6, 2.0e6]
    assert (branch["step"], branch["steps"], branch["tokens"]) == (18.0, 40.0, 4.25e6)
    # At equal steps the two are tied; at equal tokens GRPO is above both others.
    assert table["steps pass@1 mark"].tolist() == ["", "tie", "tie"]
    assert table["tokens pass@1 mark"].tolist() == ["", "best", ""]
    assert pd.isna(table.loc["base", "step"])


def test_readers_see_percent_steps_and_millions_of_tokens() -> None:
    table = document().table
    assert [head.title for head in table.heads] == ["Equal steps", "Equal tokens"]
    assert table.heads[0].columns == ("pass@1", "pass@4", "step", "tokens (M)")
    base, grpo, branch = table.groups[0].rows
    assert [cell.text for cell in branch.cells] == [
        *("62.0", "65.0", "40", "4.25"),
        *("45.0", "68.0", "18", "1.95"),
    ]
    assert [cell.small for cell in branch.cells[4:]] == [
        *("35.0–55.0", "58.0–78.0", "16–20", "1.9–2"),
    ]
    assert [cell.small for cell in grpo.cells[2:4]] == ["", "2–2.2"]
    assert [cell.text for cell in base.cells[2:4]] == ["–", "–"]


def test_the_caption_says_what_the_budget_is_and_how_near_the_snapshots_are() -> None:
    caption = document().caption
    assert "nearest to 2 million" in caption
    assert "−5.0 % and +10.0 %" in caption
    assert "worth 2.5 points" in caption
    evaluation = study().study.evaluation.model_copy(update={"seeds": [0, 1]})
    twice = changed(study(), evaluation=evaluation)
    caption = table_of(twice, "methods", moments=MOMENTS, **FRAMES).caption
    assert "(2 seeds)" in caption


def test_a_run_that_ends_at_the_budget_is_not_sampled_again(tmp_path: Path) -> None:
    """Two adapters on a random model: one ends at the budget, the other is there halfway."""
    problems = [Problem(f"{a}", f"{a}+1", str(a + 1), "math", "1", "test", "0") for a in range(3)]
    base = write_tiny(tmp_path / "base", [p.problem for p in problems], layers=1)
    settings = Draws.model_validate(
        {"samples": 4, "seeds": [0], "batch_size": 12}
        | {"sampling": {"temperature": 1.0, "max_tokens": 6}}
    )
    manifest = Manifest({}, 1, time.time())
    policies, samples = [], []
    for algorithm, per_step in (("grpo", 10), ("dapo_full", 20)):
        policy = tmp_path / "models" / algorithm / "seed1"
        for size, folder in enumerate(("snapshots/step1", "snapshots/step2", "")):
            adapted: Any = get_peft_model(load_model(base), lora_config(LoRA(rank=2, alpha=4)))
            torch.manual_seed(size)
            for name, weight in adapted.named_parameters():
                if "lora_B" in name:
                    weight.data.normal_(0.0, 0.5)
            adapted.save_pretrained(policy / folder)
        rows = (json.dumps(row) for row in history(per_step, 2))
        (policy / "history.jsonl").write_text("\n".join(rows))
        policies.append(policy)
        samples.append(tmp_path / "samples/tiny" / algorithm / "seed1/easy.parquet")
    common: dict[str, Any] = {"base": base, "problems": problems, "settings": settings}
    common |= {"device": "cpu", "model": "tiny", "benchmark": "easy", "manifest": manifest}
    for policy, output in zip(policies, samples, strict=True):
        shards = output.with_suffix("")
        evaluate(**common, policy=policy, train_seed=1, shards=shards, output=output)
    folder, problem_file = tmp_path / "methods", tmp_path / "easy.jsonl"
    folder.mkdir()
    write_problems(problems, problem_file)
    files = {"samples": samples, "base": [base], "policies": policies, "problems": [problem_file]}
    own = {"evaluation": settings.model_dump(), "bootstrap": 100}
    job = Measuring(files, own, folder, "cpu", tmp_path / "shards", manifest)
    described = {"title": "A", "kind": "equal_tokens", "model": "tiny", "benchmark": "easy"}
    EqualTokensTable.model_validate(described | {"snapshots": 2}).measure(job)
    tokens = json.loads((folder / "manifest.json").read_text())["tokens"]
    drawn = list((tmp_path / "shards").rglob("easy.parquet"))
    assert [path.parts[-5:-1] for path in drawn] == [("step1", "tiny", "dapo_full", "seed1")]
    assert tokens == pd.read_parquet(drawn[0])["n_tokens"].sum() > 0
    assert pd.read_parquet(folder / "moments.parquet")["step"].tolist() == [2, 1]
    rows = pd.read_parquet(folder / "tokens/pass_at_k.parquet")
    assert set(rows["algorithm"]) == {"grpo", "dapo_full"}
    assert set(rows["k"]) == {1, 2, 4}
    assert (folder / "tokens/comparisons.parquet").is_file()
