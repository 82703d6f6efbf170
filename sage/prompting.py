"""The one prompt of SFT, RL and evaluation (the paper's App. E.4), and its tags.

A tokenizer's chat template is prepared once: its own is kept or Unsloth's takes its place, the
opening tag is appended to the generation prompt, and a model that has none gets a plain one.
Everything downstream then calls `apply_chat_template` and nothing else, so no stage can differ
from another.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 20.0
"""Seconds that a chat template may take for one prompt."""

WORK_OPEN = "<start_working_out>"
WORK_CLOSE = "<end_working_out>"
SOLUTION_OPEN = "<SOLUTION>"
SOLUTION_CLOSE = "</SOLUTION>"
TAGS = (WORK_OPEN, WORK_CLOSE, SOLUTION_OPEN, SOLUTION_CLOSE)
_THINKING = {f"<{tag}>": f"</{tag}>" for tag in ("think", "thinking", "reasoning", "thought")}
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")

SYSTEM_PROMPT = (
    "You are given a problem. Think about the problem and provide your working out. "
    f"Place it between {WORK_OPEN} and {WORK_CLOSE}. "
    f"Then, provide your solution between {SOLUTION_OPEN} and {SOLUTION_CLOSE}."
)

PLAIN_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ message['content'] + '\\n\\n' }}{% endif %}"
    "{% endfor %}"
)
"""For a model without a chat template: the texts, a blank line after each, and an end of text."""

_UNSLOTH = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] != 'user' %}{{ eos_token }}{% endif %}{% endfor %}"
)

_OPENING = "{% if add_generation_prompt %}" + WORK_OPEN + "{% endif %}"
_BOS = "{{ bos_token }}"
_INTO_PARTS = (
    "{% set told = namespace(messages=[]) %}{% for message in messages %}{% set told.messages = "
    "told.messages + [{'role': message['role'], 'content': [{'type': 'text', 'text': "
    "message['content']}]}] %}{% endfor %}{% set messages = told.messages %}"
)
_SYSTEM_INTO_USER = (
    "{% if messages[0]['role'] == 'system' %}{% set messages = [{'role': 'user', 'content': "
    "messages[0]['content'] + '\\n\\n' + messages[1]['content']}] + messages[2:] %}{% endif %}"
)


_PROBE = "Is 1 < x & x \\ne 2?\nSay \"yes\" or 'no'."
"""A problem that shows whether a chat template writes problems as they are."""


def messages(problem: str) -> list[dict[str, str]]:
    """The conversation that asks `problem`."""
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": problem},
    ]


def with_hint(problem: str, hint: str) -> str:
    """The text that asks `problem` and gives its hint, for a second try with guidance."""
    return f"{problem} Hint: {hint}"


def open_working_out(chat_template: str) -> str:
    """A chat template whose generation prompt ends with the opening tag; idempotent."""
    if chat_template.endswith(_OPENING):
        return chat_template
    # Jinja drops a newline at the very end; before our block it would become part of the text.
    return chat_template.removesuffix("\n") + _OPENING


UNSLOTH_CHAT_TEMPLATE = _UNSLOTH + _OPENING
"""System prompt, end of text, the bare problem, the opening tag; the completion, end of text.

What the release trains with where it runs SFT, as Unsloth's GRPO notebooks do.
"""


def prepared_chat_template(tokenizer: Any) -> str:
    """The chat template this project uses with `tokenizer`; idempotent.

    It is the tokenizer's own, where there is one, with the opening tag in its generation
    prompt. If that template refuses or leaves out a system message, the system prompt is put before
    the problem; if it reads messages in parts, as those of vision models, they are put into parts.
    Without one it is PLAIN_CHAT_TEMPLATE, opened by the beginning-of-text token if the tokenizer
    sets one before a text. Raises ValueError if no prompt that it renders holds the system prompt
    and the problem as they are. One that has the opening tag was prepared here, and may be that of
    a model from scratch, which shows the problem alone. A template may take PATIENCE seconds.
    """
    own = tokenizer.chat_template
    if isinstance(own, dict):  # several, by name
        own = own.get("default")
    if own is None:
        starts = tokenizer("a")["input_ids"][:1]
        has_bos = tokenizer.bos_token_id is not None and starts == [tokenizer.bos_token_id]
        return open_working_out((_BOS if has_bos else "") + PLAIN_CHAT_TEMPLATE)
    faults = []
    for start in ("", _SYSTEM_INTO_USER, _INTO_PARTS, _SYSTEM_INTO_USER + _INTO_PARTS):
        if not (fault := _fault_of(tokenizer, start + own)):
            return open_working_out(start + own)
        faults.append(fault)
    raise ValueError(
        f"the chat template of {tokenizer.name_or_path!r} renders neither a system message "
        f"({faults[0]}) nor a user message alone ({faults[1]}), nor either in parts ({faults[2]}); "
        "set `tokenizer.chat_template` to one that does"
    )


def _fault_of(tokenizer: Any, template: str) -> str:
    """Why a prompt of this chat template cannot be used; "" if it can."""
    try:
        with _limited(PATIENCE):
            prompt = tokenizer.apply_chat_template(
                messages(_PROBE), chat_template=template, add_generation_prompt=True, tokenize=False
            )
    except Exception as fault:  # jinja2's, or whatever a template raises
        return str(fault) or type(fault).__name__
    needed = {"the system prompt": SYSTEM_PROMPT, "the problem": _PROBE}
    if template.endswith(_OPENING):
        del needed["the system prompt"]
    lost = [what for what, text in needed.items() if text not in prompt]
    return f"the prompt lacks {' and '.join(lost)}" if lost else ""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError after so much time: a template may hold loops without an end.

    Another thread than the main one has no alarm, and waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def completion(working: str, answer: str) -> str:
    """What the model is to write after the generation prompt."""
    return f"{working}{WORK_CLOSE}{SOLUTION_OPEN}{answer}{SOLUTION_CLOSE}"


def prompt_ids(tokenizer: Any, problem: str) -> list[int]:
    """Token ids of the prompt for `problem`, generation prompt included.

    The template alone decides on special tokens, so none is doubled.
    """
    encoded = tokenizer.apply_chat_template(
        messages(problem), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoded["input_ids"])


def conversation_ids(tokenizer: Any, problem: str, written: str) -> tuple[list[int], list[int]]:
    """Token ids of the prompt for `problem` and of the completion `written`, each by itself.

    Tokenised in one piece, the end of the prompt could merge with what follows (`>` and a line
    break are one token of Qwen's), and training would not see the prompt of inference. The
    second part ends as the chat template ends an answer. Raises ValueError if the template writes
    an answered conversation in another way than the prompt.
    """
    asked = messages(problem)
    answered = [*asked, {"role": "assistant", "content": WORK_OPEN + written}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(answered, tokenize=False)
    if not whole.startswith(prompt):
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path!r} writes the prompt {prompt[-60:]!r}, "
            "but not so in an answered conversation; choose another, as sft.template: unsloth"
        )
    rest = whole.removeprefix(prompt)
    if written.strip() not in rest:
        raise ValueError(
            f"the chat template of {tokenizer.name_or_path!r} leaves out or changes the completion "
            f"{written[:60]!r}; choose another, as sft.template: unsloth"
        )
    ids = tokenizer(rest, add_special_tokens=False)["input_ids"]
    return prompt_ids(tokenizer, problem), list(ids)


def thinks_on(text: str) -> bool:
    """Whether a completion ends within thinking that it opened, such as `<think>`."""
    return any(text.rfind(tag) > text.rfind(end) for tag, end in _THINKING.items())


def solution_text(text: str) -> str | None:
    """The content of the last solution block that has any, or None.

    A block goes from its opening tag to its closing one, to the next opening one or to the
    end of the text; a closing tag that was cut off in the middle counts (a truncated
    completion, or a stop string that was not kept). Stray tags inside are dropped. Linear in
    the length of `text`.
    """
    opening = text.rfind(SOLUTION_OPEN)
    end = len(text)
    while opening >= 0:
        block = _without_tags(text[opening + len(SOLUTION_OPEN) : end])
        if block:
            return block
        end = opening
        opening = text.rfind(SOLUTION_OPEN, 0, end)
    return None


def last_boxed(text: str) -> str | None:
    r"""What the last ``\boxed{...}`` or ``\fbox{...}`` holds; None if it is not closed."""
    boxes = list(_BOXED.finditer(text))
    if not boxes:
        return None
    depth, start = 1, boxes[-1].end()
    for end in range(start, len(text)):
        if text[end] in "{}" and text[end - 1] != "\\":
            depth += 1 if text[end] == "{" else -1
            if depth == 0:
                return text[start:end]
    return None


def _without_tags(block: str) -> str:
    end = block.find(SOLUTION_CLOSE)
    if end < 0:
        cut = [n for n in range(len(SOLUTION_CLOSE)) if block.endswith(SOLUTION_CLOSE[:n])]
        end = len(block) - max(cut)
    block = block[:end]
    for tag in TAGS:
        block = block.replace(tag, " ")
    return block.strip()
