"""Fine-tuning: which conversations are trained on, in which tokens, and with loss on what."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import SFTTrainer

from sage.policies import load_tokenizer
from sage.problems.record import Problem
from sage.prompting import (
    SYSTEM_PROMPT,
    UNSLOTH_CHAT_TEMPLATE,
    WORK_OPEN,
    completion,
    conversation_ids,
    messages,
    prepared_chat_template,
    prompt_ids,
)
from sage.runtime.manifest import Manifest
from sage.study import SFT, LoRA
from sage.training import sft
from sage.training.examples import Examples, Solution, tokenised, without_think_tags
from sage.training.rl import prompt_dataset

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PROBLEM = "What is 6 times 7?"
WORKING = "\nMultiply."  # a line break follows the `>` of the opening tag
SETTINGS = SFT(
    epochs=1,
    batch_size=2,
    max_tokens=2_000,
    learning_rate=1e-3,
    warmup_steps=0,
    weight_decay=0.0,
    lora=LoRA(rank=2, alpha=2),
    seed=1,
    examples=4,
)


def merging_tokenizer() -> Any:
    """As Qwen's: punctuation merges with the line breaks behind it, so `>` and one are a token."""
    raw = Tokenizer(models.BPE())
    pieces = Regex(r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+")
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        [SYSTEM_PROMPT, ">\n" * 200],
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHATML
    return tokenizer


MIRROR = Path(os.environ.get("SAGE_MIRROR", "nowhere"))
REAL = {
    name: MIRROR / name
    for name in ("Qwen/Qwen2.5-Math-7B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")
}


@pytest.fixture(params=["look-alike", *REAL])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param == "look-alike":
        return merging_tokenizer()
    if not (REAL[request.param] / "tokenizer.json").is_file():
        pytest.skip(f"the tokenizer of {request.param} is not in the folder SAGE_MIRROR")
    return AutoTokenizer.from_pretrained(str(REAL[request.param]))


@pytest.mark.parametrize("template", ["own", "unsloth"])
def test_training_sees_the_prompt_of_inference_token_by_token(
    tokenizer: Any, template: str
) -> None:
    tokenizer.chat_template = (
        UNSLOTH_CHAT_TEMPLATE if template == "unsloth" else prepared_chat_template(tokenizer)
    )
    written = completion(WORKING, "42")
    prompt, answer = conversation_ids(tokenizer, PROBLEM, written)
    assert prompt == prompt_ids(tokenizer, PROBLEM)
    assert tokenizer.decode(answer).startswith(written)
    asked = messages(PROBLEM)
    whole = [*asked, {"role": "assistant", "content": WORK_OPEN + written}]
    at_once = tokenizer.apply_chat_template(whole, return_dict=True)["input_ids"]
    assert at_once[: len(prompt)] != prompt, "the tokenizer does not merge, so nothing is shown"
    assert tokenizer.decode([*prompt, *answer]) == tokenizer.decode(at_once)


def test_unsloths_template_is_the_same_text_in_sft_rl_and_evaluation(tmp_path: Path) -> None:
    tokenizer = merging_tokenizer()
    tokenizer.chat_template = UNSLOTH_CHAT_TEMPLATE
    expected = (
        "You are given a problem. Think about the problem and provide your working out. Place it "
        "between <start_working_out> and <end_working_out>. Then, provide your solution between "
        "<SOLUTION> and </SOLUTION>.<|endoftext|>What is 6 times 7?<start_working_out>"
    )
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)  # as RL and evaluation get it, from the checkpoint
    assert loaded.decode(prompt_ids(loaded, PROBLEM)) == expected
    problem = Problem("a", PROBLEM, "42", "math", "", "", "")
    rollouts = loaded.apply_chat_template(
        prompt_dataset([problem])[0]["prompt"], add_generation_prompt=True, tokenize=False
    )
    assert rollouts == expected
    prompt, answer = conversation_ids(loaded, PROBLEM, completion("6*7", "42"))
    assert loaded.decode(prompt) == expected
    assert loaded.decode(answer) == ("6*7<end_working_out><SOLUTION>42</SOLUTION><|endoftext|>")


def test_a_template_that_rewrites_the_prompt_is_refused() -> None:
    tokenizer = merging_tokenizer()
    tokenizer.chat_template = "{{ messages | length }}" + CHATML
    with pytest.raises(ValueError, match=r"choose another, as sft\.template: unsloth"):
        conversation_ids(tokenizer, PROBLEM, completion("so", "42"))


def examples_of(**changes: Any) -> Examples:
    """One short and one long example, in a template that writes 10 tokens of prompt around them."""
    tokenizer = merging_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] if m['role'] == 'assistant' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '" + WORK_OPEN + "' }}{% endif %}"
    )
    lengths = [
        sum(map(len, conversation_ids(tokenizer, "", completion("7" * n, "42")))) for n in (1, 40)
    ]
    assert lengths[1] == lengths[0] + 39
    solutions = [Solution("", "7" * n, "42") for n in (1, 40)]
    room = lengths[0] + changes.pop("room")
    return tokenised(
        solutions, tokenizer, SETTINGS.model_copy(update={"max_tokens": room, **changes})
    )


def test_by_default_a_conversation_may_take_half_of_the_room() -> None:
    base = examples_of(room=10_000)
    short, long = (len(row["input_ids"]) for row in base.rows)
    assert base.counts["left_out_over_half_of_max_tokens"] == 0
    exactly = examples_of(room=2 * long - short)
    assert len(exactly.rows) == 2
    one_less = examples_of(room=2 * long - short - 1)
    assert len(one_less.rows) == 1
    assert one_less.counts == {
        "trained_on": 1,
        "left_out_over_half_of_max_tokens": 1,
        "left_out_over_max_tokens": 0,
        "cut_at_max_tokens": 0,
    }


def test_by_the_prompt_a_long_conversation_is_left_out_or_cut_and_counted() -> None:
    left_out = examples_of(room=20, length="prompt")
    assert list(left_out.counts.values()) == [1, 0, 1, 0]
    cut = examples_of(room=20, length="prompt", too_long="cut")
    assert list(cut.counts.values()) == [2, 0, 0, 1]
    short, long = cut.rows
    assert len(long["input_ids"]) == len(long["completion_mask"]) == len(short["input_ids"]) + 20


def test_nothing_short_enough_is_an_error() -> None:
    with pytest.raises(ValueError, match="of 2 examples none is short enough: in 2 the conv"):
        examples_of(room=-5)


def test_think_tags_go_and_their_content_stays() -> None:
    assert without_think_tags("<think>\nIt comes to 7.\n</think>\nSo 7.") == (
        "It comes to 7.\n\nSo 7."
    )


def tiny(folder: Path) -> Path:
    tokenizer = merging_tokenizer()
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        eos_token_id=0,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    (folder / "manifest.json").write_text("{}")
    return folder


@pytest.mark.parametrize("loss", ["text", "completion"])
def test_loss_is_on_the_whole_text_or_on_the_completion(loss: str, tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"loss": loss})
    tokenizer = load_tokenizer(tiny(tmp_path / "base"))
    rows = tokenised([Solution(PROBLEM, WORKING, "42")], tokenizer, settings).rows
    trainer = SFTTrainer(
        model=str(tmp_path / "base"),
        args=sft._config(settings, "cpu", tmp_path / "scratch"),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    prompt = len(prompt_ids(tokenizer, PROBLEM))
    dataset: Any = trainer.train_dataset
    ids, labels = rows[0]["input_ids"], dataset[0]["labels"]
    assert dataset[0]["input_ids"] == ids
    assert labels == (ids if loss == "text" else [-100] * prompt + ids[prompt:])


def test_the_manifest_counts_the_examples_and_the_checkpoint_carries_the_template(
    tmp_path: Path,
) -> None:
    settings = SETTINGS.model_copy(update={"template": "unsloth"})
    solutions = [Solution(PROBLEM, "so", "42"), Solution(PROBLEM, "7" * 3_000, "42")]
    base, output = tiny(tmp_path / "base"), tmp_path / "tuned"
    manifest = Manifest({}, 1, time.time())
    sft.fine_tune(base, solutions, settings, "cpu", tmp_path / "scratch", output, manifest)
    counts = json.loads((output / "manifest.json").read_text())["settings"]["examples"]
    assert counts["trained_on"] == 1
    assert counts["left_out_over_half_of_max_tokens"] == 1
    assert load_tokenizer(output).chat_template == UNSLOTH_CHAT_TEMPLATE
