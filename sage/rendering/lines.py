"""Colours and line styles: a method looks the same in every figure and table.

The colour shows what constrains the policy (KL term, in the loss or in the reward, and guide); the
line style shows which loss it minimises. Methods that are alike in both take other colours, the
least used first. No drawing library is needed, so tables can show the line styles too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sage.study import BASE, Algorithm, ResolvedStudy

PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#16191d"),
    "ink": ("#25292e", "#dfe2e6"),
    "rule": ("#e4e6e9", "#343a41"),
    "grey": ("#7b828c", "#a3a9b3"),
    "blue": ("#1565c0", "#4a90f0"),
    "rust": ("#9c2f0a", "#e2632c"),
    "ochre": ("#b58a0a", "#f0cf4a"),
    "sky": ("#1f9bd4", "#7fd4ff"),
    "plum": ("#680070", "#c04ba8"),
    "green": ("#0f9d63", "#3ecf8e"),
    "slate": ("#4a4f57", "#e4e6ea"),
    "violet": ("#9a1bf5", "#8a3cff"),
    "forest": ("#0b3a26", "#aef7a0"),
    "pink": ("#e055b5", "#c23a55"),
    "copper": ("#b85a00", "#ee9a1a"),
}
"""Colours by name, (on light, on dark). They also differ in lightness, so that they can be
distinguished with any kind of colour blindness, and have a contrast of about 3 or more. Figures
use the first of each pair."""

COLOURS = {
    "reverse": "blue",
    "none": "rust",
    "forward": "ochre",
    "branch": "green",
    "random": "sky",
    "token": "plum",
    "reverse in the reward": "violet",
    "branch in the reward": "forest",
    "random in the reward": "copper",
    "token in the reward": "pink",
}
"""Of guides and, for methods without a guide, of KL terms."""

_SPARE = ("slate", "ochre", "sky", "plum")
_CHOICE = [name for name in reversed(PALETTE) if name not in ("paper", "ink", "rule", "grey")]
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 1.6),
    (1.4, 1.2),
    (6, 1.5, 1.4, 1.5),
    (3, 1, 1, 1, 1, 1),
    (9, 2),
    (2.6, 2.6),
    (8, 1.2, 3, 1.2),
)
_MARKERS = ("o", "s", "^", "D", "P", "v")
_LOSSES = ("grpo", "bnpo", "dapo", "dr_grpo")


@dataclass(frozen=True)
class LineStyle:
    """How a method is drawn: `colour` is a name of `PALETTE`, empty `dashes` mean a solid
    line."""

    colour: str
    dashes: tuple[float, ...]
    marker: str

    @property
    def hex(self) -> str:
        """The colour on a light background."""
        return PALETTE[self.colour][0]


def line_styles(study: ResolvedStudy) -> dict[str, LineStyle]:
    """The line style of `base` and of every method of the study.

    Up to some 40 methods, no two have the same colour and dashes, or the same colour and marker.
    The plainest come first, variants that exhibits add last, so that they change no other style.
    """
    styles = {BASE: LineStyle("grey", (2.4, 1.2), "X")}
    held = {name: _constraint(row) for name, row in study.algorithms.items()}
    unknown = sorted({*held.values()} - {*COLOURS})
    colours = COLOURS | {kind: _SPARE[i % len(_SPARE)] for i, kind in enumerate(unknown)}
    in_order = sorted(study.algorithms, key=lambda name: _plainness(study, name))
    plainest: dict[tuple[str, str], str] = {}
    for name in in_order:
        plainest.setdefault((held[name], study.algorithms[name].loss), name)
    for name in dict.fromkeys([*plainest.values(), *in_order]):
        row = study.algorithms[name]
        choice = [colours[held[name]]]
        if name not in plainest.values():
            uses = Counter(style.colour for style in styles.values())
            choice = sorted(_CHOICE, key=lambda colour: uses[colour])
        turn = [*colours].index(held[name])  # so that marks differ where colours do
        first = _LOSSES.index(row.loss) if row.loss in _LOSSES else 0
        places = [*range(first, len(_DASHES)), *range(first)]
        looks = [
            LineStyle(colour, _DASHES[place], _MARKERS[(turn + place + shift) % len(_MARKERS)])
            for shift in range(len(_MARKERS))
            for colour in choice
            for place in places
        ]
        free = [look for look in looks if look not in styles.values()]
        styles[name] = next((look for look in free if _free(look, styles.values())), free[0])
    return styles


def styles_in_order(names: Sequence[str]) -> dict[str, LineStyle]:
    """Line styles of methods of which nothing is known but their order."""
    colours = _CHOICE[::-1]
    return {
        name: LineStyle(
            colours[place % len(colours)],
            _DASHES[place // len(colours) % len(_DASHES)],
            _MARKERS[place % len(_MARKERS)],
        )
        for place, name in enumerate(names)
    }


def _constraint(row: Algorithm) -> str:
    """What holds a policy near its reference: a guide, or else a KL term, and where that is."""
    in_reward = row.estimator is not None and row.estimator.kind == "k1_reward"
    return (row.guide.kind if row.guide else row.kl) + " in the reward" * in_reward


def _plainness(study: ResolvedStudy, name: str) -> tuple[bool, int, int, str]:
    """A key that puts methods with few settings of their own first."""
    own = study.algorithms[name].model_dump(exclude_defaults=True)
    return name in study.variants, len(own), len(name), name


def _free(look: LineStyle, taken: Collection[LineStyle]) -> bool:
    """Whether neither the line nor the mark is that of another method."""
    same = [style for style in taken if style.colour == look.colour]
    return not any(look.dashes == style.dashes or look.marker == style.marker for style in same)
