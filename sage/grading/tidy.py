"""One way of writing for the many ways an answer is written, in front of every comparison.

What is done here never changes what an answer states: signs outside ASCII become LaTeX,
wrappers, spacing, lead-ins and final punctuation go. The text is untrusted: every pattern
is linear in a text that the caller has already cut to a bounded length.
"""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "⁄": "/",
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "±": r"\pm ", "°": r"^\circ ",
    "‐": "-", "‑": "-", "﹣": "-", "’": "'", "′": "'", "″": "''", "“": '"', "”": '"',
    "⩽": r"\le ", "⩾": r"\ge ", "∠": r"\angle ", "∖": r"\setminus ", "∧": r"\land ", "∨": r"\lor ",
    "∗": "*", "∕": "/", "∶": ":", "∣": "|", "…": "...", "⋯": "...", "。": ".", "、": ",",
    "ℝ": r"\mathbb{R} ", "ℤ": r"\mathbb{Z} ", "ℕ": r"\mathbb{N} ", "ℚ": r"\mathbb{Q} ",
}  # fmt: skip
_FRACTIONS = {
    sign: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", sign).split("⁄"))
    for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
_GREEK = {
    unicodedata.lookup(f"GREEK {size} LETTER {name.replace('LAMBDA', 'LAMDA')}"): "\\"
    + (name.lower() if size == "SMALL" else name.capitalize())
    + " "
    for size, names in {
        "SMALL": "ALPHA BETA GAMMA DELTA EPSILON ZETA ETA THETA IOTA KAPPA LAMBDA MU NU XI PI RHO "
        "SIGMA TAU UPSILON PHI CHI PSI OMEGA",
        "CAPITAL": "GAMMA DELTA THETA LAMBDA XI PI SIGMA UPSILON PHI PSI OMEGA",
    }.items()
    for name in names.split()
}
_PLAIN = {  # full-width forms, and letters and digits in the styles of mathematics
    chr(code): unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0xFF01, 0xFF5F), *range(0x1D7CE, 0x1D800), *range(0x1D400, 0x1D6A4))
}
_ORNAMENTS = dict.fromkeys("✅✔✓☑🎉🎊🎯🏆⭐🌟✨👉💡📌🔑📝👍🟢🔹🔸►▶∎\ufe0f", " ")
"""Signs that praise or point to an answer; ❌ and the like state something."""

_TABLE = str.maketrans({**_SIGNS, **_FRACTIONS, **_GREEK, **_PLAIN, **_ORNAMENTS})
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

_PRIMED = re.compile(
    r"(?<![\w)}'])'\w+'|"  # in quotation marks
    r"(?P<base>\\[a-zA-Z]+|(?<![a-zA-Z\\])[a-zA-Z]{1,2}|_\w|_\{[^{}]*\}|\))(?P<marks>'+)"
    r"(?!(?:s|d|m|t|ll|re|ve|th)(?![a-zA-Z]))"
)


def _with_primes(text: str) -> str:
    r"""`y'` as `y^{\prime}`; feet, minutes and the apostrophes of words stay."""
    return _PRIMED.sub(
        lambda m: m["base"] + r"^{%s}" % (r"\prime" * len(m["marks"])) if m["base"] else m[0], text
    )


def _with_root(match: re.Match[str]) -> str:
    return r"\sqrt" + {"√": "", "∛": "[3]", "∜": "[4]"}[match[1]] + f"{{{match[2] or match[3]}}}"


def _with_round_brackets(match: re.Match[str]) -> str:
    r"""`]1,3[` as `(1,3)`."""
    opening, inside, closing = match.groups()
    if (opening, closing) == ("[", "]"):
        return match[0]
    return {"]": "("}.get(opening, opening) + inside + {"[": ")"}.get(closing, closing)


_DOLLAR = r"\$"
_BOLD = "text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|rm|it|sf|tt)|mbox|emph|underline|boldsymbol|bm"

_REWRITES = [  # where a mark is in the text, a pattern and what stands for it
    (mark, re.compile(pattern), replacement)
    for mark, pattern, replacement in (
        ("", r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda match: "^{" + match[0].translate(_SUPERSCRIPTS) + "}"),
        ("", r"[₀-₉]+", lambda match: "_{" + match[0].translate(_SUBSCRIPTS) + "}"),
        ("", r"([√∛∜]) ?(?:\(([^()]*)\)|(\d+|[a-zA-Z]|\\pi))", _with_root),
        (
            "",
            r"^ *(\\\$|[€£¥]|USD|EUR|GBP) ?(-?[0-9][0-9., ]*(?:\{ ?, ?\}[0-9]+)*) *$",
            lambda match: rf"{match[2]}\text{{ {match[1].replace(_DOLLAR, 'usd')}}}",
        ),
        # A backslash after another ends a matrix row and starts no command.
        ("\\", r"(?<!\\)\\!\s*", ""),
        ("", r"(?<!\\)\\[,;:> ]|~|\\h(?:space|phantom) ?\{[^{}]*\}", " "),
        ("\\", r"\\(?:text)?color ?\{[^{}]*\}|\\(?:tag|label)\*? ?\{[^{}]*\}", ""),
        ("**", r"(?<![\w)}*])( ?)\*\*(?=[^ *])([^*]+)\*\*(?![\w(*])", r"\1\2"),
        ("__", r"(?<!\w)__([^_]+)__(?!\w)", r"\1"),
        ("**", r"\*\*([A-Za-z][A-Za-z :]*)\*\*", r"\1"),
        ("", r"(?<!\\)\\[()\[\]]|\\?\$", " "),
        ("\\", rf"\\(?:{_BOLD}) ?\{{ ?([-+]?[0-9][0-9.,/]*(?: ?\\?%)?) ?\}}", r"{\1}"),
        (",", r"([\[\]])([^\[\](){}]+,[^\[\](){}]+)([\[\]])", _with_round_brackets),
        ("\\", r"\\(?:left|right)(?:\.|(?![a-zA-Z]))|\\[bB]igg?[lrm]?(?![a-zA-Z])", ""),
        ("\\", r"\\(?:display|text|script)style(?![a-zA-Z])|\\limits(?![a-zA-Z])", ""),
        ("\\", r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        ("\\", r"\\(q?quad)(?=[a-zA-Z])", r"\\\1 "),
        ("!=", r"!=", r"\\ne "),
        ("\\", r"\\(?:top|intercal)(?![a-zA-Z])", "T"),
        (r"\over", r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"{\\frac{\1}{\2}}"),
        ("\\", r"(?<=\\\\)\[-?[0-9.]+ ?(?:pt|em|ex|mm|cm)\]", ""),
        ("{", r"\{\s*,\s*\}", ","),
        ("\\", r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])|\\degree(?![a-zA-Z])", r"^\\circ "),
        ("\\", r"\\varnothing(?![a-zA-Z])", r"\\emptyset "),
        ("**", r"(?<=[\w)}])( ?)\*\*\1(-?\w+)", r"^{\2}"),
        ("**", r"(?<=[\w)}])( ?)\*\*\1(?=\()", "^"),
        ("10", r"(?<=[0-9]) ?[xX] ?(?=10 ?\^)", r"\\times "),
        (";", r";", ","),
        ("", r"\s+", " "),
    )
]
_LEAD_IN = re.compile(
    r"(?:(?:so|thus|hence|therefore),? )?(?:the )?(?:(?:final|correct) )?"
    r"(?:answer|solution|result)(?: is)? ?(?:[:=]|(?<=is)) ?|= ?|#{1,6} |[→➡➜⇒∴] ?|"
    r"(?:答案|答え|答|解|정답|답|ответ|réponse|respuesta|resposta|risposta|antwort) ?"
    r"(?:[:=]|是|为|為|は|est|es|ist|è|é) ?",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"\\(?P<name>boxed|fbox|text(?:bf|it|rm|normal)?|math(?:bf|rm|it)|mbox|underline)\s?\{"
)
_MARKDOWN = ("**", "__", "*", "`", '"', "'")


def tidy(text: str) -> str:
    """`text` in plain ASCII LaTeX without what states nothing; may be empty."""
    # A format character, such as a right-to-left mark, leaves no trace in print.
    visible = (c for c in text if unicodedata.category(c) != "Cf")
    text = "".join(" " if c.isspace() else c for c in visible).translate(_TABLE)
    if r"\begin" not in text:  # no row of a matrix ends there
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    for mark, pattern, replacement in _REWRITES:
        if mark in text:
            text = pattern.sub(replacement, text)
    text = _with_primes(text)
    before = None
    while text != before:  # each turn takes something away
        before = text
        text = _unwrap(text.strip())
    return text


def is_balanced(text: str, deepest: int = 30) -> bool:
    """Whether braces match and nest no deeper than `deepest`."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if not 0 <= depth <= deepest:
            return False
    return depth == 0


def _unwrap(text: str) -> str:
    if lead_in := _LEAD_IN.match(text):
        return text[lead_in.end() :]
    if text.endswith((".", ",", ":")) and not text.endswith(".."):
        return text[:-1]
    for mark in _MARKDOWN:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            return text[len(mark) : -len(mark)]
    if text.startswith("{") and _closes_at_end(text, 1):
        return text[1:-1]
    if (command := _COMMAND.match(text)) and _closes_at_end(text, command.end()):
        inner = text[command.end() : -1]
        # A word keeps its wrapper, which tells it from a product of letters.
        if "box" in command["name"] or any(c.isdigit() for c in inner):
            return inner
    return text


def _closes_at_end(text: str, start: int) -> bool:
    """Whether the brace opened just before `start` is closed by the last character."""
    return text.endswith("}") and is_balanced(text[start:-1], len(text))
