"""The prompt over tokenizers that differ in what they add, and tags in any disorder."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from sage import prompting
from sage.prompting import (
    SOLUTION_CLOSE,
    SOLUTION_OPEN,
    SYSTEM_PROMPT,
    TAGS,
    WORK_CLOSE,
    WORK_OPEN,
    completion,
    conversation_ids,
    messages,
    open_working_out,
    prepared_chat_template,
    prompt_ids,
    solution_text,
)

PROBLEM = "What is 6 times 7?"

CHATML = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '</s>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}\n"
)
WITH_BOS = "{{ bos_token }}" + CHATML
NO_SYSTEM = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('no system role') }}{% endif %}" + CHATML
)


IN_PARTS = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WITHOUT_SYSTEM = (
    "{% for m in messages %}{% if m['role'] != 'system' %}"
    "{{ '<|' + m['role'] + '|>' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PARTS_WITHOUT_SYSTEM = (
    "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}" + IN_PARTS
)


def a_tokenizer(template: str | dict[str, str] | None, adds_bos: bool) -> Any:
    """A byte-level tokenizer that puts <s> before a text, or does not."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        [PROBLEM, SYSTEM_PROMPT],
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    if adds_bos:
        raw.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", raw.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    tokenizer.chat_template = template
    tokenizer.chat_template = prepared_chat_template(tokenizer)
    return tokenizer


def text_of(tokenizer: Any, conversation: list[dict[str, str]], opened: bool) -> str:
    return str(
        tokenizer.apply_chat_template(conversation, add_generation_prompt=opened, tokenize=False)
    )


KINDS = [
    pytest.param(CHATML, False, 0, id="template without bos"),
    pytest.param(CHATML, True, 0, id="template without bos, tokenizer with"),
    pytest.param(WITH_BOS, False, 1, id="template with bos"),
    pytest.param(WITH_BOS, True, 1, id="template and tokenizer with bos"),
    pytest.param({"default": WITH_BOS, "tools": "x"}, True, 1, id="several templates"),
    pytest.param(NO_SYSTEM, True, 1, id="template that refuses a system message"),
    pytest.param(IN_PARTS, False, 0, id="template that reads parts only"),
    pytest.param(WITHOUT_SYSTEM, False, 0, id="template that leaves out a system message"),
    pytest.param(PARTS_WITHOUT_SYSTEM, False, 0, id="template that does both"),
    pytest.param(None, False, 0, id="no template, no bos"),
    pytest.param(None, True, 1, id="no template, tokenizer with bos"),
]


@pytest.mark.parametrize(("template", "adds_bos", "bos"), KINDS)
def test_the_prompt_holds_everything_once_and_ends_with_the_opening_tag(
    template: str | None, adds_bos: bool, bos: int
) -> None:
    tokenizer = a_tokenizer(template, adds_bos)
    ids = prompt_ids(tokenizer, PROBLEM)
    assert ids.count(tokenizer.bos_token_id) == bos
    assert ids[:1].count(tokenizer.bos_token_id) == bos
    text = tokenizer.decode(ids)
    assert text.endswith(WORK_OPEN)
    assert text.count(SYSTEM_PROMPT) == 1
    assert text.count(PROBLEM) == 1
    assert text.index(SYSTEM_PROMPT) < text.index(PROBLEM)
    assert prepared_chat_template(tokenizer) == tokenizer.chat_template  # it was, and stays so
    assert open_working_out(tokenizer.chat_template) == tokenizer.chat_template


@pytest.mark.parametrize(("template", "adds_bos", "bos"), KINDS)
def test_what_is_trained_on_starts_with_the_prompt_that_is_sampled_from(
    template: str | None, adds_bos: bool, bos: int
) -> None:
    tokenizer = a_tokenizer(template, adds_bos)
    asked = messages(PROBLEM)
    answered = {"role": "assistant", "content": WORK_OPEN + completion("6*7=42", "42")}
    trained = text_of(tokenizer, [*asked, answered], opened=False)
    prompt = text_of(tokenizer, asked, opened=True)
    assert trained.startswith(prompt)
    assert trained.removeprefix(prompt).startswith(completion("6*7=42", "42") + "</s>")


def test_a_models_own_text_is_kept() -> None:
    prompt = text_of(a_tokenizer(CHATML, False), messages(PROBLEM), opened=True)
    assert prompt == (
        f"<|system|>\n{SYSTEM_PROMPT}</s>\n<|user|>\n{PROBLEM}</s>\n<|assistant|>\n{WORK_OPEN}"
    )


def test_the_plain_template() -> None:
    prompt = text_of(a_tokenizer(None, True), messages(PROBLEM), opened=True)
    assert prompt == f"<s>{SYSTEM_PROMPT}\n\n{PROBLEM}\n\n{WORK_OPEN}"


def test_a_template_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "{% for a in range(9999) %}"
    endless = loop * 3 + "{% endfor %}" * 3
    monkeypatch.setattr(prompting, "PATIENCE", 0.2)
    with pytest.raises(ValueError, match=r"it takes more than 0\.2 s"):
        a_tokenizer(endless, False)


def test_a_template_of_endless_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it takes more than 1 GiB"):
        a_tokenizer("{{ 'a' * 9999999999 }}", False)


def test_a_template_that_never_renders_is_refused() -> None:
    with pytest.raises(ValueError, match=r"neither a system message .*nope.* nor a user message"):
        a_tokenizer("{{ raise_exception('nope') }}", False)


@pytest.mark.parametrize(
    ("template", "lost"),
    [
        (
            "{% for m in messages %}<|{{ m['role'] }}|>{% endfor %}",
            "the system prompt and the prob",
        ),
        (CHATML.replace("m['content']", "(m['content'] | e | string)"), "the system prompt and"),
        (CHATML.replace("m['content']", "m['content'][:40]"), "the system prompt"),
    ],
    ids=["roles only", "escaped", "cut"],
)
def test_a_template_that_loses_the_problem_or_the_instruction_is_refused(
    template: str, lost: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"the prompt lacks {lost}.*set `tokenizer\.chat_template`"
    ):
        a_tokenizer(template, False)


def test_the_template_of_a_model_from_scratch_shows_the_problem_alone() -> None:
    own = open_working_out("{% for m in messages[1:] %}{{ m['content'] }}{% endfor %}")
    tokenizer = a_tokenizer(own, False)
    assert tokenizer.chat_template == own
    assert text_of(tokenizer, messages(PROBLEM), opened=True) == PROBLEM + WORK_OPEN


def test_a_template_that_loses_the_completion_is_refused_for_training() -> None:
    tokenizer = a_tokenizer(CHATML, False)
    tokenizer.chat_template = CHATML.replace("m['content']", "m['content'].split('=')[0]")
    with pytest.raises(ValueError, match="leaves out or changes the completion '6\\*7=42"):
        conversation_ids(tokenizer, "six times seven", completion("6*7=42", "42"))


# Tags


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<SOLUTION>42</SOLUTION>", "42"),
        ("<SOLUTION>\n 42 \n</SOLUTION> bye", "42"),
        ("6*7<end_working_out><SOLUTION>42</SOLUTION>", "42"),
        ("<SOLUTION>41</SOLUTION> no, <SOLUTION>42</SOLUTION>", "42"),
        ("<SOLUTION><SOLUTION>42</SOLUTION></SOLUTION>", "42"),
        ("<SOLUTION>41 <SOLUTION>42</SOLUTION>", "42"),
        ("<SOLUTION>42", "42"),
        ("<SOLUTION>42</SOLU", "42"),
        ("<SOLUTION>42<", "42"),
        ("<SOLUTION>42<SOLUTION>", "42"),
        ("<SOLUTION>42</SOLUTION><SOLUTION>", "42"),
        ("<SOLUTION>42</SOLUTION><SOLUTION> </SOLUTION>", "42"),
        ("<SOLUTION>42<end_working_out></SOLUTION>", "42"),
        ("<SOLUTION>x < 3</SOLUTION>", "x < 3"),
        ("42", None),
        ("", None),
        ("42</SOLUTION>", None),
        ("<SOLUTION></SOLUTION>", None),
        ("<SOLUTION>", None),
        ("<solution>42</solution>", None),
        ("<SOLUTION 42</SOLUTION>", None),
    ],
)
def test_the_last_solution_block_wins(text: str, answer: str | None) -> None:
    assert solution_text(text) == answer


plain = st.text(alphabet=st.characters(exclude_characters="<")).filter(lambda text: text.strip())
disorder = st.lists(st.one_of(st.sampled_from(TAGS), st.text(max_size=8))).map("".join)


@given(before=disorder, answer=plain, after=disorder.filter(lambda text: "<SOLUTION>" not in text))
def test_the_last_block_is_found_in_any_disorder(before: str, answer: str, after: str) -> None:
    text = f"{before}{SOLUTION_OPEN}{answer}{SOLUTION_CLOSE}{after}"
    assert solution_text(text) == answer.strip()


@given(answer=plain, kept=st.integers(0, len(SOLUTION_CLOSE)))
def test_a_closing_tag_may_be_cut_anywhere(answer: str, kept: int) -> None:
    assert solution_text(f"{SOLUTION_OPEN}{answer}{SOLUTION_CLOSE[:kept]}") == answer.strip()


@given(text=disorder)
def test_what_is_found_is_part_of_the_text_and_holds_no_tag(text: str) -> None:
    found = solution_text(text)
    if found is None:
        return
    assert found.strip() == found != ""
    assert not any(tag in found for tag in TAGS)
    assert SOLUTION_OPEN in text


@pytest.mark.parametrize(
    "text", ["<SOLUTION>" * 200_000, "<SOLUTION> </SOLUTION>" * 100_000, "<SOLUTION>" + "<" * 10**6]
)
def test_megabytes_of_tags_are_read_in_linear_time(text: str) -> None:
    start = time.perf_counter()
    solution_text(text)
    assert time.perf_counter() - start < 5


def test_a_completion_gives_its_answer_back() -> None:
    assert solution_text(WORK_OPEN + completion("so", "42")) == "42"
    assert completion("so", "42") == f"so{WORK_CLOSE}<SOLUTION>42</SOLUTION>"
