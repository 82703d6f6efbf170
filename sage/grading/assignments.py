"""Who is a knight and who a knave, as answers write it.

Clauses (`Ann is a knight`), lists by role (`Knights: Ann`), tables, JSON, arrows and bullets, with
`truth-teller` and `liar` for the roles, are brought to one form first. A name is a word; one of
several words (`Li Wei`, `Person 1`) is known from the gold answer. The text is untrusted: it is cut
to a bounded length, and no pattern takes more than that length squared.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_LONGEST = 2_000

_WORD = r"[^\W\d_]+"
_NAME = rf"\b(?!(?:knights?|knaves?|an?|the|is|are|and|both|all)\b){_WORD}"
_NAMES = rf"{_NAME}(?:\s*(?:,\s*(?:and\s+)?|&\s*|\s+and\s+){_NAME})*"
_ROLE = r"(?:knight|knave)"
_EACH = re.compile(  # Ann is a knight
    rf"\b(?!(?:are|both|all|they|everyone)\b)(?P<names>{_WORD})(?:\s*[:=(–—-]\s*|\s+is\s+|\s+)(?:(?:an?|the)\s+)?(?P<role>{_ROLE})\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(  # Ann and Bob are knights
    rf"(?P<names>{_NAMES})\s+(?:are\s+)?(?:both\s+|all\s+)?(?P<role>{_ROLE})s\b", re.IGNORECASE
)
_BY_ROLE = re.compile(  # Knights: Ann, Bob
    rf"\b(?:and\s+)?(?:the\s+)?(?P<role>{_ROLE})s?\s*(?::|=|\bare\b|\bis\b)\s*"
    rf"(?P<names>{_NAMES})",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"\b(?:not|no|never|neither|nor|or|either|if|unless|maybe|perhaps|says?|said|claims?|claimed|"
    r"when)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
_ANY_ROLE = re.compile(rf"\b{_ROLE}s?\b", re.IGNORECASE)
_GOLD_CLAUSE = re.compile(
    rf"\s*(?:\([0-9]+\)\s*)?(?:and\s+)?(?P<name>\S.*?)(?:\s*:|\s+is)?(?:\s+an?)?\s+{_ROLE}\s*",
    re.IGNORECASE,
)
_JOINER = re.compile(r"\s+and\s+|,\s*and\s+")
_NOBODY = {"none", "nobody"}

_REWRITES = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it)|mbox)\s?\{([^{}]*)\}", r"\1"),
        (r"\\begin\{[a-z]+\*?\}(?:\{[^{}]*\})?|\\end\{[a-z]+\*?\}|\\hline", ""),
        (r"\\(?:long)?(?:rightarrow|mapsto)(?![a-z])|\\(?:to|implies)(?![a-z])", " : "),
        (r"[-=]+>|[→⇒⟶↦➔➜]", " : "),
        (r"\[\s*\]", " none "),
        (r"[*_`\"{}\[\]#]|\\[()]|(?<![^\W\d_])'|'(?![^\W\d_])", ""),
        (rf"\bname\s?:\s?({_WORD})\s?,\s?(?:role|type|identity|is)\s?:\s?", r"\1: "),
        (r"\btruth[- ]?teller(s?)\b", r"knight\1"),
        (r"\bliar(s?)\b", r"knave\1"),
        (r"\((?:who )?(?:always )?(?:tells?|telling|speaks?) the truth\)", "(knight)"),
        (r"\((?:who )?(?:always )?(?:lies?|lying)\)", "(knave)"),
        (r"\bare (?:always )?telling the truth\b|\btell the truth\b", "are knights"),
        (r"\bare (?:always )?lying\b|\blie\b", "are knaves"),
        (r"\b(?:is )?(?:always )?(?:tells|telling|speaks) the truth\b", "is knight"),
        (r"\b(?:is )?(?:always )?(?:lies|lying)\b", "is knave"),
        (r"\b(knight|knave)(s?) \((?:an? )?\1s?\)", r"\1\2"),
    )
]
_BULLET = re.compile(r"(?:[-•‣–]|[0-9]{1,2}[.)]|\([0-9]{1,2}\)) ?")
_MARKS = {"✓", "✔", "✅", "☑", "x", "yes", "true", "1"}
_NO_MARKS = {"", "-", "–", "—", "✗", "✘", "❌", "no", "false", "0"}


def same_assignment(gold: str, answer: str) -> bool | None:
    """Whether `answer` states exactly the gold assignment; None if it states none."""
    names = names_in(gold)
    given = parse_assignment(answer, names)
    return None if given is None else given == parse_assignment(gold, names)


def names_in(gold: str) -> list[str]:
    """The names in a text of plain clauses only, such as `Li Wei knight, Person 1 is a knave`."""
    parts = [part for part in re.split(r"[,;.\n]+", gold) if part.strip()]
    clauses = [_GOLD_CLAUSE.fullmatch(part) for part in parts]
    return [] if None in clauses else [clause["name"] for clause in clauses if clause]


def parse_assignment(answer: str, names: Sequence[str] = ()) -> dict[str, bool] | None:
    """Read an assignment such as ``Bob is a knave and Ann: knight``.

    Returns a mapping from lower-case name to True for a knight; None if the text holds no
    clause, names a person twice, hedges (``not``, ``or``, ``if``) or speaks of a role without
    saying whose it is. Those of `names` that are more than a word become one.
    """
    answer = unicodedata.normalize("NFC", answer)
    if len(answer) > _LONGEST:
        return None
    for name in sorted(names, key=len, reverse=True):
        name = unicodedata.normalize("NFC", name)
        if not re.fullmatch(_WORD, name):
            alone = r"\s+".join(map(re.escape, name.split()))
            answer = re.sub(rf"(?<!\w){alone}(?!\w)", _one_word(name), answer, flags=re.IGNORECASE)
    text = _plain(answer)
    if _HEDGE.search(text):
        return None
    # Lists by role only if they are all there is: in `Ann: knight, Bob: knave` they are not.
    if any(c.isalnum() for c in _BY_ROLE.sub("", text)):
        clauses = [*_SEVERAL.finditer(text), *_EACH.finditer(text)]
    else:
        clauses = list(_BY_ROLE.finditer(text))
    if len(clauses) != len(_ANY_ROLE.findall(text)):
        return None
    assignment: dict[str, bool] = {}
    for clause in clauses:
        for name in re.findall(_WORD, _JOINER.sub(",", clause["names"].lower())):
            if name in assignment:
                return None
            assignment[name] = clause["role"].lower() == "knight"
    for name in _NOBODY:
        assignment.pop(name, None)
    return assignment or None


def _one_word(name: str) -> str:
    """A name with letters for its spaces, digits and signs."""
    return re.sub(r"[\W\d_]", lambda sign: "q" + "ghjkmnprst"[ord(sign[0]) % 10], name)


def _plain(answer: str) -> str:
    """`answer` as clauses and lists: tables, bullets, JSON and other words for the roles gone."""
    text = _without_tables(answer)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    lines: list[str] = []
    for line in text.splitlines():
        bare = _BULLET.sub("", line.strip(), count=1).strip() if line.strip() else ""
        if lines and re.fullmatch(_WORD, bare) and not _ANY_ROLE.fullmatch(bare):
            joint = " " if lines[-1].endswith(":") else ", "
            lines[-1] += joint + bare
        elif bare:
            lines.append(bare + ":" if _ANY_ROLE.fullmatch(bare) else bare)
    return "\n".join(lines)


def _without_tables(text: str) -> str:
    """Rows of Markdown and LaTeX tables as `Ann: knight`; other lines as they are."""
    if r"\\" in text and "&" in text:
        text = text.replace(r"\\", "\n").replace("&", "|")
    lines: list[str] = []
    head: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 2:
            lines.append(line)
        elif not any(c.isalnum() for c in line) and "-" in line:  # the rule under the head
            head = [cell.lower() for cell in lines.pop().split(": ")] if lines else []
        else:
            lines.append(": ".join(_marked(cells, head)))
    return "\n".join(lines)


def _marked(cells: list[str], head: list[str]) -> list[str]:
    """A row's name and role, where the role is a mark in a column of the head."""
    roles = [_ANY_ROLE.fullmatch(name) is not None for name in head]
    if len(cells) != len(head) or sum(roles) != 2:
        return cells
    marks = [cell.lower() for cell in cells]
    ticked = [head[i] for i, role in enumerate(roles) if role and marks[i] in _MARKS]
    if len(ticked) != 1 or any(
        role and marks[i] not in _MARKS | _NO_MARKS for i, role in enumerate(roles)
    ):
        return cells
    return [cells[roles.index(False)], ticked[0].rstrip("s")]
