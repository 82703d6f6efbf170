"""Numbers in English words: `forty-two`, `one hundred and five`, `two dozen`.

Cardinal numbers only; fractions and ordinals in words are read by nobody here.
"""

from __future__ import annotations


def vocabulary(text: str) -> frozenset[str]:
    """The words of `text` as a set."""
    return frozenset(text.split())


_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_FROM_TWENTY = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: value for value, word in enumerate(_UP_TO_NINETEEN.split())}
_TENS = {word: 10 * tens for tens, word in enumerate(_FROM_TWENTY.split(), start=2)}
SCALES = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Words that multiply the number before them."""


def is_numeral(word: str) -> bool:
    """Whether `word`, in any case, is a part of a number in words; `forty-two` is."""
    parts = word.lower().split("-")
    return all(part in _SMALL or part in _TENS or part in SCALES for part in parts)


def number_in_words(text: str) -> int | None:
    """The number that `text` spells out and nothing else; None if it is anything else."""
    words = text.lower().replace("-", " ").split()
    total = group = 0
    before = ""
    for index, word in enumerate(words):
        if word == "and" and before in ("hundred", "thousand") and index + 1 < len(words):
            continue
        if word in _SMALL:
            value = _SMALL[word]
            if before in _SMALL or (before in _TENS and not 0 < value < 10):
                return None
            group += value
        elif word in _TENS:
            if before in _SMALL or before in _TENS:
                return None
            group += _TENS[word]
        elif word in ("hundred", "dozen"):
            if not 0 < group < 100 or before in ("hundred", "dozen"):
                return None
            group *= SCALES[word]
        elif word in SCALES:
            if not group or (total and total < SCALES[word] * 1000):
                return None
            total, group = total + group * SCALES[word], 0
        else:
            return None
        before = word
    return total + group if before else None
