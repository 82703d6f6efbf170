"""What guides would do to a checkpoint: the measurement, its sentence, the command, the exhibit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_things
import pytest
import torch
from pages import parsed, words_of
from test_perplexity import network, random_pairs  # noqa: F401  (a fixture)
from trainers import write_parent
from transformers import PreTrainedModel
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

from sage.evaluation.guide_dose import Read, measured
from sage.evaluation.token_signals import guide_signals, padded, token_signals
from sage.exhibits import load_study
from sage.exhibits.guide_dose import sentence_of
from sage.exhibits.kind import Display, Measuring
from sage.problems.record import Problem, write_problems
from sage.runtime.manifest import Manifest
from sage.runtime.tables import read_frame
from sage.study import StudyError
from sage.study.choices import Guide
from sage.tools import command

ROOT = Path(__file__).parents[2]
BRANCH = Guide(kind="branch", settings={"threshold": 1.2, "ratio": 0.3})


def test_what_is_read_is_what_training_reads_at_its_temperature(
    network: PreTrainedModel,  # noqa: F811
) -> None:
    prompts, completions = random_pairs(network.config.vocab_size)
    read = token_signals(network, prompts, completions, chunk_logits=2**13, temperature=0.7)
    for prompt, written, (log_probs, entropies) in zip(prompts, completions, read, strict=True):
        ids = torch.tensor([[*prompt, *written]])
        with torch.no_grad():
            logits = network(ids).logits[:, len(prompt) - 1 : -1] / 0.7
        of_trl = selective_log_softmax(logits, ids[:, len(prompt) :])[0]
        np.testing.assert_allclose(log_probs, of_trl, atol=3e-5)
        np.testing.assert_allclose(entropies, entropy_from_logits(logits)[0], atol=3e-5)


def test_other_tokens_are_drawn_from_the_same_distributions(
    network: PreTrainedModel,  # noqa: F811
) -> None:
    """The mean of -log p over draws is the entropy."""
    prompts, completions = [[5, 6, 7]] * 1500, [[9, 11]] * 1500
    read = token_signals(network, prompts, completions, others=1)
    assert len(read[0]) == 3
    drawn, entropy = np.array([row[2] for row in read]), read[0][1]
    assert -drawn.mean(axis=0) == pytest.approx(entropy, abs=float(4 * drawn.std() / 1500**0.5))
    assert len(np.unique(drawn[:, 0])) > 1


def read_of(entropies: list[float], right: list[int], lengths: list[int]) -> Read:
    """Two problems; every token of a completion has its entropy."""
    rows = [
        (np.full(n, -h, np.float32), np.full(n, h, np.float32), np.full(n, -2 * h, np.float32))
        for h, n in zip(entropies, lengths, strict=True)
    ]
    shape = (2, -1)
    return Read(
        torch.tensor(right).double().view(shape),
        torch.tensor(lengths).double().view(shape),
        0.25,
        guide_signals(rows),
        padded([row[2] for row in rows]),
    )


def test_a_branch_guide_by_hand() -> None:
    """log q of a token is log(1 + 0.3 (H - 1.2)), at most log 1.4, over one to three tokens."""
    read = read_of([1.2, 2.2, 9.0, 1.0, 1.0, 2.2], [1, 0, 1, 0, 0, 0], [2, 1, 3, 2, 2, 2])
    found = measured(read, BRANCH, 0.5, 2)
    one, most = math.log(1.3), math.log(1.4)
    log_q = np.array([[0, one, 3 * most], [0, 0, 2 * one]])
    np.testing.assert_allclose(found.log_q, log_q, atol=1e-6)
    row = found.row
    assert row["spread"] == pytest.approx(log_q.std(axis=1, ddof=1).mean())
    assert row["spread_without_noise"] == row["spread"]
    assert row["dose_reward"] == pytest.approx(0.5 * row["spread"])
    only = log_q.std(axis=1, ddof=1).mean() / (3**-0.5)  # advantages of the mixed problem alone
    assert row["dose_centred"] == pytest.approx(0.5 * only)
    assert row["dose_loss"] == 0.0
    assert (row["mixed"], row["cut"], row["tokens"]) == (1, 0.25, 12)
    assert row["amplified"] == row["branches"] == pytest.approx(6 / 12)
    assert row["clamped"] == pytest.approx(3 / 12)
    assert row["gap"] == pytest.approx(1.5 * most - one)
    first = ((0 - (one + 3 * most) / 2) + (3 * most - one / 2)) / 3
    assert row["a_1"] == pytest.approx(first / 2)
    assert list(found.by_k["k"]) == [1, 2]


@pytest.mark.parametrize(("kind", "moves"), [("random", False), ("token", True)])
def test_noise_is_told_from_dose_and_only_the_token_guide_acts_in_the_loss(
    kind: str, moves: bool
) -> None:
    """The random guide looks at no token: all of its dose is noise, and in the loss it is 0."""
    torch.manual_seed(1)
    size = 2 * 40
    rows = [tuple(-3 * torch.rand(3, 12).numpy()) for _ in range(size)]
    right = (torch.arange(size) % 3 == 0).double().view(2, -1)
    lengths = torch.full((2, 40), 12.0).double()
    read = Read(right, lengths, 0.0, guide_signals(rows), padded([row[2] for row in rows]))
    row = measured(read, Guide(kind=kind, clamp=[0.25, 4.0]), 0.1, 4).row
    assert row["spread_without_noise"] < row["spread"]
    assert (row["dose_loss"] > 0) == moves
    if not moves:
        assert row["spread_without_noise"] < 0.5 * row["spread"]


ROW: dict[str, Any] = {
    **{"kl_coefficient": 0.05, "k": 8, "problems": 60, "samples": 32, "mixed": 40, "spread": 4.0},
    **{"dose_reward": 0.2, "length_correlation": 0.1, "a_k": 0.2, "a_k_low": 0.1, "a_k_high": 0.3},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "strong enough to be seen (dose 0.2), and it would raise pass@8 here."),
        ({"a_k_low": -0.3, "a_k_high": -0.1}, "it pushes against pass@8 here."),
        ({"dose_reward": 0.00625}, "too weak to be seen (dose 0.0063); it would need β ≥ 0.4, wh"),
        ({"length_correlation": 0.9}, "here; it mostly rewards length."),
        ({"length_correlation": -0.9}, "here; it mostly rewards shortness."),
        ({"a_k_low": -0.05, "a_k_high": 0.09}, "and it leaves pass@8 as it is."),
        ({"mixed": 3}, "what it does to pass@8 is open: 3 of the 60 problems have both right"),
        (
            {"a_k": 0.1, "a_k_low": -0.1, "a_k_high": 0.3},
            "either way: 60 problems × 32 samples do not decide; about 240 problems would.",
        ),
        ({"a_k": 0.001, "a_k_low": -1.0, "a_k_high": 1.0}, "nor would a hundred times as many."),
        ({"spread": 0.0}, "the guide changes nothing here"),
    ],
)
def test_the_sentence(changes: dict[str, Any], said: str) -> None:
    assert said in sentence_of(ROW | changes)


def asked(count: int) -> list[Problem]:
    rest = "number", "1", "here", "0"
    return [Problem(f"p{i}", f"{i}+{i}", str(2 * i), *rest) for i in range(count)]


def test_the_exhibit_measures_the_checkpoint_before_rl_as_rl_draws(tmp_path: Path) -> None:
    problems = asked(6)
    base = write_parent(tmp_path / "base", problems, spread=4.0)
    write_problems(problems, tmp_path / "arithmetic.jsonl")
    exhibit = (
        "exhibits.dose={kind: guide_dose, title: Dose, model: tiny, benchmark: arithmetic, k: 2, "
        "problems: 4, samples: 4, algorithms: [grpo, grpo_branch, grpo_token]}"
    )
    study = load_study("smoke", ROOT / "config", [exhibit])
    kind: Any = study.study.exhibits["dose"]
    settings = kind.settings(study, "dose")
    rl = study.model("tiny").rl
    assert rl is not None
    assert settings["evaluation"]["sampling"] == rl.sampling.model_dump()
    assert settings["guides"].keys() == {"grpo_branch", "grpo_token"}
    folder = tmp_path / "measured"
    folder.mkdir()
    files = {"base": [base], "problems": [tmp_path / "arithmetic.jsonl"]}
    job = Measuring(files, settings, folder, "cpu", tmp_path / "shards", Manifest({}, 1, 0.0))
    kind.measure(job)
    doses = read_frame(folder / "doses.parquet")
    assert list(doses["algorithm"]) == ["grpo_branch", "grpo_token"]
    assert set(doses["problems"]) == {4}
    assert doses["dose_loss"].iloc[0] == 0 < doses["dose_loss"].iloc[1]
    document = kind.table(Display(study, "dose", [folder], ROOT / "reports/paper"))
    assert len(document.table.groups[0].rows) == 2
    assert "4 completions of each" in document.caption
    without = exhibit.replace("[grpo, grpo_branch, grpo_token]", "[grpo]")
    other = load_study("smoke", ROOT / "config", [without])
    kind = other.study.exhibits["dose"]
    with pytest.raises(StudyError, match="no method of the model tiny has a guide"):
        kind.settings(other, "dose")


@pytest.fixture
def dose(tmp_path: Path) -> Callable[..., int]:
    """The command on a random model and ten problems, with further arguments."""
    own_things.make(tmp_path)
    common = [str(tmp_path / "model"), "--data", str(tmp_path / "doubles.csv"), "--problem", "q"]
    common += ["--answer", "a", "--out", str(tmp_path / "out"), "--max-tokens", "8"]

    def run(*more: str) -> int:
        return command.main(["dose", *common, *more])

    return run


def test_the_command_prints_and_writes_a_page_and_draws_nothing_twice(
    dose: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--problems", "4", "--samples", "8", "--k", "4")
    assert dose(*small) == 0
    first = capsys.readouterr().out
    assert re.search(r"Pilot, 4 .* settle", first)
    assert "4 problems × 8" in first
    assert "the loss: 0, exactly" in first
    page = (tmp_path / "out/dose.html").read_text("utf-8")
    assert "Branch guide on model" in words_of(parsed(page))
    assert page.count("<figure") == 1
    assert dose(*small, "--guide", "token", "--beta", "0.2") == 0
    again = capsys.readouterr()
    assert "sampling" not in again.err + again.out
    assert "reading" not in again.err
    assert "At β = 0.2" in again.out
    train = ("--train", str(tmp_path / "doubles.csv"), "--train-problems", "2")
    assert dose(*small, *train) == 0
    assert "all (4 problems)" in capsys.readouterr().out  # nothing is right here
    assert "Transfer to all" in words_of(parsed((tmp_path / "out/dose.html").read_text("utf-8")))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--samples", "8"), "--k 8: must be from 1 to 7, below --samples"),
        (("--guide", "token", "--ratio", "1"), "--ratio: the guide token has no such setting"),
        (("--beta", "0"), "--beta 0: must be above 0"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is_drawn(
    dose: Callable[..., int],
    more: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dose(*more) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_no_checkpoint_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--data", "x.csv", "--out", str(tmp_path / "out")]
    assert command.main(["dose", "no folder", *out]) == 1
    assert "MODEL no folder: " in capsys.readouterr().err
