"""Cards, logbook and scores of the mini study's kept run; uploads go to a recorder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import ROOT
from huggingface_hub import ModelCard

from sage.exhibits import load_study
from sage.problems.record import Problem, write_problems
from sage.results import Results, Run
from sage.runtime.files import file_sum
from sage.tools.publish.evaluations import documents
from sage.tools.publish.material import Material
from sage.tools.publish.sending import NoToken, upload, write_publication
from sage.tools.publish.texts import FOLDER, _test, cell, dataset_card, model_card, outcome, pages

REFERENCE = ROOT / "reports/kept/mini"
RUN = Run("sums", "grpo_branch", 1)


@pytest.fixture(scope="module")
def material() -> Material:
    """The kept run, with two manifests."""
    manifests = {
        "models/sums/grpo_branch/seed1": {
            "wall_seconds": 100.0,
            "git_commit": "abc",
            "ended": "2026-03-01T10:00:00+00:00",
            "hardware": {"cpu": "Fast", "cores": 2, "memory_gib": 24, "gpu": None},
        },
        "samples/sums/grpo_branch/seed1/sheets": {
            "wall_seconds": 20.0,
            "tokens": 12_345,
            "ended": "2026-03-01T11:00:00+00:00",
        },
    }
    return Material(
        load_study("mini", ROOT / "config"),
        pd.read_csv(REFERENCE / "pass_at_k.csv"),
        pd.read_csv(REFERENCE / "claims.csv"),
        manifests,
    )


def test_a_model_card_has_method_scores_with_intervals_and_cost(material: Material) -> None:
    text = model_card(material, RUN)
    scores = material.scores_of(RUN)
    first = scores[(scores["benchmark"] == "sheets") & (scores["k"] == 1)].iloc[0]
    said = f"{100 * first['value']:.1f} ({100 * first['low']:.1f}–{100 * first['high']:.1f})"
    assert f"| sheets | {said} |" in text
    assert "| Guide | branch ratio 0.3, threshold 1.2 |" in text
    assert "| KL term | reverse, coefficient 0.05 |" in text
    assert "| Estimator of the KL term | k3 |" in text
    assert "| Training time | 1 min 40 s |" in text
    assert "**Toy.**" in text


def test_the_hub_reads_the_cards_results(material: Material) -> None:
    card = ModelCard(model_card(material, RUN))
    found = {
        (result.dataset_name, result.metric_name): result.metric_value
        for result in card.data.eval_results
    }
    for row in material.scores_of(RUN).to_dict("records"):
        assert found[row["benchmark"], f"pass@{row['k']}"] == pytest.approx(row["value"])
    assert "toy" in card.data.tags
    head = yaml.safe_load(dataset_card(material).split("---")[1])
    names = {config["config_name"] for config in head["configs"]}
    assert names == set(material.study.benchmark_sets())


def test_a_page_for_each_claim_has_its_outcome_and_every_test(material: Material) -> None:
    written = pages(material)
    claims = material.claims
    index = written[f"{FOLDER}/pages/index.md"]
    for name, rows in claims.groupby("claim"):
        page = written[f"{FOLDER}/pages/{name.replace('_', '-')}/page.md"]
        assert f"(#/{name.replace('_', '-')})" in index
        assert page.count("<!-- trackio-cell") == 3
        for says in rows["says"].dropna():
            assert cell(str(says)) in page
    assert "| toy | supported |" in index
    assert "| inconclusive | inconclusive |" in index
    summary = written[f"{FOLDER}/pages/summary/page.md"]
    assert re.search(r"\*\*Outcome of \d+ claims: \d+ inconclusive, \d+ toy", summary)
    assert "| Compute time | 2 min" in summary
    assert "Fast, no GPU, 2 cores, 24 GiB" in summary
    for text in written.values():
        for head in re.findall(r"<!-- trackio-cell\n(.*)\n-->", text):
            assert {"type", "id", "created_at", "title"} <= json.loads(head).keys()


@pytest.mark.parametrize(
    ("verdict", "toy", "said"),
    [
        ("supported", False, "verified"),
        ("contradicted", False, "falsified"),
        ("no difference", False, "falsified"),
        ("inconclusive", False, "inconclusive"),
        ("not run", False, "inconclusive"),
        ("supported", True, "toy"),
        ("contradicted", True, "toy"),
        ("not run", True, "inconclusive"),
    ],
)
def test_verdicts_in_the_words_of_logbooks(verdict: str, toy: bool, said: str) -> None:
    assert outcome(verdict, toy) == said


def test_a_study_of_published_models_is_no_toy(material: Material) -> None:
    paper = load_study("paper", ROOT / "config")
    assert material.is_toy()
    assert not Material(paper, material.scores, material.claims, {}).is_toy()


def test_documents_hold_every_score_of_every_policy(material: Material) -> None:
    found = {path: content for path, _, content in documents(material, "me")}
    scores = material.scores
    single = scores[(scores["train_seed"] >= 0) & (scores["metric"] == "pass@k")]
    results = [entry for content in found.values() for entry in content["evaluation_results"]]
    assert len(results) == len(single)
    for path, content in found.items():
        assert re.fullmatch(r"data/[^/]+/me/[^/]+/[0-9a-f-]{36}\.json", path)
        for entry in content["evaluation_results"]:
            details = entry["score_details"]
            between = details["uncertainty"]["confidence_interval"]
            assert 0 <= between["lower"] <= details["score"] <= between["upper"] <= 1
    assert list(found.items()) == [(p, content) for p, _, content in documents(material, "me")]


def test_the_checkers_of_others_accept_what_is_written(material: Material, tmp_path: Path) -> None:
    checker = shutil.which("every_eval_ever")
    if not checker:
        pytest.skip("every_eval_ever is not installed (pip install every-eval-ever, Python 3.12)")
    write_publication(material, tmp_path / "publish")
    files = map(str, (tmp_path / "publish/evaluations/data").rglob("*.json"))
    done = subprocess.run([checker, "validate", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_logbook_names_the_paper_as_newer_trackers_read_it(material: Material) -> None:
    head = json.loads(pages(material)[f"{FOLDER}/metadata.json"])
    assert head["paper"]["arxiv_id"] == "2605.18864"
    assert "openreview_id" in head["paper"]


def test_samples_stand_beside_their_scores_with_sum_and_verdicts(
    material: Material, tmp_path: Path
) -> None:
    results = Results(tmp_path / "mini")
    problems = [Problem(f"p{n}", f"1+{n}", f"{1 + n}", "number", "", "", "") for n in range(2)]
    write_problems(problems, results.problems("sheets"))
    rows = [("p0", 0, 1, "b", "2", "wrong"), ("p0", 0, 0, "a", "1", "correct")]
    rows += [("p1", 0, 0, "c", None, "unparsed"), ("p1", 0, 1, "d", "3", "wrong")]
    names = ["problem_id", "eval_seed", "sample_index", "completion", "answer", "status"]
    samples = results.samples(RUN, "sheets")
    samples.parent.mkdir(parents=True)
    pd.DataFrame(rows, columns=names).assign(n_tokens=[3, 4, 5, 6]).to_parquet(samples)
    write_publication(material, results.published, "me", results)
    (file,) = results.published.rglob("*_samples.jsonl")
    first, second = map(json.loads, file.read_text().splitlines())
    assert first["output"]["raw"] == ["a", "b"]
    assert first["metadata"]["correct"] == "10"
    assert first["evaluation"] == {"score": 0.5, "is_correct": True}
    assert [one["extracted_value"] for one in second["answer_attribution"]] == ["", "3"]
    assert second["evaluation"] == {"score": 0.0, "is_correct": False}
    document = json.loads(Path(str(file).replace("_samples.jsonl", ".json")).read_text())
    assert first["evaluation_id"] == document["evaluation_id"]
    assert first["model_id"] == document["model_info"]["id"]
    named = document["detailed_evaluation_results"]
    assert named["checksum"] == file_sum(file)
    assert named["total_rows"] == 2
    assert (results.published / "evaluations" / named["file_path"]).samefile(file)


class Recorder:
    """Stands for the hub."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> None:
            self.calls.append((name, {**options, "arguments": arguments}))

        return call


def test_an_upload_sends_each_adapter_with_its_card_to_a_private_repository(
    material: Material, tmp_path: Path
) -> None:
    hub, results = Recorder(), Results(tmp_path / "mini")
    write_publication(material, results.published, "me")
    upload(material, results, results.published, "me", hub)
    made = [options for name, options in hub.calls if name == "create_repo"]
    assert len(made) == len(material.runs()) + 1
    assert all(options["private"] for options in made)
    cards = {o["repo_id"]: Path(o["path_or_fileobj"]) for n, o in hub.calls if n == "upload_file"}
    assert cards[f"me/{material.model_name(RUN)}"].read_text() == model_card(material, RUN)
    assert cards["me/sage-mini-samples"].name == "samples.md"
    folders = [o["folder_path"] for n, o in hub.calls if n == "upload_folder"]
    assert str(results.policy(RUN)) in folders


def test_an_upload_without_a_token_says_what_to_set(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(NoToken, match="HF_TOKEN is not set"):
        upload(material, Results(tmp_path), tmp_path, "me")


def test_one_run_of_a_method_has_an_effect_without_an_interval() -> None:
    keys = ("role", "reason", "low", "high", "p")
    row = dict.fromkeys(keys, "") | {"says": "it rises", "place": "easy", "effect": 0.05}
    told = _test(row | {"unit": "points", "runs": 1, "place_verdict": "one run"})
    assert told == ("it rises", "easy", "+5.0", "", "–", "1", "one run")


def test_text_cannot_end_a_cell() -> None:
    assert cell("a | b\n| c") == "a \\| b \\| c"
