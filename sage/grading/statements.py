r"""The answer that a solution block states in words: of `So the sum is 42.` it is `42`.

A text without words is left alone. One with words states an answer if a single claim is left
once lead-ins, units and reasons are taken away; where it hedges (`or`, `not`, `at most`), makes
several claims or says what to do with a number (`42 squared`), it states none. In doubt
it states none. The text is untrusted and of bounded length; every step is linear in it
or runs over its few sentences.
"""

from __future__ import annotations

import re

from sage.grading.quantities import (
    OPERATIONS,
    SCALES,
    is_numeral,
    number_in_words,
    read_quantity,
    vocabulary,
)
from sage.grading.tidy import is_balanced, tidy

_WORD = re.compile(r"(?<![A-Za-z\\_{])[A-Za-z][A-Za-z'-]*(?![A-Za-z])")
_SHORT_WORDS = vocabulary(
    "a an as at be by do he if in is it me my no of on so to up us we all and any are but can "
    "did for get has had its may not one our out per say she the two was way who why yes you"
)
_OF_MATHEMATICS = vocabulary(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log exp sqrt cbrt max min gcd "
    "lcm mod det deg dim lim sup inf infty infinity pi frac binom alpha beta gamma delta theta "
    "lambda sigma omega epsilon cdot times approx floor ceil"
)
_WRAPPED_WORDS = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|mbox|mathrm|mathbf|operatorname)\s?\{([^{}]*)\}"
)
_SPACE = re.compile(r"(?<!\\)\\ ")
_BOX = re.compile(r"\\f?box(?:ed)?\s?\{")
_BEHIND_BOX = re.compile(r" ?(?:\\?%|\^ ?\{? ?\\circ ?\}?)")
_UNSAID_BEFORE = re.compile(
    r"(?:[-+*/^<>|0-9]|\\(?!implies|(?:Long)?[Rr]ightarrow|to\b|therefore|q?quad|equiv)[a-zA-Z]+)$"
)
_CONCLUSION = re.compile(r"\b(?:so|thus|hence|therefore)\b", re.IGNORECASE)
_VALUE_FIRST = re.compile(
    r"(?:half|twice|minus|negative)\b|[-<>]|\\ne|\w+ ?= ?[^A-Za-z]+,|"
    r"[^A-Za-z]*[0-9][^A-Za-z]*(?:\\[a-z]+ *)?[A-Z]"
)
_LONE_LETTER = re.compile(r"[B-HJ-Zb-z](?![A-Za-z'])|.*[.!] *[b-z]$")
_SHORT = 40
"""Characters of mathematics before a box that are read with it; more is working."""

_MARKS = re.compile(
    r"\\[()\[\]]|\\q?quad(?![a-zA-Z])|\\end\{[a-z*]+\}|\\pmod ?\{[^{}]*\}|<\|\w+\|>\w*"
)
_REST = re.compile(r"[0-9=<>^*+/!\\]")
_RECORD = re.compile(
    r'\{ ?"?(?:final[_ ]?)?(?:answer|solution|result)"? ?: ?"?([^"{}:]*)"? ?\}', re.I
)

_HEDGE = re.compile(
    r"\?|n't\b|\b(?:not|no|nor|neither|never|cannot|maybe|perhaps|possibly|probably|might|may be|"
    r"could|either|if|unless|suppose|assume|assuming|guess|except|but|otherwise|wrong|incorrect|wait|"
    r"actually|instead|unknown|any|anything|example|than|between|more|fewer|at least|at most|"
    r"up to|other|another|alternatively|almost|nearly|undefined|excluding|without|unlike|avoid|"
    r"ignore|all|every|or so|false|untrue|doubt|deny|unsure|unlikely)\b",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    r"(?:I hope (?:this|it|that) (?:is (?:correct|right|helpful)|helps)|this took [a-z0-9]+ [a-z]+|"
    r"that was easy|let me know if [a-z ,]*|thank(?:s| you)[a-z ,]*|q\.?e\.?d|done|"
    r"this (?:completes|concludes) [a-z ]+)[.!]*",
    re.IGNORECASE,
)
_CHECKED = re.compile(
    r"(?:(?:I|we)(?: have|'ve)? (?:also |then )?"
    r"(?:verified|(?:double-|re)?checked|confirmed|tested)|"
    r"(?:this|it|which) (?:is|was|has been|can be) (?:verified|checked|confirmed)|"
    r"this (?:satisfies|matches|agrees with|checks out)|(?:verified|checked|confirmed))"
    r"(?: [a-z,' -]+)?[.!]*",
    re.IGNORECASE,
)
_FAILED = re.compile(r"\b(?:fail\w*|mistak\w*|errors?|contradict\w*|none|only)\b", re.IGNORECASE)
_ANSWER = re.compile(r"\b(?:answer|solution|result)\b", re.IGNORECASE)
_NAMING = re.compile(r"=|\\in(?![a-z])")
_CHOICE = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_CONCLUDES = re.compile(r"\b(?:so|thus|hence|therefore|answer|finally|conclusion)\b", re.IGNORECASE)
_CONCLUSION_WITHIN = re.compile(r"[,;] (?:and )?(?:so|thus|hence|therefore)\b", re.IGNORECASE)
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|finally|consequently|now|and|in conclusion|in total|"
    r"it follows that|(?:we|this|which) (?:get|have|find|obtain|see|conclude|deduce|gives|means|"
    r"implies|yields)(?: that)?)[,:]? )+",
    re.IGNORECASE,
)
_PREMISE = re.compile(r"(?:since|because|as|given|when|where|with|for|by|using)\b", re.IGNORECASE)
_REASON = re.compile(
    r",? (?:because|since|as|attained|achieved|reached|which|where)\b", re.IGNORECASE
)
_COPULA = re.compile(
    r"(?<![A-Za-z\\])(?:is|are|was|equals?|gives|yields|becomes|measures|be)(?![A-Za-z])"
    r"(?: (?:equal to|given by|found to be))?:?|(?<=[A-Za-z)]): ",
    re.IGNORECASE,
)
_SUBJECT = re.compile(  # The number of ways, 6 times 7; not `7919, the answer`
    r"(?!(?:about|half|twice|double|triple|minus|negative)\b)(?![a-zA-Z](?:_\w+)? ?=)"
    r"(?:[*/+{}()\[\].,:;#\"' ]*[A-Za-z]|"
    r"[0-9.]+ (?:times|plus|minus|divided|multiplied|of|percent)\b)"
)
_RELATED = re.compile(r"[<>]|\\(?:to|implies|neq?|[a-zA-Z]*arrow)(?![a-zA-Z])")
_SPELLED = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2}")
_PREDICATE = re.compile(r"[A-Za-z' -]+")
_CORRECT = ("correct", "right", "the correct choice", "the correct option")
_ANOTHER = re.compile(r"[.;!?] *\S")
_CHANGED_ANSWER = re.compile(
    r"\b(?:of|twice|half|double|triple|minus|negative) the (?:final )?answer\b", re.IGNORECASE
)
_SUBORDINATE = re.compile(r"\b(?:when|that|which|who|whose|where)\b", re.IGNORECASE)
_LEADING = vocabulary(
    "a an the there answer final correct result solution solutions value values number numbers "
    "integer total it in equal to"
)
_RELATIONS = vocabulary(
    "of to for from after before by below above under until near with without per versus vs "
    "squared square cube root half twice double triple minus negative plus times opposite"
)
"""Words before a number that make it a part of something else, but for these pairs."""
_STATING = vocabulary(
    "total:of sum:of value:of area:of volume:of length:of probability:of product:of "
    "perimeter:of maximum:of minimum:of equal:to equals:to converges:to tends:to simplifies:to "
    "reduces:to evaluates:to amounts:to comes:to sums:to adds:to holds:for"
)
_COUNTED = re.compile(r"(?:a|[a-z]{2}[a-z'-]*)|[a-z]+/[a-z]+|[a-z]\.[a-z]|[¢£€¥%]|")
_LINE_GOES_ON = re.compile(r"(?:\b(?:is|are|was|equals?|to|be)|[:=,(]|\\[\[(]|\$)$", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[^ .])(?:[.;][)$]? (?=[A-Z\\$])|![)$]? (?=[A-Z]))")


def speaks(text: str) -> bool:
    """Whether a tidy `text` holds words, not only mathematics, units and `and` or `or`."""
    return any(is_word(match[0]) for match in _WORD.finditer(_unwrapped(text)))


def hedges(text: str) -> bool:
    """Whether a text denies, limits or doubts what it says."""
    return _HEDGE.search(text) is not None


def stated(raw: str) -> str | None:
    """The one answer that `raw` states; None if it states none or several.

    `raw` is a solution block in which words occur (`speaks`).
    """
    if record := _RECORD.fullmatch(raw.strip()):
        return record[1]
    raw = re.sub(r"<\|\w+\|>\w*", " ", raw.rpartition("#### ")[2])
    sentences = [s for s in _sentences(raw) if not _is_remark(s)]
    boxed = [number for number, sentence in enumerate(sentences) if _BOX.search(sentence)]
    if boxed:  # what stands before the first box is working
        said = " ".join(sentences[boxed[0] :])
        return None if _HEDGE.search(said) else _boxes(_SPACE.sub(" ", said))
    claims = [(sentence, _claim(sentence)) for sentence in sentences if _has_content(sentence)]
    if not claims:
        return None
    last = max((i for i, (s, _) in enumerate(claims) if _CONCLUDES.search(s)), default=None)
    if last is not None:  # what stands before the conclusion is working, unless it is one as well
        answers = [(s, c) for s, c in claims[:last] if _ANSWER.search(s)]
        claims = answers + claims[last:]
    values = {claim and _NAMING.split(claim)[-1].strip() for _, claim in claims}
    return claims[-1][1] if len(values) == 1 else None


def _is_remark(sentence: str) -> bool:
    """Whether it closes an answer, or only says that it was checked."""
    if _CLOSING.fullmatch(sentence):
        return True
    doubts = (
        hedges(re.sub(r"\b(?:all|every)\b", "", sentence))
        or limits(sentence)
        or _FAILED.search(sentence)
    )
    words = sentence.rstrip(".!").split()
    return bool(_CHECKED.fullmatch(sentence)) and not doubts and not any(map(is_numeral, words))


def _unwrapped(text: str) -> str:
    """`text` with its words out of their LaTeX wrappers."""
    return " ".join(_SPACE.sub(" ", _WRAPPED_WORDS.sub(r" \1 ", text)).split())


def is_word(word: str) -> bool:
    """Whether a run of letters is English and no product of variables."""
    plain = word.lower()
    if not _WORD.fullmatch(word):
        return False
    if plain in _OF_MATHEMATICS or plain in ("and", "or"):
        return False
    if "-" in word:  # `x-axis`, but not the `x-rc` of `y+x-rc`
        return any(is_word(part) for part in word.split("-"))
    if len(plain) < 4:
        is_noun = re.fullmatch("[bcdfghjklmnpqrstvwxyz][aeiou][a-z]|[A-Z][a-z]{2}", word)
        return (plain in _SHORT_WORDS and len(plain) > 1) or bool(is_noun)
    return word[1:].islower() or "'" in word


def _sentences(raw: str) -> list[str]:
    lines: list[str] = []
    goes_on = False
    for line in raw.splitlines():
        if not line.strip():
            continue
        closes = line.strip() in (r"\]", r"\)", "$$", "$")
        if lines and (goes_on or closes):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.strip())
        goes_on = _LINE_GOES_ON.search(line.rstrip()) is not None
    return [part for line in lines for part in _SENTENCE_END.split(_unwrapped(line)) if part]


def _boxes(text: str) -> str | None:
    """What is boxed, if only words that limit nothing are around; different boxes make a list."""
    held: list[str] = []
    place, outside = 0, []
    for box in _BOX.finditer(text):
        depth, end = 1, box.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if depth:
            return None
        outside.append(text[place : box.start()])
        sign = _BEHIND_BOX.match(text, end)
        place = sign.end() if sign else end
        held.append(text[box.end() : end - 1].strip() + text[end:place])
    start = _CONCLUSION.split(outside[0])[-1].strip("$& *")
    before = [word.lower() for word in re.findall(r"(?<![A-Za-z\\])[A-Za-z]+", start)]
    behind = " ".join([*outside[1:], _REASON.split(text[place:])[0]])
    behind = _MARKS.sub(" ", behind).replace(held[0], "").strip("$ *")
    if _VALUE_FIRST.match(start) or _UNSAID_BEFORE.search(start) or _REST.search(behind):
        return None
    if before and before[-1] in _RELATIONS and ":".join(before[-2:]) not in _STATING:
        return None
    if limits(behind) or _LONE_LETTER.match(behind):
        return None
    if not re.fullmatch(r"[.,;:!')\" ]*", behind) and not re.search("[A-Za-z]", behind):
        return None
    if not speaks(start) and len(start) <= _SHORT:
        if len(held) == 1:  # 5+7=
            return tidy(start.lstrip(",; ")) + held[0]
        if _REST.search(start.rstrip("= ")):
            return None
    return ",".join(dict.fromkeys(held)) or None


def limits(text: str) -> bool:
    """Whether a word in it makes another number of one before."""
    return any(w in OPERATIONS or w in SCALES for w in re.findall("[a-z]+", text.lower()))


def _has_content(sentence: str) -> bool:
    """Whether it says anything besides words that lead up to something."""
    words = [word.lower() for word in sentence.rstrip(".:").split()]
    return not all(word in _LEADING or word in ("is", "are") for word in words)


def _claim(sentence: str) -> str | None:
    """What a sentence, out of its wrappers, says the answer is."""
    sentence = tidy(sentence)
    if within := list(_CONCLUSION_WITHIN.finditer(sentence)):
        sentence = sentence[within[-1].start() + 2 :]
    if lead := _LEAD.match(sentence):
        sentence = sentence[lead.end() :]
    if _PREMISE.match(sentence) and (consequence := _consequence(sentence)):
        sentence = consequence
    if _HEDGE.search(sentence) or _CHANGED_ANSWER.search(sentence):
        return None
    if (reason := _REASON.search(sentence)) and reason.start():
        if _ANOTHER.search(sentence, reason.end()):
            return None
        sentence = sentence[: reason.start()]
    if not speaks(sentence):
        return tidy(sentence)
    parts = _COPULA.split(sentence)
    if len(parts) == 1 and sentence.count("=") == 1:
        parts = sentence.split("=")
    for index, part in enumerate(parts[:-2]):
        if not _SUBORDINATE.search(part) or _CHOICE.search(parts[index + 1]):
            return None
    parts = [part.strip(" ,.:") for part in parts]
    if (
        len(parts) == 2
        and _PREDICATE.fullmatch(parts[1])
        and not (limits(parts[1]) or re.search(r"\b[b-hj-z]\b", parts[1]))
    ):
        is_subject = _ANSWER.search(parts[1]) and not speaks(parts[0])
        if is_subject or parts[0][:1].isdigit() or parts[1].lower() in _CORRECT:
            return _bare(parts[0])  # 42 is the answer
    is_odd = not _SUBJECT.match(parts[0]) or _RELATED.search(parts[0])
    if len(parts) > 1 and speaks(parts[0]) and is_odd:
        return None
    value = _bare(parts[-1])
    is_mathematics = len(parts) > 1 and value is not None and not _SPELLED.search(parts[0])
    return f"{parts[0]}={value}" if is_mathematics else value


def _consequence(sentence: str) -> str | None:
    """What follows from the premise that a sentence opens with: the part behind a comma."""
    parts = sentence.split(", ")
    for index in range(len(parts) - 1, 0, -1):
        rest = ", ".join(parts[index:])
        if is_balanced(rest) and (_COPULA.search(rest) or "=" in rest):
            return rest
    return None


def _bare(phrase: str) -> str | None:
    """The expression in `exactly 42 different ways`; words alone are returned as they are."""
    phrase = tidy(_without_remark(phrase) or "")
    if read_quantity(phrase) is not None or (phrase and not speaks(phrase)):
        return phrase
    if (spelled := number_in_words(phrase)) is not None:
        return str(spelled)
    words = phrase.split()
    first = 0
    while first < len(words) and _leads(words[first]):
        first += 1
    if first == len(words):
        return _words_alone(words)
    before = [word.lower() for word in words[:first]]
    if len(before) > 1 and ":".join(before[-2:]) in _STATING:
        before = before[:-2]
    if _RELATIONS.intersection(before):
        return None
    last = first
    while last < len(words) and is_numeral(words[last]):
        last += 1
    if last > first:
        value = number_in_words(" ".join(words[first:last]))
        if value is None:
            return None
        number = str(value)
    else:
        while last < len(words) and (not is_word(words[last].strip(",."))):
            last += 1
        number = " ".join(words[first:last])
    if first and number.startswith(("+", "*", "/", "^", "=", "<", ">")):
        return None
    return _with_unit(number.strip(" ,"), words[last:])


def _leads(word: str) -> bool:
    return word == "a" or (is_word(word) and not is_numeral(word))


def _words_alone(words: list[str]) -> str | None:
    while words and words[0].lower() in _LEADING:
        words = words[1:]
    return " ".join(words) or None


def _with_unit(number: str, words: list[str]) -> str | None:
    """A number with what is counted behind it: a known unit is kept, another goes."""
    scale = SCALES.get(words[0].lower()) if words else None
    if scale and (quantity := read_quantity(number)):
        if quantity.unit is not None:
            return None
        number, words = str(quantity.value * scale), words[1:]
    if words and words[0].lower() in ("base", "in") and number.isalnum():
        rest = words[1:] if words[0].lower() == "in" else words
        if rest and rest[0].lower() == "base":
            return _in_base(number, rest[1:])
    if words and re.fullmatch(r"\(?[A-Z]\)?", number):
        return None  # a choice and what it stands for
    plain = [word.strip(".,").lower() for word in words]
    if any(w in OPERATIONS or is_numeral(w) or not _COUNTED.fullmatch(w) for w in plain):
        return None
    whole = " ".join([number, *words])
    quantity = read_quantity(whole)
    return whole if quantity is not None and quantity.unit is not None else number


def _in_base(digits: str, words: list[str]) -> str | None:
    if len(words) != 1:
        return None
    base = words[0] if words[0].isdigit() else number_in_words(words[0])
    return None if base is None else f"{digits}_{{{base}}}"


def _without_remark(phrase: str) -> str | None:
    """`42 (forty-two)` without its remark; None if the remark is another number."""
    head, opening, remark = phrase.rpartition("(")
    words = remark.rstrip(" .").removesuffix(")")
    if not opening or not head.strip() or not remark.rstrip(" .").endswith(")"):
        return phrase
    spelled, quantity = number_in_words(head), read_quantity(tidy(words))
    if spelled is not None and quantity is not None:  # six (6)
        return head if spelled == quantity.value else None
    if not all(is_word(word) or is_numeral(word) for word in words.split()):
        return phrase
    if any(is_numeral(word) for word in words.split()):
        quantity = read_quantity(tidy(head))
        if quantity is None or quantity.value != number_in_words(words):
            return None
    return head
