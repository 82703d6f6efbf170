"""Phrase lists as data, and how phrases are found in a solution.

Solutions are untrusted text of any length. So a phrase becomes a regular expression with a cost
linear in the text: gaps and endings are bounded, and a gap never tries a second end. LaTeX and
Markdown are removed first. Every separator of sentences becomes one mark that no gap crosses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sage.fields import Name, Strict
from sage.prompting import TAGS
from sage.study.reading import read_as

GAP = 80
"""The most characters that ``...`` can match."""

ENDING = 12
"""The most letters that ``*`` can match."""

BREAK = "¶"
"""The mark that replaces sentence ends, blank lines, LaTeX line breaks and the answer's tags."""

_BREAKS = re.compile("|".join(map(re.escape, TAGS)) + r"|\\\\|\n\s*\n", re.IGNORECASE)
_SPACES = re.compile(
    r"\\(?:text|math)[a-z]*\s*\{?"  # the words inside stay
    r"|\\(?:mbox|emph|boxed|operatorname|underline)\*?\s*\{"
    r"|\\(?:quad|qquad|left|right|displaystyle|tfrac|space)(?![a-z])"
    r"|\\[,;:!> ()\[\]]|[$&~}*#`]"
)
_SENTENCE_END = re.compile(rf"[.!?;](?=[\s{BREAK}]|$)")
_CHARACTERS = str.maketrans("’‘ʼ", "'''", "{")
_COMPARISON = re.compile(r" ?:?= ?")

_BEFORE = r"(?<![\w\\'])"
_AFTER = r"(?![\w'])"
# Alone, "a" and "i" are words rather than symbols where another word follows.
_SYMBOL = r"(?:[b-hj-zα-ω]|\\[a-z]{2,20}|[ai](?! [a-z]{2}))\d{0,4}(?:_[a-z0-9]{1,8})?'{0,3}"
_WORD = re.compile(r"[\w',=-]+\*?")

Phrases = Annotated[list[str], Field(min_length=1)]


class PhraseList(Strict):
    """A reasoning pattern, and the phrases used to detect it."""

    title: str
    """its name in tables"""
    phrases: Phrases
    """a solution shows the pattern if it contains one of these"""
    unless: list[str] = Field(default_factory=list)
    """phrases that look like the pattern and are not; they are cut out first"""


@dataclass(frozen=True)
class Pattern:
    """A reasoning pattern: its name, its title in tables, and the expression that finds it."""

    name: str
    title: str
    found_by: re.Pattern[str]
    unless: re.Pattern[str] | None

    def occurs_in(self, plain: str) -> bool:
        """Whether the pattern occurs in a text prepared by `plain_text`."""
        text = self.unless.sub(BREAK, plain) if self.unless else plain
        return self.found_by.search(text) is not None


def load_patterns(path: Path) -> list[Pattern]:
    """The patterns of a file such as ``config/patterns.yaml``, in its order.

    Raises ValueError that names the file, the pattern and the faulty phrase.
    """
    patterns = []
    for name, listed in read_as(dict[Name, PhraseList], path).items():
        try:
            unless = compile_phrases(listed.unless) if listed.unless else None
            patterns.append(Pattern(name, listed.title, compile_phrases(listed.phrases), unless))
        except ValueError as error:
            raise ValueError(f"{path}, pattern {name}: {error}") from error
    return patterns


def compile_phrases(phrases: Sequence[str]) -> re.Pattern[str]:
    """One expression that finds any of the phrases in prepared text.

    A phrase is words, ``<symbol>``, words with an open ending (``*``), and gaps (``...``) between
    them. Raises ValueError for anything else.
    """
    return re.compile("|".join(f"(?:{_phrase(phrase)})" for phrase in phrases))


def plain_text(text: str) -> str:
    """`text` without LaTeX and Markdown marks, in lower case, with one mark for each break.

    Words are separated by single spaces, ``=`` has a space on both sides, commas follow their
    word.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _BREAKS.sub(BREAK, text)
    text = _SPACES.sub(" ", text).translate(_CHARACTERS)
    text = _SENTENCE_END.sub(BREAK, text)
    text = " ".join(text.split())
    return _COMPARISON.sub(" = ", text).replace(" ,", ",")


def _phrase(phrase: str) -> str:
    gaps = [part.split() for part in phrase.casefold().split("...")]
    if not all(gaps):
        raise ValueError(
            f"phrase {phrase!r}: a word is needed at its start, at its end and between gaps (...)"
        )
    first, *others = (_piece(words, phrase) for words in gaps)
    # Atomic groups: a gap ends at the first place that fits and is not tried again.
    return first + "".join(f"(?>[^{BREAK}]{{0,{GAP}}}?{piece})" for piece in others)


def _piece(words: Sequence[str], phrase: str) -> str:
    expressions = []
    for place, word in enumerate(words):
        separator = "" if place == 0 or word.startswith(",") else " "
        if word == "<symbol>":
            expressions.append(f"{separator}{_BEFORE}{_SYMBOL}{_AFTER}")
        elif word == ",":
            expressions.append(",")
        elif _WORD.fullmatch(word):
            ending = f"[a-z]{{0,{ENDING}}}" if word.endswith("*") else ""
            before = _BEFORE if word[0].isalnum() else ""
            stem = re.escape(word.removesuffix("*")) + ending
            after = _AFTER if word[-1].isalnum() or ending else ""
            expressions.append(f"{separator}{before}{stem}{after}")
        else:
            raise ValueError(
                f"phrase {phrase!r}: {word!r} is not allowed; write a word, a word with * at its "
                "end, <symbol>, or ... between words"
            )
    return "".join(expressions)
