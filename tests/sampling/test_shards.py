"""Shards of samples: nothing is drawn twice, and a killed job ends with the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from sampled import sampling

from sage.evaluation.samples import evaluate, evaluate_all
from sage.problems.record import Problem
from sage.runtime.identity import checkpoint_digest, code_digest
from sage.runtime.manifest import Manifest
from sage.sampling import transformers_engine
from sage.sampling.interface import Completion
from sage.sampling.shards import Sample, Shards
from sage.study import Draws

pytestmark = [pytest.mark.usefixtures("one_thread")]

PROMPTS = {f"p{i}": (1, 2, i) for i in range(40)}
SETTINGS = {"temperature": 1.0}


class Recorder:
    """Stands for a sampler: remembers what was asked, answers with the sample's own name."""

    def __init__(self) -> None:
        self.asked: list[Sample] = []

    def __call__(self, samples: Sequence[Sample]) -> list[Completion]:
        self.asked += samples
        return [Completion(repr(sample), (1, 2, 3), "stop") for sample in samples]


def drawn(folder: Path, seeds: list[int], samples: int, size: int = 64, **changes: object) -> int:
    """Draw what is missing, check that all is there as asked, and return how much was drawn."""
    settings = {**SETTINGS, **{k: v for k, v in changes.items() if k != "prompts"}}
    prompts = changes.get("prompts", PROMPTS)
    shards, recorder = Shards(folder, settings, prompts), Recorder()  # type: ignore[arg-type]
    shards.draw(shards.missing(seeds, samples, size), recorder)
    assert shards.missing(seeds, samples, size) == []
    found = pd.concat(list(shards.chunks(seeds, samples)), ignore_index=True)
    keys = [(p, s, i) for p in prompts for s in seeds for i in range(samples)]  # type: ignore[attr-defined]
    assert list(found[["problem_id", "eval_seed", "sample_index"]].itertuples(index=False)) == keys
    assert found["completion"].tolist() == [repr(key) for key in keys]
    assert len(set(recorder.asked)) == len(recorder.asked)
    return len(recorder.asked)


def test_more_samples_seeds_or_problems_reuse_what_is_there(tmp_path: Path) -> None:
    assert drawn(tmp_path, [0], 5) == 40 * 5
    assert drawn(tmp_path, [0], 5) == 0
    assert drawn(tmp_path, [0], 3) == 0
    assert drawn(tmp_path, [0], 8, size=1000) == 40 * 3
    assert drawn(tmp_path, [0, 7], 8, size=1) == 40 * 8
    more = {**PROMPTS, "new": (9,)}
    assert drawn(tmp_path, [0, 7], 8, prompts=more) == 9 * 8 * 2  # the last 8 problems and it


@pytest.mark.parametrize(
    ("samples", "size", "parts"),
    [
        (2, 1000, [80]),
        (2, 50, [32, 48]),
        (4, 64, [64, 64, 32]),
        (9, 64, [64, 64, 16, 64, 64, 16, 64, 8]),  # a shard is whole
        (2, 1, [16, 16, 16, 16, 8, 8]),
    ],
)
def test_shards_are_drawn_together_up_to_a_size(
    samples: int, size: int, parts: list[int], tmp_path: Path
) -> None:
    missing = Shards(tmp_path, SETTINGS, PROMPTS).missing([0], samples, size)
    counts = [
        [(8 if s.problems == missing[-1][-1].problems else 16) * (s.last - s.first) for s in part]
        for part in missing
    ]
    assert [sum(part) for part in counts] == parts


def test_shards_of_other_settings_or_prompts_are_not_reused(tmp_path: Path) -> None:
    assert drawn(tmp_path, [0], 2) == 80
    assert drawn(tmp_path, [0], 2, temperature=0.9) == 80
    assert drawn(tmp_path, [0], 2, prompts={**PROMPTS, "p0": (5, 5)}) == 16 * 2
    assert drawn(tmp_path, [0], 2) == 0


def test_a_broken_or_misplaced_shard_is_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn(tmp_path, [0], 2)
    first, second, _ = sorted(tmp_path.rglob("*.parquet"))
    lost = sum(len(pd.read_parquet(file)) for file in (first, second))
    first.write_bytes(first.read_bytes()[:-20])
    drawn(tmp_path, [0], 2, temperature=0.5)
    theirs = [path for path in tmp_path.rglob(second.name) if path != second]
    second.write_bytes(theirs[0].read_bytes())
    left_by_a_kill = first.with_name(".half.parquet")
    left_by_a_kill.write_bytes(b"PAR1")
    capsys.readouterr()
    assert drawn(tmp_path, [0], 2) == lost
    assert capsys.readouterr().out.count("drawn again") == 2
    assert not left_by_a_kill.exists()


def test_digests_follow_contents_only(tmp_path: Path, base: Path) -> None:
    before = checkpoint_digest(base)
    (base / "manifest.json").write_text("{}")
    assert checkpoint_digest(base) == before
    (base / "extra.json").write_text("{}")
    assert checkpoint_digest(base) != before
    (base / "extra.json").unlink()
    (base / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        checkpoint_digest(tmp_path)
    assert code_digest("sage.sampling.distribution") == code_digest("sage.sampling.distribution")
    assert code_digest("sage.sampling.distribution") != code_digest("sage.grading")


PROBLEMS = [
    Problem(f"p{i}", f"Calculate {i}+{i * i}.", str(i + i * i), "math", "1", "test", "0")
    for i in range(5)
]


def draws(**changes: object) -> Draws:
    return Draws.model_validate(
        {
            "samples": 60,
            "seeds": [0, 1],
            "sampling": sampling(max_tokens=24, stop=["+1"]),
            "batch_size": 20,
            "shard_size": 20,
            **changes,
        }
    )


def run_evaluation(base: Path, folder: Path, **changes: object) -> bytes:
    """Evaluate the base into `folder` and return the file of samples."""
    settings = draws(**changes)
    output = folder / "samples.parquet"
    manifest = Manifest({}, 1, time.time())
    evaluate(
        base, None, PROBLEMS, settings, "cpu", "tiny", "b", 0, folder / "shards", output, manifest
    )
    return output.read_bytes()


def shards_in(folder: Path) -> dict[Path, int]:
    """Shards with the time of their writing; half-written ones have hidden names."""
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*-eval*.parquet") if p.name[0] != "."}


def test_benchmarks_share_a_sampler_and_are_drawn_as_alone(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run_evaluation(base, tmp_path / "alone", samples=4)
    opened: list[object] = []
    open_sampler = transformers_engine.open_sampler
    monkeypatch.setattr(
        transformers_engine,
        "open_sampler",
        lambda *given: opened.append(given) or open_sampler(*given),
    )
    sets, settings = {"b": PROBLEMS, "c": PROBLEMS[:2]}, draws(samples=4)
    for place, asked, times in (("one", {"b": PROBLEMS}, 1), ("two", sets, 2), ("three", sets, 2)):
        output, shards = tmp_path / place, tmp_path / "shards"
        manifest = Manifest({}, 1, time.time())
        evaluate_all(base, None, asked, settings, "cpu", "tiny", 0, shards, output, manifest)
        assert len(opened) == times  # none where all is drawn
        assert {path.name for path in output.iterdir()} == {
            f"{name}.{end}" for name in asked for end in ("parquet", "json")
        }
        assert (output / "b.parquet").read_bytes() == alone


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import torch
torch.set_num_threads(1)
import test_shards
test_shards.run_evaluation(Path({base!r}), Path({folder!r}))
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_killed_job_goes_on_and_ends_with_the_same_bytes(base: Path, tmp_path: Path) -> None:
    """SIGKILL at a random moment between the first and the last shard."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = run_evaluation(base, whole)
    total = len(shards_in(whole))
    code = CHILD.format(paths=sys.path, base=str(base), folder=str(killed))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-c", code], env=environment)
    moment = random.randrange(1, total // 2)
    while len(shards := shards_in(killed)) < moment:
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.05))
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    kept = shards_in(killed)
    assert len(shards) <= len(kept) < total
    assert not (killed / "samples.parquet").exists()
    assert run_evaluation(base, killed) == expected
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert not list(killed.rglob(".*.parquet"))


@pytest.mark.slow
def test_settings_that_change_nothing_draw_nothing(base: Path, tmp_path: Path) -> None:
    first = run_evaluation(base, tmp_path)
    before = shards_in(tmp_path)
    assert run_evaluation(base, tmp_path, batch_size=3, shard_size=500) == first
    more = run_evaluation(base, tmp_path, samples=61)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    longer = pd.read_parquet(tmp_path / "samples.parquet")
    assert len(longer) == 61 * 2 * len(PROBLEMS)
    assert more != first
    run_evaluation(base, tmp_path, samples=2, sampling=sampling(temperature=0.5))
    assert len(list((tmp_path / "shards").iterdir())) == 2
