"""The overhead of a guide: a step of grpo_branch compared with a step of grpo, time and memory.

Both trainers run for real, one step each in turn, with a learning rate of 0: so both draw the same
completions from a random model, and do the same work. It is tiny on a CPU and has about 80 M
parameters on a GPU. Memory is the peak of a separate process; on a GPU, the peak of its tensors.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.paired import Comparison, overhead
from benchmarks.turns import pairs_in_turn
from sage.exhibits import load_study
from sage.grading import Grader
from sage.policies import build_tiny, save_checkpoint, train_tokenizer
from sage.problems.sets import draw_problems
from sage.study import RL, Algorithm
from sage.training import rl
from sage.training.pretrain import draw_documents
from sage.training.trainer import SageTrainer

ROOT = Path(__file__).resolve().parents[1]
STEPS, WARM_UP = 40, 5
ROWS = ("grpo_branch", "grpo")
ON_A_GPU = {"hidden_size": 768, "intermediate_size": 2304, "layers": 12, "heads": 12}
LIMITS = {"cpu": (1.03, 1.02), "cuda": (1.02, 1.02)}


def comparisons(device: str = "cpu", steps: int = STEPS) -> Iterator[Comparison]:
    """Seconds per step, and peak memory of a run."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "parent"
        write_parent(parent, ON_A_GPU if device == "cuda" else {})
        pair = [_trainer(row, parent, Path(folder), device, steps) for row in ROWS]
        times = pairs_in_turn(pair, steps, WARM_UP)
        yield overhead("a step of grpo_branch over one of grpo", times, LIMITS[device][0])
        peaks = {row: _peak_in_own_process(row, parent, Path(folder), device) for row in ROWS}
        memory = (peaks["grpo_branch"], peaks["grpo"])
        yield overhead("peak memory of grpo_branch over grpo", [memory], LIMITS[device][1], "GiB")


def write_parent(folder: Path, changes: dict[str, int]) -> None:
    base = load_study("mini", ROOT / "config").model("sums").base
    settings = base.pretraining.model_copy(update={"documents": 2_000})
    texts = [problem + solution for problem, solution in draw_documents(base.corpus, settings)]
    tokenizer = train_tokenizer(texts, base.architecture.vocab_size)
    architecture = base.architecture.model_copy(update=changes)
    save_checkpoint(build_tiny(architecture, tokenizer, 0), tokenizer, folder)


def _trainer(row: str, parent: Path, scratch: Path, device: str, steps: int) -> SageTrainer:
    study = load_study("mini", ROOT / "config")
    changes = {"steps": steps, "learning_rate": 0.0}
    settings: RL = study.model("sums").rl.model_copy(update=changes)
    algorithm: Algorithm = study.algorithms[row]
    problems = draw_problems(
        settings.problems, study.study.problems[settings.problems].model_dump()
    )
    config = rl.grpo_config(settings, algorithm, 1, device, scratch / row)
    config.save_strategy, config.disable_tqdm = "no", True
    return rl.build_trainer(SageTrainer, parent, problems, settings, algorithm, config, Grader())


def _peak_in_own_process(row: str, parent: Path, scratch: Path, device: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", row, str(parent), str(scratch), device],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    import resource

    warnings.simplefilter("ignore")
    row, parent, scratch, device = sys.argv[1:]
    _trainer(row, Path(parent), Path(scratch), device, 8).train()
    if device == "cuda":
        print(torch.cuda.max_memory_allocated() / 2**30)
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
