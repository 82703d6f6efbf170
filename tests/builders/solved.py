"""Sums and puzzles solved from their text alone, in another way than the package solves them."""

from __future__ import annotations

import ast
import itertools
import operator
import re


def value_of(expression: str) -> int:
    """The value of a sum, by Python's own parser."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            operation = {ast.Add: operator.add, ast.Sub: operator.sub}[type(node.op)]
            return operation(value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            assert isinstance(node.op, ast.USub)
            return -value(node.operand)
        assert isinstance(node, ast.Constant)
        return int(node.value)

    return value(ast.parse(re.sub(r"\b0+(?=\d)", "", expression), mode="eval").body)


def expression_of(problem: str) -> str:
    match = re.fullmatch(r"Calculate ([\d+-]+)\.", problem)
    assert match, problem
    return match[1]


def solutions_of_text(puzzle: str) -> list[dict[str, str]]:
    """Every consistent assignment, found from the text alone with Python as the logic."""
    sayings = dict(re.findall(r"(\w+): (.+?)\.", puzzle))
    found = []
    for roles in itertools.product(("knight", "knave"), repeat=len(sayings)):
        who = dict(zip(sayings, roles, strict=True))

        def is_true(saying: str, who: dict[str, str] = who) -> bool:
            if match := re.fullmatch(r"if (.+) then (.+)", saying):
                return not is_true(match[1]) or is_true(match[2])
            for joiner, joined in (
                (" exactly if ", operator.eq),
                (" and ", operator.and_),
                (" or ", operator.or_),
            ):
                if joiner in saying:
                    left, right = saying.split(joiner)
                    return bool(joined(is_true(left), is_true(right)))
            name, role = saying.split(" is a ")
            return who[name] == role

        if all(is_true(said) == (who[name] == "knight") for name, said in sayings.items()):
            found.append(who)
    return found
