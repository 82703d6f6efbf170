"""Which problem is the case, and how it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from graded import problem, samples

from sage.exhibits import kind_of, load_study, measure
from sage.exhibits.case_study import CASE, CaseStudy, read_case, select_case
from sage.problems.record import write_problems
from sage.runtime.manifest import Manifest


def test_the_case_is_the_hardest_that_all_solve() -> None:
    runs = {
        "base": samples({"p1": "ccc", "p2": "wcw", "p3": "cww", "p4": "cww"}),
        "grpo": samples({"p1": "ccc", "p2": "www", "p3": "wwc", "p4": "ccc"}),
    }
    case = select_case(runs, [problem(name) for name in ("p1", "p2", "p3", "p4")])
    assert case is not None
    assert case.problem.problem_id == "p3"
    assert (case.n_candidates, case.n_problems) == (3, 4)
    assert [(s.algorithm, s.completion) for s in case.solutions] == [
        ("base", "p3/0"),
        ("grpo", "p3/2"),
    ]
    assert [(s.n_correct, s.n_samples) for s in case.solutions] == [(1, 3), (1, 3)]


def test_without_a_common_problem_there_is_no_case() -> None:
    runs = {"base": samples({"p1": "cw", "p2": "ww"}), "grpo": samples({"p1": "ww", "p2": "cw"})}
    assert select_case(runs, [problem("p1"), problem("p2")]) is None
    with pytest.raises(ValueError, match="no samples of 'base'"):
        select_case({"grpo": runs["grpo"]}, [])


def test_a_case_survives_its_file(tmp_path: Path) -> None:
    asked = [problem("p1"), problem("p2")]
    write_problems(asked, tmp_path / "b.jsonl")
    kind, files = kind_of(load_study("smoke", ROOT / "config"), "case_study"), []
    for algorithm, seed, letters in [("base", 0, "wc"), ("grpo", 2, "ww"), ("grpo", 1, "cw")]:
        path = tmp_path / f"samples/m/{algorithm}/seed{seed}/b.parquet"
        path.parent.mkdir(parents=True)
        samples({"p1": letters, "p2": "ww"}).to_parquet(path)
        files.append(path)

    def measured(samples: list[Path]) -> CaseStudy | None:
        inputs = {"samples": samples, "problems": [tmp_path / "b.jsonl"]}
        settings = {"algorithms": ["base", "grpo"]}
        folder, manifest = tmp_path / f"{len(samples)}", Manifest({}, 1, 0.0)
        measure(kind.model_dump(), settings, inputs, folder, "cpu", tmp_path / "shards", manifest)
        return read_case(folder / CASE)

    case = measured(files)
    assert case is not None
    assert case.problem == asked[0]
    assert [s.sample_index for s in case.solutions] == [1, 0]
    assert measured(files[:2]) is None
    with pytest.raises(ValueError, match="no samples of grpo"):
        measured(files[:1])
