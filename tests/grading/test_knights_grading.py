"""Answers to Knights and Knaves: every wording of the solution is correct, nothing near it is.

The real puzzles are looked for in the folder named by SAGE_MIRROR.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pandas as pd
import pytest
from verdicts import MIRROR, block, needs_mirror

from sage.tasks import Grader

GOLD = "Ann knight, Bob knave, Cat knave"
TICKS = "| Who | Knight | Knave |\n|:--|:-:|:-:|\n| Ann | ✓ | |\n| Bob | | ✓ |\n| Cat | | ✓ |"


@pytest.fixture(scope="module")
def grader() -> Grader:
    return Grader()


@pytest.mark.parametrize(
    "answer",
    [
        "Ann knight, Bob knave, Cat knave",
        "Cat knave, Ann knight, Bob knave",
        "Ann is a knight, Bob is a knave, and Cat is a knave.",
        "(1) Ann is a knight\n(2) Bob is a knave\n(3) Cat is a knave",
        "- **Ann**: Knight\n- **Bob**: Knave\n- **Cat**: Knave",
        "Ann is a knight; Bob and Cat are knaves",
        "Bob and Cat are both knaves, Ann is a knight",
        "Ann is a knight and Bob, Cat are knaves",
        "Knights: Ann; Knaves: Bob, Cat",
        "The knaves are Bob and Cat, and the knight is Ann.",
        r"\text{Ann: knight, Bob: knave, Cat: knave}",
        "| Name | Role |\n|---|---|\n| Ann | Knight |\n| Bob | Knave |\n| Cat | Knave |",
        "| Ann | knight |\n| Bob | knave |\n| Cat | knave |",
        TICKS,
        TICKS.replace("✓", "yes").replace("| |", "| no |"),
        r"\begin{tabular}{|c|c|}\hline Ann & knight \\ Bob & knave \\ Cat & knave \end{tabular}",
        '{"Ann": "knight", "Bob": "knave", "Cat": "knave"}',
        '{"knights": ["Ann"], "knaves": ["Bob", "Cat"]}',
        '[{"name": "Ann", "role": "knight"}, {"name": "Bob", "role": "knave"}, '
        '{"name": "Cat", "role": "knave"}]',
        "Ann -> knight, Bob -> knave, Cat -> knave",
        "Ann → knight\nBob → knave\nCat → knave",
        r"Ann \rightarrow \text{knight}, Bob \rightarrow \text{knave}, Cat \to \text{knave}",
        "• Ann: knight\n• Bob: knave\n• Cat: knave",
        "### Knights\n- Ann\n### Knaves\n- Bob\n- Cat",
        "**Knights:**\n1. Ann\n\n**Knaves:**\n1. Bob\n2. Cat",
        "Ann is a truth-teller, Bob is a liar, Cat is a liar",
        "Truth tellers: Ann. Liars: Bob, Cat.",
        "Ann is a knight (truth-teller), Bob is a knave (liar), Cat is a knave (lies)",
        "Ann tells the truth, Bob and Cat are lying",
    ],
)
def test_an_assignment_in_any_order_and_wording_is_correct(grader: Grader, answer: str) -> None:
    assert grader.grade(block(answer), GOLD, "knights").status == "correct"


@pytest.mark.parametrize(
    "answer",
    [
        "Ann knight, Bob knave",
        "Ann knight, Bob knave, Cat knight",
        "Ann knight, Bob knave, Cat knave, Dan knight",
        "Ann knight, Bob knave, Cat knave, Ann knave",
        "Ann knight, Bob knave, Cat knave. Or: Ann knave, Bob knight, Cat knight",
        "Ann knight, Bob knave, Cat knave; Ann knight, Bob knave, Cat knave",
        "Ann is a knight and a knave, Bob is a knave, Cat is a knave",
        "Ann and Bob are knights and knaves, Cat is a knave",
        "Ann is a knight, Bob and Cat are not knaves",
        "Ann is a knight, Bob is a knave, Cat is either",
        "Knights: Ann; Knaves: Bob, Cat, Ann",
        "Knights: Ann; Knaves: Bob",
        "All are knaves",
        "42",
        "| Name | Role |\n|---|---|\n| Ann | Knight |\n| Bob | Knave |\n| Cat | Knight |",
        "| Ann | knight | knave |\n| Bob | knave |\n| Cat | knave |",
        TICKS.replace("| Ann | ✓ | |", "| Ann | ✓ | ✓ |"),
        TICKS.replace("| Ann | ✓ | |", "| Ann | | |"),
        '{"Ann": "knight", "Bob": "knave", "Cat": "knave", "Ann": "knave"}',
        '{"knights": ["Ann", "Bob"], "knaves": ["Bob", "Cat"]}',
        '{"knights": [], "knaves": ["Ann", "Bob", "Cat"]}',
        "Ann -> knave, Bob -> knave, Cat -> knave",
        "Ann -> knight or knave, Bob -> knave, Cat -> knave",
        "### Knights\n- Ann\n- Bob\n### Knaves\n- Cat",
        "Ann is a knight (liar), Bob is a knave, Cat is a knave",
        "Ann is a truth-teller, Bob is a liar, Cat is not a liar",
        "Ann is a knight. Bob is lying when he says Cat is a knave",
        "Ann: knight?\nBob: knave\nCat: knave",
    ],
)
def test_partial_doubled_and_contradictory_assignments_are_refused(
    grader: Grader, answer: str
) -> None:
    assert grader.grade(block(answer), GOLD, "knights").status in ("wrong", "unparsed")


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("Li Wei knight, Ann knave", "Li Wei is a knight and Ann is a knave", True),
        ("Li Wei knight, Ann knave", "Xu Wei knight, Ann knave", False),
        ("Li Wei knight, Ann knave", "Wei knight, Ann knave", False),
        ("Li Wei knight, Xu Wei knave", "Knights: Li Wei; Knaves: Xu Wei", True),
        ("Li Wei knight, Xu Wei knave", "Xu Wei knight, Li Wei knave", False),
        ("Mary Ann knight, Ann knave", "Ann is a knave, Mary Ann is a knight", True),
        ("Mary Ann knight, Ann knave", "Ann knight, Mary Ann knave", False),
        ("Zoë knight, José knave", "(1) Zoë is a knight\n(2) José is a knave", True),
        ("Zoë knight, José knave", "Zoe\u0308 knight, Jose\u0301 knave", True),
        ("Zoë knight, José knave", "José knight, Zoë knave", False),
        ("Зоя knight, Иван knave", "Зоя is a knight, Иван is a knave", True),
        ("Person 1 knight, Person 2 knave", "**Person 1**: knight\n**Person 2**: knave", True),
        ("Person 1 knight, Person 2 knave", "Person 2 knight, Person 1 knave", False),
        ("Person 1 knight, Person 12 knave", "Person 12 knave, Person 1 knight", True),
        ("O'Brien knight, Ann-Marie knave", "Ann-Marie is a knave, O'Brien is a knight", True),
        ("O'Brien knight, Ann-Marie knave", "Ann knave, O'Brien knight", False),
    ],
)
def test_names_may_have_several_words_accents_and_digits(
    grader: Grader, gold: str, answer: str, right: bool
) -> None:
    assert (grader.grade(block(answer), gold, "knights").status == "correct") == right
    assert grader.grade(block(gold), gold, "knights").status == "correct"


def other_role(role: re.Match[str]) -> str:
    return {"knight": "knave", "knave": "knight"}[role[0]]


@needs_mirror
@pytest.mark.parametrize("people", [3, 4, 5])
def test_real_puzzles_accept_their_solution_in_any_order_and_nothing_near_it(
    grader: Grader, people: int
) -> None:
    assert MIRROR is not None
    rng = random.Random(people)
    table = pd.read_parquet(Path(MIRROR) / f"kk_{people}ppl_test_logicrl.parquet")
    assert len(table) == 100
    for row in table.itertuples():
        gold = str(row.solution_text)
        clauses = str(row.solution_text_format).splitlines()
        shuffled = "\n".join(rng.sample(clauses, people))
        flipped = [*clauses[1:], re.sub("knight|knave", other_role, clauses[0])]
        for text, expected in (
            (gold, True),
            ("\n".join(clauses), True),
            (shuffled, True),
            ("\n".join(flipped), False),
            ("\n".join(clauses[1:]), False),
        ):
            status = grader.grade(block(text), gold, "knights").status
            assert (status == "correct") == expected, text
