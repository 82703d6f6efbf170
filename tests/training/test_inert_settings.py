"""Settings under which a part of the method would have no effect, or the opposite one.

To add a row to `sage.training.settings.TABLE`, add a case here: a run that has it, and what mends
that. A setting that is new in TRL fails here until a row, or LOOKED_AT, names it.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from datasets import Dataset
from peft import LoraConfig, PromptTuningConfig
from trainers import SUMS, odd_sum
from transformers import TrainingArguments
from trl import GRPOConfig

from sage.method.advantages import Centred
from sage.method.anchors import K2, ExactForwardKL, SampledForwardKL
from sage.method.credit import K1InReward
from sage.method.guides import BranchGuide, TokenGuide
from sage.policies import load_model, load_tokenizer
from sage.rivals.dapo import Mixed
from sage.rivals.dars import Dars
from sage.rivals.guided_retry import GuidedRetry
from sage.rivals.pacs import Pacs
from sage.rivals.steer import Steer
from sage.rivals.unsolved_only import UnsolvedOnly
from sage.training import rl, settings
from sage.training.credit import Correction
from sage.training.drawers import transformers_rollouts
from sage.training.rewards import READS_ANSWER
from sage.training.settings import TABLE
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

Given = dict[str, Any]

BRANCH = BranchGuide(ratio=0.3, threshold=1.2)
TOKEN = TokenGuide(alpha_high=0.3, alpha_low=0.1, sigma_high=0.25, sigma_low=0.1, periods=8)
GUIDED, K1 = Shaping(guide=BRANCH), Shaping(estimator=K1InReward())
CREDIT, RAGGED = Shaping(credit=Steer()), Shaping(planner=Dars())
WHOLE, FILTER = Shaping(credit=Pacs()), Shaping(filter=Mixed(), max_refills=1)
PROMPT = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
CORRECTED, SEQUENCE = {"use_bias_correction_kl": True}, {"importance_sampling_level": "sequence"}
NORMALISED = {"multi_objective_aggregation": "normalize_then_sum"}
PARTS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
CUT = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
DRAWN = {"make_drawer": transformers_rollouts()}
TOKEN_WEIGHTS = {"correction": Correction("token")}
VLLM = {"use_vllm": True, "_correction": Correction("token")}


def lora(**more: Any) -> LoraConfig:
    return LoraConfig(r=4, target_modules=["q_proj", "up_proj"], **more)


def reads(completions: list[Any], **_: Any) -> list[float]:
    return [0.0 for _ in completions]


vars(reads)[READS_ANSWER] = True


def trl(**changes: Any) -> Given:
    """A run with these settings of TRL."""
    return {"trl": changes}


def later(**changes: Any) -> Given:
    """A run that is given these attributes once it is set up, as no machine here has them."""
    return {"later": changes}


def problems(change: Callable[[Dataset], Any]) -> Given:
    return {"change": change}


# By row of the table: runs that have it, each with what is changed so that it has not.
CASES: dict[str, list[tuple[Given, Given]]] = {
    "no_kl": [
        ({"shaping": GUIDED} | trl(beta=0.0), trl(beta=0.04)),
        ({"shaping": Shaping(estimator=K2())} | trl(beta=0.0), trl(beta=0.04)),
        ({"shaping": GUIDED} | trl(beta=-0.1), trl(beta=0.1)),
    ],
    "corrected_estimator": [
        ({"shaping": Shaping(estimator=K2())} | trl(**CORRECTED), trl()),
        ({"shaping": K1} | trl(**CORRECTED), trl()),
    ],
    "ratios_of_sequences_and_guide": [
        ({"shaping": Shaping(guide=TOKEN)} | trl(**CORRECTED, **SEQUENCE), trl(**SEQUENCE)),
        ({"shaping": Shaping(guide=TOKEN)} | trl(**CORRECTED, **SEQUENCE), trl(**CORRECTED)),
    ],
    "cancelled_guide": [
        ({"shaping": GUIDED} | trl(**CORRECTED), trl()),
        ({"shaping": GUIDED} | trl(**CORRECTED), {"shaping": Shaping(guide=TOKEN)}),
        (
            {"shaping": Shaping(guide=BRANCH, estimator=K2())},
            {"shaping": Shaping(guide=BRANCH, estimator=K1InReward())},
        ),
    ],
    "guide_over_vocabulary": [
        (
            {"shaping": Shaping(guide=BRANCH, estimator=ExactForwardKL())},
            {"shaping": Shaping(guide=BRANCH, estimator=SampledForwardKL())},
        )
    ],
    "equal_clamp": [({"shaping": Shaping(guide=BRANCH, clamp=(1.0, 1.0))}, {"shaping": GUIDED})],
    "moving_reference": [
        ({"shaping": GUIDED} | trl(sync_ref_model=True), trl()),
        ({"shaping": GUIDED} | trl(sync_ref_model=True), {"shaping": Shaping(guide=TOKEN)}),
    ],
    "moved_adapter": [
        ({"peft_config": lora(init_lora_weights="pissa")}, {"peft_config": lora()}),
        ({"peft_config": lora(init_lora_weights="olora")}, trl(beta=0.0)),
        ({"peft_config": lora(init_lora_weights=False)}, {"reference": True}),
        ({"peft_config": PROMPT}, {"reference": True}),
    ],
    "fixed_reference": [({"reference": True} | trl(sync_ref_model=True), trl())],
    "ratios_of_sequences": [
        ({"shaping": shaping} | trl(**SEQUENCE), trl()) for shaping in (CREDIT, K1, WHOLE)
    ],
    "off_policy_mask": [
        ({"shaping": shaping} | trl(off_policy_mask_threshold=0.1), trl())
        for shaping in (CREDIT, K1)
    ],
    "tokens_without_credit": [({"shaping": K1} | trl(top_entropy_quantile=0.3), trl())],
    "cispo_bound": [({"shaping": GUIDED} | trl(loss_type="cispo"), trl(epsilon_high=5.0))],
    "scale_of_batch": [
        ({"shaping": RAGGED} | trl(scale_rewards="batch"), trl()),
        ({"shaping": Shaping(advantage=Centred())} | trl(scale_rewards="batch"), trl()),
    ],
    "normalised_first": [
        ({"shaping": shaping} | trl(**NORMALISED), trl())
        for shaping in (RAGGED, FILTER, Shaping(advantage=Centred()))
    ],
    "tools": [
        ({"shaping": CREDIT} | later(tools=[len]), later(tools=[])),
        ({"shaping": CREDIT} | later(tools=[len]), {"shaping": WHOLE}),
    ],
    "ragged_groups": [
        ({"shaping": dataclasses.replace(WHOLE, planner=Dars())}, {"shaping": WHOLE})
    ],
    "cut_groups": [({"shaping": WHOLE} | trl(**CUT), trl(**PARTS))],
    "partial_bonus": [
        ({"shaping": RAGGED} | trl(use_adaptive_entropy=True), trl()),
        ({"shaping": RAGGED} | trl(entropy_coef=0.1, top_entropy_quantile=0.3), trl()),
        (
            trl(use_adaptive_entropy=True)
            | later(_shares=SimpleNamespace(sharing=2, group=4)),
            later(),
        ),
    ],
    "empty_micro_batches": [
        ({"shaping": RAGGED} | trl(**PARTS, loss_type="bnpo"), trl(loss_type="bnpo")),
        ({"shaping": RAGGED} | trl(**PARTS, entropy_coef=0.1), trl(**PARTS)),
    ],
    "unequal_draws_of_a_server": [
        (
            {"shaping": RAGGED} | later(use_vllm=True, vllm_mode="server"),
            later(use_vllm=True, vllm_mode="colocate"),
        )
    ],
    "no_guidance": [
        (
            {"shaping": Shaping(planner=GuidedRetry())},
            problems(lambda data: data.add_column("guided_prompt", data["prompt"])),
        )
    ],
    "two_drawers": [
        (DRAWN | trl(use_transformers_continuous_batching=True), {"make_drawer": None}),
        (DRAWN | {"rollout_func": print}, {"make_drawer": None}),
    ],
    "generation_of_trl": [
        (DRAWN | trl(repetition_penalty=1.1), trl()),
        (DRAWN | trl(generation_kwargs={"num_beams": 2}), {"make_drawer": None}),
    ],
    "virtual_tokens": [(DRAWN | {"peft_config": PROMPT} | trl(beta=0.0), {"peft_config": lora()})],
    "filtered_correction": [
        (DRAWN | TOKEN_WEIGHTS | trl(**cut), trl())
        for cut in ({"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1})
    ],
    "two_corrections": [(later(**VLLM), later(**VLLM, vllm_importance_sampling_correction=False))],
    "no_sampler": [(TOKEN_WEIGHTS, DRAWN), (TOKEN_WEIGHTS, {"correction": None})],
    "other_template": [
        ({"reward_funcs": [reads]} | trl(chat_template_kwargs={"short": True}), trl()),
    ],
    "nothing_to_learn": [({"frozen": True}, {"frozen": False})],
    "images": [
        (problems(lambda data: data.add_column("image", [None] * len(data))), problems(lambda d: d))
    ],
    "few_problems": [
        (problems(lambda data: data.select(range(3))), problems(lambda data: data.select(range(4))))
    ],
    "filtered_stream": [
        (
            {"shaping": FILTER} | problems(lambda data: data.to_iterable_dataset()),
            {"shaping": Shaping(planner=UnsolvedOnly())},
        )
    ],
    "unaligned_saves": [
        (
            trl(save_strategy="steps", save_steps=5, num_iterations=2),
            trl(save_strategy="steps", save_steps=6, num_iterations=2),
        )
    ],
}  # fmt: skip

LOOKED_AT = """
adaptive entropy: entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target
losses, which weight or clip each token's advantage or each completion: epsilon delta
    sapo_temperature_neg sapo_temperature_pos vespo_k_pos vespo_lambda_pos vespo_k_neg
    vespo_lambda_neg router_aux_loss_coef
what is compared with the reference in one way: temperature cast_lm_head_to_fp32 disable_dropout
    ref_model_mixup_alpha ref_model_sync_steps
which completions there are: num_generations num_generations_eval max_completion_length
    generation_batch_size shuffle_dataset pad_to_multiple_of mask_truncated_completions
    max_tool_calling_iterations reward_weights
how they are drawn: vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex
    vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port
    vllm_gpu_memory_utilization vllm_max_model_length vllm_tensor_parallel_size
    vllm_importance_sampling_mode vllm_importance_sampling_clip_max
    vllm_importance_sampling_clip_min vllm_importance_sampling_cap use_transformers_paged
    transformers_continuous_batching_config ds3_gather_for_generation
what is loaded and logged: model_init_kwargs trust_remote_code log_completions log_multimodal
    num_completions_to_print log_unique_prompts log_completions_hub_repo
"""
"""Settings of GRPOConfig that leave guides, estimators and credit rules their effect."""

FLAT = [(name, *case) for name, cases in CASES.items() for case in cases]


@pytest.fixture
def build(parent: Path, tmp_path: Path) -> Callable[..., Any]:
    """A trainer of a run that is `given`, with what `mended` changes."""

    def trainer(given: Given, mended: Given | None = None) -> Any:
        more = given | (mended or {})
        args = {
            "beta": 0.04, "use_bias_correction_kl": False, "max_steps": 2,
            "per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 12,
            "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False,
        } | more.pop("trl", {})  # fmt: skip
        model = load_model(parent).requires_grad_(not more.pop("frozen", False))
        if more.get("reference"):
            more["reference"] = load_model(parent)
        data = more.pop("change", lambda data: data)(rl.prompt_dataset(SUMS))
        late = more.pop("later", {})
        named = {"reward_funcs": [odd_sum], "processing_class": load_tokenizer(parent)}
        made = SageTrainer(
            model=model, args=GRPOConfig(str(tmp_path), **args), train_dataset=data, **named | more
        )
        for name, value in late.items():
            for holder in (made, made.args):
                setattr(holder, name, value)
        if late:
            settings.check(made)
        return made

    return trainer


def rows_of(build: Callable[..., Any], *run: Given) -> set[str]:
    """The rows of the table that setting up a run refuses or warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            build(*run)
        except settings.Refused as refused:
            return {refused.row}
    return {one.message.row for one in caught if isinstance(one.message, settings.WithoutEffect)}


@pytest.mark.parametrize(
    ("name", "given", "mended"), FLAT, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(FLAT)]
)
def test_a_row_is_found_and_mended(
    build: Callable[..., Any], name: str, given: Given, mended: Given
) -> None:
    if TABLE[name].refused:
        with pytest.raises(settings.Refused) as refused:
            build(given)
        assert refused.value.row == name
        assert TABLE[name].remedy in str(refused.value)
    else:
        assert rows_of(build, given) == {name}
    assert name not in rows_of(build, given, mended)


def test_each_row_has_a_case_and_stands_in_the_docs() -> None:
    assert CASES.keys() == TABLE.keys()
    rows = [
        f"| {row.setting} | {row.beside} | {row.effect} | {row.remedy} | "
        f"{'refused' if row.refused else 'warned of'} |"
        for row in TABLE.values()
    ]
    written = (ROOT / "docs/method.md").read_text(encoding="utf-8").splitlines()
    start = written.index(rows[0])
    assert written[start : start + len(rows) + 1] == [*rows, ""]


def test_every_setting_of_trl_was_looked_at() -> None:
    inherited = {one.name for one in dataclasses.fields(TrainingArguments)}
    own = {one.name for one in dataclasses.fields(GRPOConfig)} - inherited
    said = " ".join(f"{row.setting} {row.beside} {row.remedy}" for row in TABLE.values())
    named = set(re.findall(r"[a-z_0-9]+", said)) & own
    looked_at = set(re.findall(r"[a-z_0-9]+", LOOKED_AT)) & own
    assert not named & looked_at
    assert named | looked_at == own


def test_without_shaping_nothing_is_said(build: Callable[..., Any]) -> None:
    usual = trl(use_bias_correction_kl=True, **SEQUENCE, off_policy_mask_threshold=0.1)
    assert rows_of(build, usual) == set()


def test_a_run_is_resumed_between_generations_alone(build: Callable[..., Any]) -> None:
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4, "learning_rate": 1e-3}
    given = trl(**saving, per_device_train_batch_size=8, steps_per_generation=2)
    whole = build(given)
    whole.train()
    folder = Path(whole.args.output_dir)
    with pytest.raises(settings.Refused) as refused:
        build(given).train(resume_from_checkpoint=str(folder / "checkpoint-1"))
    assert refused.value.row == "unaligned_saves"
    resumed = build(given)
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert resumed.state.global_step == 4
