"""Logs of other programs: their tasks, seeds, ids and failed samples.

Of Inspect AI 0.3.285, lm-eval 0.4.13 and lighteval 0.13.0 there are logs that they wrote
(`tests/builders/logs`), of sums by mock models; tables of TRL 1.16.0 are written as its
trainer does.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sample_rows import one

from sage.evaluation.curves import NO_SEED
from sage.evaluation.foreign_samples import read_methods
from sage.tools.compare_samples import compare, main

LOGS = Path(__file__).parents[1] / "builders/logs"
DATE = "2026-11-28T02-34-27.639424"


def inspect_log(path: Path, **changes: Any) -> dict[str, Any]:
    """A log of Inspect with other values in its head, written to `path`."""
    log = json.loads((LOGS / "inspect_weak.json").read_text())
    new = {"task_id": path.stem, "run_id": path.stem}
    log["eval"] |= new | {key: value for key, value in changes.items() if key in log["eval"]}
    log["status"] = changes.get("status", "success")
    for sample in log["samples"]:
        sample["uuid"] = f"{path.stem}-{sample['id']}-{sample['epoch']}"
    path.parent.mkdir(parents=True, exist_ok=True)
    rewritten(path, log)
    return log


def rewritten(path: Path, log: dict[str, Any]) -> Path:
    path.write_text(json.dumps(log))
    return path


class TestInspect:
    def test_two_tasks_are_two_benchmarks_of_one_run(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for method in ("a", "b"):
            for task in ("sums", "harder"):
                inspect_log(tmp_path / method / f"{method}_{task}.json", task=task)
        assert main([f"{tmp_path}/a", f"{tmp_path}/b"]) == 0
        printed = capsys.readouterr().out
        assert printed.count("sums: 8 problems\n") == printed.count("harder: 8 problems\n") == 1
        assert printed.count("a (1 run): pass@1 25.0 %") == 2
        assert "2 runs" not in printed
        assert "from a_harder.json, a_sums.json, by its columns id and scores.number" in printed

    def test_methods_of_different_tasks_are_refused(self, tmp_path: Path) -> None:
        for task in ("sums", "harder"):
            inspect_log(tmp_path / f"{task}.json", task=task)
        methods = read_methods([(t, tmp_path / f"{t}.json") for t in ("sums", "harder")])
        with pytest.raises(ValueError, match="no benchmark in common: sums has sums, harder has h"):
            compare(methods, draws=100)

    @pytest.mark.parametrize("lost", [None, {}, "no such key", float("nan"), {"number": None}])
    def test_a_sample_that_failed_counts_as_wrong_and_is_counted(
        self, lost: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = inspect_log(tmp_path / "a.json")
        right = next(s for s in log["samples"] if s["scores"]["number"]["value"] == "C")
        if lost == "no such key":
            del right["scores"]
        elif isinstance(lost, float):  # `Score.unscored()`
            right["scores"]["number"]["value"] = lost
        else:
            right["scores"] = lost
        method = one(rewritten(tmp_path / "a.json", log))
        assert method.counts["correct"].sum() == 3
        assert sum(method.unscored.values()) == 1
        files = [f"a={tmp_path}/a.json", f"b={LOGS}/inspect_strong.json"]
        assert main(files) == 0
        assert "1 of 16 samples have no verdict and count as wrong" in capsys.readouterr().out
        assert main([*files, "--unscored", "left-out"]) == 0
        printed = capsys.readouterr().out
        assert "sums: 7 problems" in printed
        assert "left out: 1 problem with a sample without a verdict" in printed

    def test_no_answer_is_wrong_and_partial_credit_is_refused(self, tmp_path: Path) -> None:
        log = inspect_log(tmp_path / "a.json")
        right = next(s for s in log["samples"] if s["scores"]["number"]["value"] == "C")
        right["scores"]["number"]["value"] = "N"
        method = one(rewritten(tmp_path / "a.json", log))
        assert (method.counts["correct"].sum(), dict(method.unscored)) == (3, {})
        right["scores"]["number"]["value"] = "P"
        rewritten(tmp_path / "a.json", log)
        with pytest.raises(ValueError, match=r"scores\.number says 'p' in row .*partial credit"):
            one(tmp_path / "a.json")

    def test_packed_logs_are_read_with_the_compression_that_inspect_uses(self) -> None:
        """One right answer, one sample without an answer, and one whose server failed."""
        with zipfile.ZipFile(LOGS / "inspect_failed.eval") as packed:
            assert {info.compress_type for info in packed.infolist()} == {93}
        method = one(LOGS / "inspect_failed.eval")
        assert set(method.counts["benchmark"]) == {"sums"}
        assert method.counts["n_samples"].tolist() == [2, 2, 2]
        assert dict(method.unscored) == {("sums", "sum-4"): 1}

    def test_packed_logs_of_other_versions_are_read(self, tmp_path: Path) -> None:
        log = inspect_log(tmp_path / "a.json", task="sums")
        with zipfile.ZipFile(tmp_path / "a.eval", "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("_journal/start.json", json.dumps({"eval": log["eval"]}))
            for sample in log["samples"]:
                name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
                packed.writestr(name, json.dumps(sample))
        method = one(tmp_path / "a.eval")
        assert method.counts["correct"].sum() == 4
        assert method.notes == ("a.eval is not finished (status started)",)
        (tmp_path / "a.eval").write_bytes((tmp_path / "a.eval").read_bytes()[:500])
        with pytest.raises(ValueError, match=r"a\.eval: is no whole log of Inspect"):
            one(tmp_path / "a.eval")

    def test_a_log_that_was_taken_up_again_counts_once(self, tmp_path: Path) -> None:
        for name, begun in (("later.json", "2026-01-02"), ("earlier.json", "2026-01-01")):
            log = inspect_log(tmp_path / name)
            log["eval"] |= {"task_id": "same", "created": begun}
            rewritten(tmp_path / name, log)
        method = one(tmp_path)
        assert method.counts["n_samples"].tolist() == [2] * 8
        assert method.notes == ("earlier.json is left out: later.json goes on with it",)

    def test_two_evaluations_of_one_model_are_not_two_runs(self, tmp_path: Path) -> None:
        inspect_log(tmp_path / "a" / "one.json")
        inspect_log(tmp_path / "a" / "two.json")
        with pytest.raises(ValueError, match="both of the model mockllm/weak; two evaluations of"):
            one(tmp_path / "a")
        for seed in (3, 5):
            inspect_log(tmp_path / "b" / f"seed{seed}" / f"log{seed}.json")
            inspect_log(tmp_path / "c" / f"{seed}.json", model=f"hf/mine-seed{seed}")
        for folder in ("b", "c"):
            method = one(tmp_path / folder)
            assert (set(method.counts["train_seed"]), method.seeds) == ({3, 5}, True)

    def test_models_in_one_folder_are_methods_but_no_runs(self, tmp_path: Path) -> None:
        for name in ("weak", "strong"):
            shutil.copy(LOGS / f"inspect_{name}.json", tmp_path / f"{name}.json")
        methods = read_methods([("logs", tmp_path)])
        assert list(methods) == ["mockllm/strong", "mockllm/weak"]
        with pytest.raises(ValueError, match="samples of 2 models, mockllm/strong, mockllm/weak"):
            read_methods([("a", tmp_path), ("b", LOGS / "inspect_weak.json")])
        only = ["model=mockllm/weak"]
        assert one(tmp_path / "weak.json", only).counts["correct"].sum() == 4

    def test_the_same_sample_in_two_logs_is_refused(self, tmp_path: Path) -> None:
        log = inspect_log(tmp_path / "a.json", model="hf/seed1")
        log["eval"] |= {"task_id": "another", "model": "hf/seed2"}
        rewritten(tmp_path / "b.json", log)
        with pytest.raises(ValueError, match=r"b\.json repeats a sample of .*a\.json \(problem 's"):
            one(tmp_path)


class TestLmEval:
    def folder(self, path: Path, task: str = "sums") -> Path:
        path.mkdir(parents=True)
        shutil.copy(LOGS / "lm_eval_sums.jsonl", path / f"samples_{task}_{DATE}.jsonl")
        shutil.copy(LOGS / "lm_eval_results.json", path / f"results_{DATE}.json")
        return path

    def test_each_filter_has_the_accuracy_that_lm_eval_counted(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path / "mock__strong")
        counted = json.loads((LOGS / "lm_eval_results.json").read_text())["results"]["sums"]
        for kind in ("strict-match", "flexible-extract"):
            method = one(folder, [f"filter={kind}"])
            assert method.counts["correct"].mean() == pytest.approx(counted[f"exact_match,{kind}"])
            assert set(method.counts["benchmark"]) == {"sums"}
            assert method.notes == (
                f"results_{DATE}.json has no samples",
                "lm-eval gave one verdict for 2 completions of a problem; sage-rlvr grade counts "
                "all",
            )
        with pytest.raises(ValueError, match="filters flexible-extract, strict-match; name one"):
            one(folder)

    def test_a_summary_alone_is_refused(self) -> None:
        with pytest.raises(ValueError, match="has no samples, as a summary of results; name the"):
            one(LOGS / "lm_eval_results.json")

    def test_models_of_one_output_folder_are_methods(self, tmp_path: Path) -> None:
        for model in ("org__weak", "org__strong"):
            self.folder(tmp_path / model)
            rewritten = tmp_path / model / f"samples_sums_{DATE}.jsonl"
            rewritten.write_text(rewritten.read_text() + "\n" * (model == "org__weak"))
        methods = read_methods([("out", tmp_path)], only=["filter=strict-match"])
        assert list(methods) == ["org__strong", "org__weak"]

    def test_a_document_that_is_there_twice_is_refused(self, tmp_path: Path) -> None:
        lines = (LOGS / "lm_eval.jsonl").read_text().splitlines()
        twice = tmp_path / "samples_sums.jsonl"
        twice.write_text("\n".join([*lines, lines[2]]))
        with pytest.raises(ValueError, match=r"row 9 repeats row 3 \(problem_id '2'"):
            one(twice)

    def test_what_its_function_returns_is_read_by_task(self, tmp_path: Path) -> None:
        samples = [json.loads(line) for line in (LOGS / "lm_eval.jsonl").read_text().splitlines()]
        file = tmp_path / "returned.json"
        file.write_text(json.dumps({"results": {}, "samples": {"one": samples, "two": samples}}))
        assert one(file).counts["benchmark"].tolist() == ["one"] * 8 + ["two"] * 8


class TestLighteval:
    def test_details_have_task_id_and_metric(self, tmp_path: Path) -> None:
        folder = tmp_path / "details" / "mock" / "strong" / DATE
        folder.mkdir(parents=True)
        file = folder / f"details_sums|0_{DATE}.parquet"
        shutil.copy(LOGS / "lighteval_sums.parquet", file)
        method = one(file, correct="extractive_match")
        assert method.counts["benchmark"].tolist() == ["sums|0"] * 6
        assert method.counts["problem_id"].tolist() == list("012345")
        assert method.counts["correct"].sum() == 3
        assert method.notes[0].startswith("lighteval gave one verdict for 2 completions")
        with pytest.raises(ValueError, match=r"scores metric\.extractive_match, metric\.pass@k"):
            one(file)
        with pytest.raises(ValueError, match=r"says '0\.5' in row 1.*grade the completions"):
            one(file, correct="pass@k:k=1&n=2")

    def test_details_of_older_versions_are_read(self, tmp_path: Path) -> None:
        """Before 0.10 a row had the prompt, the predictions, the gold and the metrics."""
        old = [
            {"example": f"{a} + 1 = ?", "predictions": [f"{a + 1}"], "gold": [f"{a + 1}"]}
            | {"metrics": {"em": 1.0}}
            for a in range(3)
        ]
        file = tmp_path / f"details_leaderboard|sums|0_{DATE}.parquet"
        pd.DataFrame(old).to_parquet(file)
        method = one(file)
        assert method.counts["benchmark"].tolist() == ["leaderboard|sums|0"] * 3
        assert method.counts["correct"].tolist() == [1, 1, 1]


def trl_table(step: int, right: Sequence[float]) -> pd.DataFrame:
    """The table that TRL's `GRPOTrainer` writes at a step, of conversations."""
    prompts = [[{"role": "user", "content": f"{place // 2} + 1 = ?"}] for place in range(4)]
    texts = [[{"role": "assistant", "content": str(place)}] for place in range(4)]
    return pd.DataFrame(
        {
            "step": [step] * 4,
            "prompt": prompts,
            "completion": texts,
            "accuracy_reward": right,
            "answer": ["1", "1", "2", "2"],
            "advantage": [0.0] * 4,
        }
    )


def test_tables_of_trl_are_rollouts_of_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    folder.mkdir()
    for step, right in ((10, [1.0, 0.0, 0.0, 0.0]), (20, [1.0, 1.0, 0.0, float("nan")])):
        trl_table(step, right).to_parquet(folder / f"completions_{step:05d}.parquet")
    method = one(folder)
    assert method.counts["problem_id"].tolist() == ["0 + 1 = ?", "1 + 1 = ?"]
    assert method.counts["n_samples"].tolist() == [4, 4]
    assert method.counts["correct"].tolist() == [3, 0]
    assert set(method.counts["train_seed"]) == {NO_SEED}
    assert sum(method.unscored.values()) == 1
    assert method.notes == ("rollouts of training, during which the policy changed",)
    assert one(folder / "completions_00010.parquet", ["step=10"]).counts["correct"].sum() == 1
