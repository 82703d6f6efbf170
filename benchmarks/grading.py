"""Grading an evaluation's completions, compared with calling Math-Verify for each completion.

10,000 completions of 100 problems: most answers occur many times, in a few spellings; two in five
problems have an answer in LaTeX.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

from benchmarks.paired import Comparison, compared, in_turn
from sage.prompting import completion, solution_text
from sage.tasks import Grader, Sample

PROBLEMS, SAMPLES = 100, 100

LATEX = (
    (r"\frac{%d}{7}", r"\dfrac{%d}{7}", "%d/7"),
    (r"%d\sqrt{3}", r"\sqrt{3}\cdot %d", r"$%d\sqrt{3}$"),
    (r"\frac{%d\pi}{4}", r"%d\pi/4", r"\frac{%d}{4}\pi"),
    (r"\left(%d, \frac{1}{2}\right)", r"(%d,\frac{1}{2})", r"(%d, 1/2)"),
    (r"[%d,\infty)", r"[%d, \infty)", r"\left[%d,\infty\right)"),
    (r"x^2-%dx+1", r"x^2 - %d x + 1", r"1+x^2-%dx"),
    (r"\{%d, -1\}", r"\{-1, %d\}", r"%d, -1"),
)
"""Spellings of one answer, the reference's first; %d is a number that a mistake changes."""


def samples(seed: int = 0) -> list[Sample]:
    """Completions with their reference answers; each problem has its own success rate and
    mistakes."""
    rng = random.Random(seed)
    drawn: list[Sample] = []
    for _ in range(PROBLEMS):
        forms = rng.choice(LATEX) if rng.random() < 0.4 else ("%d", "%d", "$%d$")
        value = rng.choice([n for n in range(2, 900) if n % 7])
        mistakes = [value + rng.choice((-1, 1)) * rng.randint(1, 9) * 7 for _ in range(20)]
        success, weights = rng.betavariate(1, 2), [1 / rank for rank in range(1, 21)]
        for _ in range(SAMPLES):
            right = rng.random() < success
            number = value if right else rng.choices(mistakes, weights)[0]
            form = rng.choices(forms, (0.7, 0.2, 0.1))[0]
            working = "Let x be the number we look for. " * rng.randint(20, 80)
            text = completion(working, form % number)
            if rng.random() < 0.05:  # cut off before its end
                text = text[: rng.randint(0, len(text) // 2)]
            drawn.append((text, forms[0] % value, "math"))
    rng.shuffle(drawn)
    return drawn


def in_bulk(drawn: list[Sample]) -> list[bool]:
    """Which completions are correct, by the project's grader."""
    return [verdict.status == "correct" for verdict in Grader().grade_many(drawn)]


def one_by_one(drawn: list[Sample]) -> list[bool]:
    """Which completions are correct, by Math-Verify in this process, both sides boxed."""
    from math_verify import parse, verify

    found = []
    for text, gold, _ in drawn:
        answer = solution_text(text)
        found.append(
            answer is not None
            and verify(parse(f"\\boxed{{{gold}}}"), parse(f"\\boxed{{{answer}}}"))
        )
    return found


def comparisons() -> Iterator[Comparison]:
    """One comparison over all completions. Raises ValueError if a verdict differs."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    drawn = samples()
    one_by_one(drawn[:20])  # its imports are not timed
    results: dict[str, list[bool]] = {}
    times = in_turn(
        lambda: results.update(ours=in_bulk(drawn)),
        lambda: results.update(naive=one_by_one(drawn)),
        rounds=1,
    )
    name = f"grading {PROBLEMS * SAMPLES:,} completions, against Math-Verify one by one"
    pairs = zip(drawn, results["ours"], results["naive"], strict=True)
    if different := {(gold, solution_text(text)) for (text, gold, _), a, b in pairs if a != b}:
        raise ValueError(f"the grader and Math-Verify differ on (gold, answer) {sorted(different)}")
    yield compared(name, [naive / ours for ours, naive in times], "at least 50", times)
