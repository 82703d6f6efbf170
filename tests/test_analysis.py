"""Patterns, perplexity, training dynamics and the case study, against numbers worked by hand."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from report_frames import EXHIBITS, a_study
from transformers import PreTrainedModel

from sage.analysis.case_study import read_case, select_case, write_case
from sage.analysis.dynamics import (
    gradient_norm_table,
    history_frame,
    moving_mean,
    read_histories,
    reward_and_accuracy,
    stage_means,
)
from sage.analysis.patterns import (
    detect,
    frequency,
    pattern_table,
    read_pattern_table,
    shares_compared,
)
from sage.analysis.perplexity import (
    choose_problems,
    choose_responses,
    length_sorted,
    perplexity,
    perplexity_table,
    token_log_probs,
)
from sage.analysis.phrases import BREAK, compile_phrases, load_patterns, plain_text
from sage.analysis.tails import tail_shares, tail_table
from sage.evaluation.intervals import interval_of_mean
from sage.exhibits.gradient_norms import GradientTable
from sage.exhibits.making import measure
from sage.policies import build_tiny, train_tokenizer
from sage.problems.corpus import Slips, work_arithmetic
from sage.problems.record import Problem, write_problems
from sage.prompting import completion, prompt_ids
from sage.results import Results, Run
from sage.runtime.manifest import Manifest
from sage.study import Architecture

PATTERNS = load_patterns(Path(__file__).resolve().parents[1] / "config/patterns.yaml")
NAMES = [pattern.name for pattern in PATTERNS]


def shown(text: str) -> list[str]:
    return [name for name, found in zip(NAMES, detect([text], PATTERNS)[0], strict=True) if found]


def samples(statuses: dict[str, str], texts: dict[str, list[str]] | None = None) -> pd.DataFrame:
    """A graded sample per letter: c correct, w wrong."""
    rows = [
        {
            "problem_id": problem,
            "eval_seed": 0,
            "sample_index": index,
            "completion": texts[problem][index] if texts else f"{problem}/{index}",
            "answer": "1",
            "status": "correct" if letter == "c" else "wrong",
            "n_tokens": 2,
            "finish_reason": "stop",
        }
        for problem, letters in statuses.items()
        for index, letter in enumerate(letters)
    ]
    return pd.DataFrame(rows)


def problem(name: str) -> Problem:
    return Problem(name, f"Calculate {name}.", "1", "math", "", "test", "1")


# Patterns


@pytest.mark.parametrize(
    "text",
    [
        "Let x be the total.",
        "LET\n  $x$ be",
        r"\text{Let } x_{1} = 2",
        r"**Let** \(\alpha\) be an angle",
        r"let\; n \in \mathbb{N}",
        "Let the number of nines in the list be $n$.",
        "Let's denote it by n.",
        r"Here $x=2k \quad\text{must be}$ even",
        "let a = 3",
    ],
)
def test_introducing_a_symbol_is_a_constraint_setup(text: str) -> None:
    assert shown(text) == ["constraint_setup"]


@pytest.mark.parametrize(
    "text",
    [
        "Let's think step by step.",
        "Let us see. It must be so.",
        "Let me be clear",
        "outlet x, pallet y",
        r"\let x",
        "Let go. It will be 4",
        "let it go\n\nto be",
        r"let it go \\ to be",
        "the denominator is 3",
        "let a triangle have sides",
        "let " + "very " * 20 + "long gaps be",
    ],
)
def test_what_only_looks_like_a_constraint_setup_is_none(text: str) -> None:
    assert shown(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("so n is Of The Form 4k+1", "structural_reasoning"),
        ("decomposes\ninto two sums", "structural_reasoning"),
        ("we break the sum up into parts", "structural_reasoning"),
        ("Assume for contradiction that it is even", "proof_by_contradiction"),
        ("suppose, for the sake of contradiction, otherwise", "proof_by_contradiction"),
        (r"which leads to a \emph{contradiction}", "proof_by_contradiction"),
        ("1 = 2 , a contradiction .", "proof_by_contradiction"),
    ],
)
def test_the_other_patterns_have_phrases_of_their_own(text: str, name: str) -> None:
    assert shown(text) == [name]


@pytest.mark.parametrize(
    "text", ["There is no contradiction.", "This doesn’t lead to a contradiction", "uniform of it"]
)
def test_denied_patterns_do_not_count(text: str) -> None:
    assert shown(text) == []


@pytest.mark.parametrize("wordings", [1, 12])
def test_the_toy_corpus_shows_the_patterns_of_its_styles(wordings: int) -> None:
    slips = Slips(direct=0.5, steps=0.1, group=0.1, below_zero=0.3, knights=0.3)
    expected: dict[str, list[str]] = {
        "direct": [],
        "steps": [],
        "let": ["constraint_setup"],
        "group": ["structural_reasoning"],
        "contradiction": ["proof_by_contradiction"],
    }
    rng = random.Random(0)
    for style, names in expected.items():
        for _ in range(20):
            worked = work_arithmetic("5-3-6+2", style, slips, rng, wordings)
            assert shown(completion(worked.working, worked.answer)) == names


def test_plain_text_takes_marks_off_and_keeps_sentences_apart() -> None:
    text = "Let  $x_{1}:=3.5$ , then.\n\nSo <SOLUTION>1</SOLUTION>"
    assert plain_text(text) == f"let x_1 = 3.5, then{BREAK}{BREAK}so {BREAK}1{BREAK}"


@pytest.mark.parametrize("phrase", ["... be", "let ...", "let <number>", "le*t x", "", "a.b"])
def test_a_faulty_phrase_is_named(phrase: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="phrase"):
        compile_phrases([phrase])
    faulty = tmp_path / "patterns.yaml"
    faulty.write_text(json.dumps({"mine": {"title": "Mine", "phrases": [phrase]}}))
    with pytest.raises(ValueError, match=r"patterns\.yaml, pattern mine"):
        load_patterns(faulty)


def test_a_file_with_unknown_keys_is_refused(tmp_path: Path) -> None:
    faulty = tmp_path / "patterns.yaml"
    faulty.write_text('{"mine": {"title": "Mine", "words": ["let"]}}')
    with pytest.raises(ValueError, match=r"mine.words: unknown key; .*phrases"):
        load_patterns(faulty)


@pytest.mark.parametrize("unit", ["let ", "x = ", "assume ", "contradicts ", "\n ", "\\text", "x_"])
def test_the_cost_is_linear_in_the_text(unit: str) -> None:
    """Twenty times the text may not take much more than twenty times as long."""

    def seconds(repeats: int) -> float:
        text = unit * repeats
        start = time.process_time()
        detect([text], PATTERNS)
        return time.process_time() - start

    assert seconds(20_000) < 60 * (min(seconds(1_000) for _ in range(3)) + 1e-3)


def test_gaps_are_not_tried_again_and_again() -> None:
    several = compile_phrases(["a ... a ... a ... b"])
    assert several.search("a cat, a dog, a fly and b")
    start = time.process_time()
    assert not several.search("a " * 2_000)
    assert time.process_time() - start < 0.5


def test_frequency_pools_and_averages() -> None:
    """Problems with 3 of 4, none of 0 and 1 of 2: pooled 4/6, averaged (3/4 + 1/2) / 2."""
    found = frequency(np.array([[3, 0, 1]]), np.array([[4, 0, 2]]), draws=2_000)
    assert found.pooled == pytest.approx(4 / 6)
    assert found.per_problem == pytest.approx(0.625)
    for value, (low, high) in (
        (found.pooled, found.pooled_interval),
        (found.per_problem, found.per_problem_interval),
    ):
        assert 0.0 <= low < value < high <= 1.0


def test_with_equal_counts_the_interval_is_that_of_the_mean() -> None:
    shown = np.array([[3, 0, 1, 2, 4, 1], [2, 0, 1, 1, 4, 2]])
    found = frequency(shown, np.full((2, 6), 8), draws=500)
    low, high = interval_of_mean(shown[..., None] / 8, 500)
    assert found.pooled_interval == pytest.approx((max(low[0], 0.0), high[0]))
    assert found.per_problem_interval == pytest.approx(found.pooled_interval)


def pattern_row(algorithm: str, seeds: list[int], correct: list, shown: list) -> dict[str, Any]:
    """A row of the pattern table, as far as two rows are compared by it."""
    counts = {"correct": np.ravel(correct).tolist(), "shown": np.ravel(shown).tolist()}
    problems = [f"p{i}" for i in range(len(correct[0]))]
    return {"algorithm": algorithm, "train_seeds": seeds, "problems": problems, **counts}


def test_patterns_are_compared_on_problems_that_both_solve() -> None:
    """Both solve p0 and p2 (and nobody p3): (2/4 - 1/2 + 3/3 - 0/5) / 2 = 0.5; p1 is no match."""
    row = pattern_row("a", [1], [[4, 9, 3, 0]], [[2, 9, 3, 0]])
    other = pattern_row("c", [1], [[2, 0, 5, 0]], [[1, 0, 0, 0]])
    compared = shares_compared(row, other, draws=500)
    assert compared is not None
    estimate, problems, runs = compared
    assert (float(estimate.value[0]), problems, runs) == (pytest.approx(0.5), 2, 1)
    assert shares_compared(row, pattern_row("c", [1], [[2, 0, 0, 0]], [[1, 0, 0, 0]]), 500) is None
    with pytest.raises(ValueError, match="no training seed in common"):
        shares_compared(row, {**other, "train_seeds": [2]}, 500)


def test_a_pattern_that_nobody_shows_still_has_an_interval() -> None:
    """Ten problems without it allow a difference of 1 - 0.025^(1/10) = 0.308 either way."""
    correct, none = [[4] * 10], [[0] * 10]
    rows = (pattern_row(name, [1], correct, none) for name in ("a", "c"))
    compared = shares_compared(*rows, draws=20_000)
    assert compared is not None
    low, high = compared[0].interval()
    assert (low[0], high[0]) == pytest.approx((-0.308, 0.308), abs=0.01)


def test_every_run_meets_the_one_base() -> None:
    row = pattern_row("a", [1, 2], [[1, 1], [1, 1]], [[1, 1], [0, 0]])
    base = pattern_row("base", [0], [[1, 1]], [[0, 0]])
    compared = shares_compared(row, base, draws=500)
    assert compared is not None
    assert (float(compared[0].value[0]), compared[2]) == (0.5, 2)


def test_shares_beyond_the_base_are_of_each_run_and_problem() -> None:
    """The base's 0.5 quantile of 1, 2, 3 is 2; runs have one and two of two above it."""
    rows = [("base", 0, 1.0), ("base", 0, 2.0), ("base", 0, 3.0)]
    rows += [("a", 1, 2.0), ("a", 1, 9.0), ("a", 2, 2.1), ("a", 2, 9.0)]
    frame = pd.DataFrame(rows, columns=["algorithm", "train_seed", "perplexity"])
    shares = tail_shares(frame.assign(problem_id="p"), level=0.5).set_index(
        ["algorithm", "train_seed"]
    )["share"]
    assert shares.to_dict() == {("a", 1): 0.5, ("a", 2): 1.0, ("base", 0): pytest.approx(1 / 3)}


def test_frequency_takes_training_seeds_together() -> None:
    found = frequency(np.array([[1, 0], [2, 1]]), np.array([[1, 1], [3, 1]]), draws=200)
    assert found.pooled == pytest.approx(4 / 6)
    assert found.per_problem == pytest.approx((1 + 0 + 2 / 3 + 1) / 4)


def test_a_frequency_of_0_or_1_has_the_interval_of_its_problems() -> None:
    """Five problems, as Clopper and Pearson: 1 - 0.025^(1/5) = 0.5218; as far from 1."""
    none = frequency(np.zeros((1, 5)), np.full((1, 5), 4), draws=100)
    assert (
        none.pooled_interval == none.per_problem_interval == pytest.approx((0.0, 0.5218), abs=1e-4)
    )
    every = frequency(np.full((1, 5), 4), np.full((1, 5), 4), draws=100)
    assert every.pooled_interval == pytest.approx((0.4782, 1.0), abs=1e-4)
    # one problem of five has twice the mean of solutions, so its share counts twice as much
    uneven = frequency(np.zeros((1, 5)), np.array([[6, 6, 12, 3, 3]]), draws=100)
    assert uneven.pooled_interval[1] == pytest.approx(1.0)
    assert uneven.per_problem_interval[1] == pytest.approx(0.5218, abs=1e-4)


def test_a_frequency_without_correct_solutions_is_nan() -> None:
    found = frequency(np.zeros((1, 3)), np.zeros((1, 3)), draws=100)
    assert math.isnan(found.pooled)
    assert math.isnan(found.per_problem)


def test_the_interval_grows_with_the_likeness_of_solutions() -> None:
    """Whole problems are drawn: solutions that agree within a problem tell less."""
    correct = np.full((1, 40), 16)
    alike, mixed = np.repeat([[16, 0]], 20, axis=0).reshape(1, 40), np.full((1, 40), 8)
    mixed[0, ::2] += 1
    ends = [frequency(counts, correct, 2_000).pooled_interval for counts in (alike, mixed)]
    assert ends[0][1] - ends[0][0] == pytest.approx(4 * math.sqrt(0.25 / 40), rel=0.15)
    assert ends[1][1] - ends[1][0] < 0.03


def test_counts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="more solutions"):
        frequency(np.array([[2]]), np.array([[1]]), draws=10)
    with pytest.raises(ValueError, match="shapes"):
        frequency(np.array([1]), np.array([1]), draws=10)


def test_the_table_counts_correct_solutions_only(tmp_path: Path) -> None:
    texts = {
        "p1": ["let x be", "let y be", "of the form", "let z be"],
        "p2": ["by contradiction", "plain", "let x be", "plain"],
        "p3": ["let x be", "plain", "plain", "plain"],
    }
    frame = samples({"p1": "ccwc", "p2": "ccww", "p3": "wwww"}, texts)
    table = pattern_table({("m", "grpo", 1, "b"): frame}, PATTERNS, 200).set_index("pattern")
    assert table.loc["constraint_setup", "pooled"] == pytest.approx(3 / 5)
    assert table.loc["constraint_setup", "per_problem"] == pytest.approx((1 + 0) / 2)
    assert table.loc["structural_reasoning", "pooled"] == 0
    assert table.loc["proof_by_contradiction", "per_problem"] == pytest.approx((0 + 1 / 2) / 2)
    assert table["n_correct"].tolist() == [5, 5, 5]
    assert table["n_problems"].tolist() == [2, 2, 2]
    two = pattern_table({("m", "grpo", 1, "b"): frame}, PATTERNS, 200, samples_per_problem=2)
    assert two["n_correct"].tolist() == [4, 4, 4]

    path = tmp_path / "samples/m/grpo/seed1/b.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)
    lists = Path(__file__).resolve().parents[1] / "config/patterns.yaml"
    read = read_pattern_table([path], lists, 200, None).set_index("pattern")
    pd.testing.assert_frame_equal(read, table)
    read = read_pattern_table([path], lists, 200, 2).set_index("pattern")
    pd.testing.assert_frame_equal(read, two.set_index("pattern"))


def test_a_row_without_correct_solutions_stays_in_the_table() -> None:
    table = pattern_table({("m", "base", 0, "b"): samples({"p": "ww"})}, PATTERNS, 100)
    assert table["n_correct"].tolist() == [0, 0, 0]
    assert table["pooled"].isna().all()


def test_seeds_of_different_problems_are_refused() -> None:
    frames = {
        ("m", "a", seed, "b"): samples({name: "c"}) for seed, name in [(1, "p"), (2, "other")]
    }
    with pytest.raises(ValueError, match="different problems"):
        pattern_table(frames, PATTERNS, 100)


# Perplexity


@pytest.fixture(scope="module")
def network() -> PreTrainedModel:
    """A random tiny model with sharpened logits, so that probabilities differ."""
    shape = Architecture(
        hidden_size=32,
        intermediate_size=64,
        layers=2,
        heads=4,
        key_value_heads=2,
        max_positions=64,
        vocab_size=300,
    )
    model = build_tiny(shape, train_tokenizer(["Calculate 1+2."] * 9, 300), seed=5)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(20)
    return model


def random_pairs(vocabulary: int) -> tuple[list[list[int]], list[list[int]]]:
    rng = random.Random(1)

    def ids(length: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(length)]

    lengths = [(1, 1), (9, 3), (3, 20), (5, 1), (12, 17), (3, 7), (2, 30)]
    return [ids(first) for first, _ in lengths], [ids(second) for _, second in lengths]


@torch.inference_mode()
def token_by_token(model: Any, prompt: list[int], written: list[int]) -> list[float]:
    """A token at a time with a key-value cache, alone in its batch."""
    output = model(torch.tensor([prompt]), use_cache=True)
    log_probs = []
    for token in written:
        log_probs.append(output.logits[0, -1].float().log_softmax(-1)[token].item())
        output = model(
            torch.tensor([[token]]), past_key_values=output.past_key_values, use_cache=True
        )
    return log_probs


@pytest.mark.parametrize(
    ("batch_tokens", "chunk_logits"), [(16_384, 2**27), (40, 2**27), (16_384, 5 * 7 * 300), (1, 1)]
)
def test_log_probs_agree_with_reading_token_by_token(
    network: PreTrainedModel, batch_tokens: int, chunk_logits: int
) -> None:
    prompts, written = random_pairs(network.config.vocab_size)
    found = token_log_probs(network, prompts, written, batch_tokens, chunk_logits)
    for prompt, ids, row in zip(prompts, written, found, strict=True):
        expected = token_by_token(network.eval(), prompt, ids)
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-5)
        assert perplexity(row) == pytest.approx(math.exp(-np.mean(expected)), rel=1e-5)
    assert np.ptp(np.concatenate(found)) > 1


def test_logits_held_at_a_time_are_bounded(
    network: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, written = random_pairs(network.config.vocab_size)
    sizes = []
    forward = network.forward

    def measured(*arguments: Any, **settings: Any) -> Any:
        output = forward(*arguments, **settings)
        sizes.append(output.logits.numel())
        return output

    monkeypatch.setattr(network, "forward", measured)
    token_log_probs(network, prompts, written, 16_384, chunk_logits=10 * 300)
    assert max(sizes) <= 10 * 300
    assert len(sizes) > 7


def test_batches_are_of_like_length_and_bounded() -> None:
    assert length_sorted([5, 1, 4, 2, 50], 10, 8) == [[1, 3], [2, 0], [4]]
    assert length_sorted([3, 3, 3], 100, 2) == [[0, 1], [2]]
    assert length_sorted([], 10, 8) == []


def test_perplexity_of_known_probabilities() -> None:
    """Probabilities 1/2, 1/4, 1/8: the geometric mean of 2, 4, 8 is 4."""
    assert perplexity(np.log([1 / 2, 1 / 4, 1 / 8])) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="without tokens"):
        perplexity(np.array([]))


def test_empty_prompts_and_completions_are_refused(network: PreTrainedModel) -> None:
    for prompt, ids in ([], [1]), ([1], []):
        with pytest.raises(ValueError, match="pair 0"):
            token_log_probs(network, [prompt], [ids])


def with_tokens(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(token_ids=[[row % 7 + 3, 5] for row in range(len(frame))])


def test_the_same_responses_are_chosen_whatever_the_order() -> None:
    frame = with_tokens(samples({"p1": "cwcw", "p2": "wwww"}))
    shuffled = frame.sample(frac=1.0, random_state=0)
    runs = {
        ("m", "base", 0, "b"): shuffled,
        ("m", "grpo", 9, "b"): frame.assign(status="timeout"),
        ("m", "grpo", 3, "b"): frame,
    }
    chosen = choose_responses(runs, ["base", "grpo"], ["p2", "p1"], responses=3)
    assert chosen["problem_id"].tolist() == (["p2"] * 3 + ["p1"] * 3) * 3
    assert chosen["sample_index"].tolist() == [0, 1, 2] * 6
    assert chosen.loc[chosen["algorithm"] == "grpo", "train_seed"].unique().tolist() == [3, 9]
    assert chosen.loc[3, "token_ids"] == frame.loc[0, "token_ids"]


def test_lacking_responses_are_named() -> None:
    runs = {("m", "base", 0, "b"): with_tokens(samples({"p1": "cw"}))}
    with pytest.raises(ValueError, match="2 samples of problem 'p1'"):
        choose_responses(runs, ["base"], ["p1"], responses=3)
    with pytest.raises(ValueError, match="no samples of 'grpo'; there are base"):
        choose_responses(runs, ["grpo"], ["p1"], responses=2)
    without = {run: frame.drop(columns="token_ids") for run, frame in runs.items()}
    with pytest.raises(ValueError, match="no column token_ids"):
        choose_responses(without, ["base"], ["p1"], responses=2)


def test_problems_are_the_named_or_the_first() -> None:
    assert choose_problems(["b", "a", "c"]) == ["b", "a"]
    assert choose_problems(["b", "a", "c"], ["c"]) == ["c"]
    with pytest.raises(ValueError, match="problems x are not"):
        choose_problems(["a"], ["x"])
    with pytest.raises(ValueError, match="the benchmark has 1"):
        choose_problems(["a"])


def test_the_table_reads_the_stored_tokens(network: PreTrainedModel) -> None:
    tokenizer = train_tokenizer(["Calculate 1+2."] * 9, 300)
    asked = [problem("p1"), problem("p2")]
    runs = {("m", "base", 0, "b"): with_tokens(samples({"p1": "cw", "p2": "cw"}))}
    chosen = choose_responses(runs, ["base"], ["p1", "p2"], responses=2)
    table = perplexity_table(network, tokenizer, asked, chosen)
    for place, row in table.iterrows():
        prompt = prompt_ids(tokenizer, f"Calculate {row['problem_id']}.")
        alone = token_by_token(network, prompt, chosen.loc[place, "token_ids"])
        assert row["perplexity"] == pytest.approx(math.exp(-sum(alone) / 2), rel=1e-5)
    with pytest.raises(ValueError, match="2 tokens but n_tokens 3"):
        perplexity_table(network, tokenizer, asked, chosen.assign(n_tokens=3))


def test_tails_are_measured_against_the_base() -> None:
    values = {"base": np.arange(1.0, 101.0), "grpo": np.full(4, 2.0), "branch": [99.0, 1.0]}
    frame = pd.concat(
        pd.DataFrame({"problem_id": "p", "algorithm": name, "perplexity": column})
        for name, column in values.items()
    )
    table = tail_table(frame).set_index("algorithm")
    assert table["tail_share"].to_dict() == {"base": 0.05, "grpo": 0.0, "branch": 0.5}
    assert table.loc["base", "upper"] == pytest.approx(95.05)
    assert table["median"].tolist() == [50.5, 2.0, 50.0]
    with pytest.raises(ValueError, match="no responses of 'base'"):
        tail_table(frame[frame["algorithm"] != "base"])


# Training dynamics


def history(**columns: list[float]) -> list[dict[str, float]]:
    length = len(next(iter(columns.values())))
    return [
        {"step": step + 1, **{name: column[step] for name, column in columns.items()}}
        for step in range(length)
    ]


def test_stages_are_thirds() -> None:
    assert stage_means(np.array([1.0, 3.0, 4.0, 6.0, 7.0, 9.0])).tolist() == [2.0, 5.0, 8.0]
    assert stage_means(np.array([1.0, 3.0, 4.0, 6.0])).tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(ValueError, match="2 steps"):
        stage_means(np.ones(2))


def test_the_gradient_table_ranges_over_seeds() -> None:
    runs = {
        ("grpo", 1): history(grad_norm=[1, 1, 2, 2, 3, 3]),
        ("grpo", 2): history(grad_norm=[2, 2, 2, 2, 1, 1]),
        ("grpo", 3): history(grad_norm=[6, 6, 2, 2, 5, 5]),
        ("base_like", 1): history(grad_norm=[1, 2, 3]),
    }
    table = gradient_norm_table(runs).set_index(["algorithm", "stage"])
    assert table.loc["grpo", "value"].tolist() == pytest.approx([3.0, 2.0, 3.0])
    assert table.loc["grpo", "low"].tolist() == [1.0, 2.0, 1.0]
    assert table.loc["grpo", "high"].tolist() == [6.0, 2.0, 5.0]
    assert table.loc["grpo", "coverage"].tolist() == [0.75] * 3
    assert table.loc["base_like", "low"].isna().all()
    assert table.loc["base_like", "coverage"].tolist() == [0.0] * 3


def test_histories_are_read_from_policies_folders(tmp_path: Path) -> None:
    for name in ("grpo", "grpo_no_kl"):
        folder = tmp_path / name / "seed4"
        folder.mkdir(parents=True)
        rows = history(grad_norm=[3.0, 2.0, 1.0])
        (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = sorted(tmp_path.glob("*/seed4"))
    assert read_histories(folders)["grpo", 4] == history(grad_norm=[3.0, 2.0, 1.0])
    (folders[0] / "history.jsonl").write_text('{"step": 1}\n{"ste')
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read_histories(folders)


def test_gradient_norms_are_measured_from_the_histories_of_an_exhibits_rows(
    tmp_path: Path,
) -> None:
    results, study = Results(tmp_path), a_study()
    table5 = EXHIBITS["table5"]
    assert isinstance(table5, GradientTable)
    files = table5.inputs(study, results, "table5")
    runs = [Run("tiny", name, 1) for name in ("grpo", "branch")]
    assert files == {"policies": [results.policy(run) for run in runs]}
    for run, norms in zip(runs, ([3.0, 2.0, 1.0], [1.0, 1.0, 4.0]), strict=True):
        results.policy(run).mkdir(parents=True)
        rows = history(grad_norm=norms)
        results.history(run).write_text("".join(json.dumps(row) + "\n" for row in rows))
    measured, manifest = results.measured("table5"), Manifest({}, threads=1, started=0.0)
    measure(table5.model_dump(), {}, files, measured, "cpu", tmp_path / "shards", manifest)
    written = pd.read_parquet(measured / "stages.parquet").set_index("algorithm")
    assert written.loc["grpo", "value"].tolist() == [3.0, 2.0, 1.0]
    assert written.loc["branch", "value"].tolist() == [1.0, 1.0, 4.0]
    results.history(runs[0]).write_text('{"step": 1}\n')
    with pytest.raises(ValueError, match="grpo, seed 1: no grad_norm"):
        measure(table5.model_dump(), {}, files, measured, "cpu", tmp_path / "shards", manifest)
    assert (measured / "stages.parquet").exists()  # all of it or nothing


def test_histories_are_one_frame_with_what_was_recorded() -> None:
    runs = {
        ("grpo", 2): history(reward=[0.5, 0.25]),
        ("branch", 1): history(reward=[0.75], q_mean=[1.125]),
        ("no_kl", 1): [],
    }
    frame = history_frame(runs)
    assert frame[["algorithm", "seed", "step", "reward"]].to_numpy().tolist() == [
        ["branch", 1, 1, 0.75],
        ["grpo", 2, 1, 0.5],
        ["grpo", 2, 2, 0.25],
    ]
    assert frame["q_mean"].isna().tolist() == [False, True, True]
    assert history_frame({}).columns.tolist() == ["algorithm", "seed", "step"]


def test_the_range_covers_the_median_as_often_as_it_says() -> None:
    """Over runs of a skewed law, the range of three holds the median three times in four."""
    draws = np.random.default_rng(0).exponential(size=(20_000, 3))
    held = (draws.min(axis=1) < math.log(2)) & (math.log(2) < draws.max(axis=1))
    assert held.mean() == pytest.approx(1 - 2.0 ** (1 - 3), abs=0.01)


def test_faulty_histories_are_named() -> None:
    with pytest.raises(ValueError, match="grpo, seed 1: no grad_norm"):
        gradient_norm_table({("grpo", 1): history(reward=[1, 2, 3])})
    runs = {("grpo", 1): history(grad_norm=[1] * 3), ("grpo", 2): history(grad_norm=[1] * 4)}
    with pytest.raises(ValueError, match="different lengths"):
        gradient_norm_table(runs)


def test_moving_means_are_centred_and_cut_off_at_the_ends() -> None:
    values = np.array([1.0, 2.0, 6.0, 3.0])
    assert moving_mean(values, 1).tolist() == values.tolist()
    assert moving_mean(values, 3).tolist() == pytest.approx([1.5, 3.0, 11 / 3, 4.5])
    assert moving_mean(values, 2).tolist() == pytest.approx([1.5, 4.0, 4.5, 3.0])
    assert moving_mean(values, 99).tolist() == pytest.approx([3.0] * 4)
    gap = np.array([1.0, math.nan, 3.0, 5.0])
    assert moving_mean(gap, 3).tolist() == pytest.approx([1.0, 2.0, 4.0, 4.0])
    with pytest.raises(ValueError, match="at least 1"):
        moving_mean(values, 0)


def test_reward_around_a_checkpoint_is_joined_with_accuracy() -> None:
    """Steps 1 to 6; the policy after 2 updates drew the rollouts of step 3."""
    rewards = [0.0, 0.1, 0.2, 0.6, 0.8, 1.0]
    accuracies = pd.DataFrame(
        {
            "algorithm": "grpo",
            "train_seed": 1,
            "step": [6, 0, 2],
            "value": [0.5, 0.3, 0.4],
            "low": [0.4, 0.2, 0.3],
        }
    )
    joined = reward_and_accuracy({("grpo", 1): history(reward=rewards)}, accuracies, window=2)
    assert joined["step"].tolist() == [0, 2, 6]
    assert joined["accuracy"].tolist() == [0.3, 0.4, 0.5]
    assert joined["low"].tolist() == [0.2, 0.3, 0.4]
    assert joined["reward"].tolist() == pytest.approx([0.0, 0.15, 1.0])
    one = reward_and_accuracy({("grpo", 1): history(reward=rewards)}, accuracies, window=1)
    assert one["reward"].tolist() == pytest.approx([0.0, 0.2, 1.0])
    with pytest.raises(ValueError, match="no history"):
        reward_and_accuracy({}, accuracies, window=2)
    with pytest.raises(ValueError, match="a history of 3 steps"):
        reward_and_accuracy({("grpo", 1): history(reward=rewards[:3])}, accuracies, window=2)


# Case study


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
    files = []
    for algorithm, seed, letters in [("base", 0, "wc"), ("grpo", 2, "ww"), ("grpo", 1, "cw")]:
        path = tmp_path / f"samples/m/{algorithm}/seed{seed}/b.parquet"
        path.parent.mkdir(parents=True)
        samples({"p1": letters, "p2": "ww"}).to_parquet(path)
        files.append(path)
    write_case(files, tmp_path / "b.jsonl", ["base", "grpo"], tmp_path / "case.json")
    case = read_case(tmp_path / "case.json")
    assert case is not None
    assert case.problem == asked[0]
    assert [s.sample_index for s in case.solutions] == [1, 0]
    write_case([files[0], files[1]], tmp_path / "b.jsonl", ["base", "grpo"], tmp_path / "none.json")
    assert read_case(tmp_path / "none.json") is None
