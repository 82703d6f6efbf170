"""The rule by which each method's learning rate is chosen, on hand-made trials and histories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import arguments
from benchmarks.tuned_rates import Trial, chosen, signs_of, table
from sage.exhibits import load_study
from sage.problems.sets import draw_problems

ROOT = Path(__file__).parents[2]


def trial(rate: float, accuracy: float, coverage: float, *signs: str) -> Trial:
    return Trial("pkpo", rate, accuracy, coverage, list(signs))


def test_the_most_coverage_within_a_point_of_the_best_accuracy_is_taken() -> None:
    close = [trial(3e-4, 0.155, 0.62), trial(1e-3, 0.164, 0.60), trial(3e-3, 0.13, 0.70)]
    assert chosen(close).rate == 3e-4
    assert chosen([trial(3e-4, 0.150, 0.62), *close[1:]]).rate == 1e-3


def test_a_tie_goes_to_the_lowest_rate_and_a_run_that_went_wrong_is_out() -> None:
    assert chosen([trial(1e-3, 0.16, 0.6), trial(3e-4, 0.16, 0.6)]).rate == 3e-4
    ruined = [trial(1e-3, 0.16, 0.6, "runaway"), trial(3e-4, 0.10, 0.5)]
    assert chosen(ruined).rate == 3e-4
    assert "16.0 / 60.0 (runaway)" in table({"pkpo": ruined[::-1]})
    with pytest.raises(ValueError, match="pkpo: a run went wrong at every rate"):
        chosen(ruined[:1])


def test_a_run_that_ends_early_or_ends_truncated_is_named(tmp_path: Path) -> None:
    study = load_study("rivals_tuning", ROOT / "config")
    steps = study.rl("plus").steps
    rows = [{"step": step + 1, "truncated_share": 0.0} for step in range(steps)]
    history = tmp_path / "history.jsonl"

    def signs(rows: list[dict[str, float]]) -> list[str]:
        history.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return signs_of(history, study, "plus")

    assert signs(rows) == []
    assert signs(rows[:-1]) == ["stopped"]
    early = [row | {"truncated_share": float(row["step"] < 50)} for row in rows]
    assert signs(early) == []
    assert signs([row | {"truncated_share": 1.0} for row in rows]) == ["truncated"]


def test_the_command_asks_for_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["tuned_rates.py", str(tmp_path)])
    assert arguments.folder("What it does.") == tmp_path
    for given, said in (([], "required: folder"), (["none"], "no such folder: none")):
        monkeypatch.setattr("sys.argv", ["tuned_rates.py", *given])
        with pytest.raises(SystemExit):
            arguments.folder("What it does.")
        assert said in capsys.readouterr().err


def test_rates_are_tuned_on_problems_that_no_verdict_is_about() -> None:
    tuning, verdicts = (load_study(name, ROOT / "config") for name in ("rivals_tuning", "rivals"))
    asked = [
        {problem.problem for problem in draw_problems("x", study.problem_set("sheets"))}
        for study in (tuning, verdicts)
    ]
    assert not asked[0] & asked[1]
    rates = {model: tuning.model(model).rl.learning_rate for model in tuning.study.models}
    assert rates == {"plus": 1e-3, "low": 3e-4, "high": 3e-3}
    assert len({tuple(tuning.trained(model)) for model in rates}) == 1
    assert {"grpo", "grpo_no_kl"} < set(tuning.trained("plus"))
    settings = [tuning.model(model).rl.model_dump(exclude={"learning_rate"}) for model in rates]
    assert settings[0] == settings[1] == settings[2]
