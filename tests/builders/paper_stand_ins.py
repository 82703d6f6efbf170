"""Stand-ins for the paper's models: random weights in their architecture, tokenizers of their kind.

Studies of such models then run as written, on the real benchmark files, within minutes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from sage.study.written import read_study
from tests.conftest import ROOT

# As Qwen2.5 writes conversations: roles between tags, a system message of its own by default.
CHATML = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nReason step by step.<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# As R1's distillates do: a token before the text, and thinking opened by the prompt.
THINKING = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}"
    "{% elif message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}"
    "{% else %}{{ '<|Assistant|>' + message['content'] + '<|end▁of▁sentence|>' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|><think>\\n' }}{% endif %}"
)
# Repository: chat template, end of text, token before the text, whether embeddings are tied.
REPOSITORIES: dict[str, tuple[str, str, str | None, bool]] = {
    "Qwen/Qwen2.5-Math-7B": (CHATML, "<|endoftext|>", None, False),
    "Qwen/Qwen2.5-Math-1.5B": (CHATML, "<|endoftext|>", None, True),
    "Qwen/Qwen2.5-Math-1.5B-Instruct": (CHATML, "<|im_end|>", None, True),
    "Qwen/Qwen2.5-3B-Instruct": (CHATML, "<|im_end|>", None, True),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": (
        THINKING,
        "<|end▁of▁sentence|>",
        "<|begin▁of▁sentence|>",
        False,
    ),
}
POSITIONS = 8192 + 2048
VOCABULARY = 320  # ends of text are drawn once in so many tokens: completions of some hundreds


def write_stand_ins(mirror: Path, texts: Sequence[str]) -> None:
    """A checkpoint per repository under `mirror`, in the hub's layout; `texts` make the tokens."""
    for repository, (template, end, start, tied) in REPOSITORIES.items():
        tokenizer: Any = Qwen2Tokenizer().train_new_from_iterator(texts, VOCABULARY - 4)
        names = dict.fromkeys(["<|endoftext|>", "<|im_start|>", "<|im_end|>", end])
        tokenizer.add_special_tokens(
            {
                "eos_token": end,
                "pad_token": "<|padding|>",
                **({"bos_token": start} if start else {}),
                "additional_special_tokens": list(names),
            }
        )
        tokenizer.chat_template = template
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=len(tokenizer),
                hidden_size=128,  # heads of 32, the least that vLLM knows on a CPU
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=POSITIONS,
                tie_word_embeddings=tied,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
        )
        model.to(torch.bfloat16).save_pretrained(mirror / repository)  # as published
        tokenizer.save_pretrained(mirror / repository)


def write_sft_examples(mirror: Path, problems: Sequence[str]) -> None:
    """A data set in the layout of OpenMathReasoning-mini, which is too large to come along."""
    file = mirror / "unsloth/OpenMathReasoning-mini/data/cot-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    rows = [
        {
            "problem": problem,
            "expected_answer": str(number),
            "generated_solution": f"<think>\nIt comes to {number}.\n</think>\nSo {number}.",
        }
        for number, problem in enumerate(problems)
    ]
    pd.DataFrame(rows).to_parquet(file)


def shortened(study: str, engine: str) -> dict[str, Any]:
    """A study with fewer problems, steps and samples; what shapes a run stays.

    Models, data sets, LoRA, precision, templates, lengths, rows and exhibits are the study's
    own, and so is the optimizer where bitsandbytes is installed.
    """
    content: dict[str, Any] = json.loads(json.dumps(read_study(study, ROOT / "config").content))
    for name, problems in content["problems"].items():
        problems["first"] = 8 if name == "dapo" else 2
        if name == "knights":
            problems["levels"] = [3, 4, 5]  # of which the mirror has copies
    evaluations = [content["evaluation"]]
    for model in content["models"].values():
        if "sft" in model:
            model["sft"]["examples"] = 4
        model["rl"] |= {"steps": 3, "engine": "transformers"}
        if find_spec("bitsandbytes") is None:
            for stage in (model["rl"], model.get("sft", {})):
                stage["optimizer"] = "adamw"
        evaluations += [model["evaluation"]] if "evaluation" in model else []
    for evaluation in evaluations:
        evaluation |= {"samples": 4, "seeds": [0, 1], "primary_k": 4}
        evaluation |= {"engine": engine, "bootstrap": 100}
    for exhibit in content["exhibits"].values():
        for key, few in {"samples": 2, "snapshots": 2, "responses": 4}.items():
            if key in exhibit or (exhibit["kind"], key) == ("perplexity", "responses"):
                exhibit[key] = few
        if exhibit["kind"] == "perplexity":
            del exhibit["problems"]  # not among the first two
    return content
