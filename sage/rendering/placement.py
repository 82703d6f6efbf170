"""Where the labels of marks stand: beside them, or farther away at the end of a thin line.

A placement costs what makes it hard to read: a label that covers a mark or another label, long
lines, lines that cross. Labels are placed one by one, each where it costs least beside the others,
and again until none moves. The same marks give the same places.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""Positions, sizes or boxes (left, bottom, right, top), a row each."""

RADIUS = 5.0
"""Of a mark, in the unit of all lengths: points."""

_GAP, _STEP, _FARTHEST, _TURNS, _PARTS, _PASSES = 1.5, 6.0, 240.0, 24, 16, 6
_COVERED, _CROSSED, _TOUCHED = 10_000.0, 60.0, 14.0
"""Costs of covering a mark or label, of a line across another or over a label or mark, and of
covering something thin. A line costs its length."""


def placed(marks: Points, sizes: Points, room: Points, thin: Points) -> Points:
    """Boxes of labels with these sizes for `marks`, in an area of the width and height `room`.

    `thin` are boxes of lines and small marks, which a label covers only where it must.
    """
    choices = [_choices(mark, size, room) for mark, size in zip(marks, sizes, strict=True)]
    boxes = np.full((len(marks), 4), np.nan)  # nothing overlaps what has no place yet
    apart = np.linalg.norm(marks[:, None] - marks, axis=2) + np.diag(np.full(len(marks), np.inf))
    order = np.argsort(-apart.min(axis=1, initial=np.inf), kind="stable")
    for _ in range(_PASSES):
        before = boxes.copy()
        for one in order:
            boxes[one] = np.nan
            costs = _costs(choices[one], int(one), marks, boxes, thin)
            boxes[one] = choices[one][np.argmin(costs)]
        if np.array_equal(before, boxes):
            break
    return boxes


def touching(marks: Points, boxes: Points) -> NDArray[np.bool_]:
    """For each label whether it needs no line: it is beside its mark, and nearer to no other."""
    away = np.linalg.norm(marks[:, None] - _nearest(marks[:, None], boxes), axis=2)
    own = np.diag(away)
    return np.asarray((own <= 1.5 * (RADIUS + _GAP)) & (own <= away.min(axis=0)))


def line_end(mark: Points, box: Points) -> Points:
    """Where the line from a mark meets its label."""
    return _nearest(mark, box)


def _choices(mark: Points, size: Points, room: Points) -> Points:
    """Boxes around a mark, the nearest first, as far as they are in the room."""
    turns = 2 * np.pi * np.arange(_TURNS) / _TURNS
    away = RADIUS + _GAP + np.arange(0, _FARTHEST, _STEP)
    towards = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    towards /= np.abs(towards).max(axis=1, keepdims=True)  # a square ring, as boxes have corners
    middles = mark + (towards * (size / 2 + away[:, None, None])).reshape(-1, 2)
    boxes = np.concatenate([middles - size / 2, middles + size / 2], axis=1)
    inside = (boxes[:, :2] >= 0).all(axis=1) & (boxes[:, 2:] <= room).all(axis=1)
    return boxes[inside] if inside.any() else boxes[:1]


def _costs(choices: Points, one: int, marks: Points, boxes: Points, thin: Points) -> Points:
    """The cost of each choice for a label beside the others as they are."""
    around = np.concatenate([marks - RADIUS, marks + RADIUS], axis=1)
    ends = _nearest(marks[one], choices)
    others = np.arange(len(marks)) != one
    line = marks[one] + np.linspace(0, 1, _PARTS)[:, None] * (ends - marks[one])[:, None]  # by part
    lines = marks, _nearest(marks, boxes)
    crossed = _cross(marks[one], ends, *lines)[:, others].sum(axis=1)
    crossed += _within(line, boxes).sum(axis=1) + _within(line, around[others]).sum(axis=1)
    crossed += _within(np.linspace(*lines, _PARTS, axis=1)[others], choices).sum(axis=0)
    covered = _overlap(choices, around).sum(axis=1) + _overlap(choices, boxes).sum(axis=1)
    touched = _overlap(choices, thin).sum(axis=1)
    length = np.linalg.norm(ends - marks[one], axis=1)
    return np.asarray(_COVERED * covered + _CROSSED * crossed + _TOUCHED * touched + length)


def _nearest(marks: Points, boxes: Points) -> Points:
    """The point of each box that is nearest to its mark."""
    return np.asarray(np.clip(marks, boxes[..., :2], boxes[..., 2:]))


def _overlap(ours: Points, theirs: Points) -> NDArray[np.bool_]:
    """Whether boxes overlap: ours down, theirs across."""
    ours = ours[:, None] + _GAP * np.array([-1, -1, 1, 1])
    return np.asarray(
        ((ours[..., :2] < theirs[:, 2:]) & (theirs[:, :2] < ours[..., 2:])).all(axis=2)
    )


def _within(lines: Points, boxes: Points) -> NDArray[np.bool_]:
    """Whether a line, which is points along it, is in a box: lines down, boxes across."""
    points = lines[:, None]
    boxes = boxes[..., None, :]
    return np.asarray(
        ((boxes[..., :2] < points) & (points < boxes[..., 2:])).all(axis=-1).any(axis=-1)
    )


def _cross(start: Points, ends: Points, starts: Points, stops: Points) -> NDArray[np.bool_]:
    """Whether the lines from `start` to `ends` (down) cross those from `starts` to `stops`."""

    def side(first: Points, second: Points, point: Points) -> Points:
        ahead, there = second - first, point - first
        return np.asarray(np.sign(ahead[..., 0] * there[..., 1] - ahead[..., 1] * there[..., 0]))

    ends = ends[:, None]
    apart = side(starts, stops, start) * side(starts, stops, ends) < 0
    return np.asarray(apart & (side(start, ends, starts) * side(start, ends, stops) < 0))
