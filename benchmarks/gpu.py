"""What only a GPU can show, in parts: `make test-gpu` runs its tests, in nine minutes at most.

    python -m benchmarks.gpu [--out FOLDER] [--seconds 540] [--only tests speeds NAME ...]
    python -m benchmarks.gpu --keep FOLDER

`tests`: pytest's, marked `gpu` or `vllm`: vLLM's draws against the trainer, guides, sleep, memory.
`speeds`: tokens a second and memory for three sizes with random weights, the same step by TRL with
its own vLLM beside it, and a bare call of vLLM.

Each part is a process of its own, and `parts.json` in FOLDER is written anew after each: a run that
is cut off leaves what it has shown. `--keep` hands the speeds in it to `sage-rlvr plan`. Without a
GPU it says so and exits with NO_GPU, unless `--tiny` asks for tiny sizes; without vLLM transformers
draws then. That tests the parts and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOTrainer

import sage
from sage.policies import load_model, load_tokenizer, save_checkpoint, train_tokenizer
from sage.problems.record import Problem
from sage.prompting import prompt_ids
from sage.runtime.files import write_text_atomic
from sage.runtime.manifest import git_commit, hardware, versions
from sage.sampling.interface import Completion, Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import RL, Algorithm, LoRA, Sampling
from sage.tasks import Grader
from sage.tools import gpus
from sage.training import rl
from sage.training.trainer import SageTrainer

CUDA, VLLM = torch.cuda.is_available(), find_spec("vllm") is not None
DEVICE, PRECISION = ("cuda", "bfloat16") if CUDA else ("cpu", "float32")
ENGINE, DTYPE = "vllm" if VLLM else "transformers", getattr(torch, PRECISION)

ROOT = Path(sage.__file__).resolve().parents[1]
NO_GPU, OUT_OF_TIME = 3, 124
"""Exit statuses besides those of pytest."""

TINY = gpus.Shape(256, 512, 2, 4, 2, 300)
LORA, TASKS = LoRA(rank=8, alpha=16), [f"{a}+{b}" for a in range(10) for b in range(10)]
TOKENS, ROWS = (1024, 64) if CUDA else (16, 8)  # of a completion that is timed; of a draw
TOLERANCE = 0.05 if CUDA else 1e-3  # nats, of the mean gap of sampler and trainer
SECONDS, LEAST = 540.0, 15.0  # that all parts may take; without so many left none is begun

Found = dict[str, Any]
"""What a part has measured; `ok` says whether it holds, None where it holds nothing to a limit."""


def shape_of(shape: str) -> gpus.Shape:
    """Qwen2.5's of that size; without a GPU a tiny one."""
    return gpus.SHAPES[f"Qwen2.5-{shape}"] if CUDA else TINY


def work_of(stage: str, engine: str, shape: str, rows: int) -> Found:
    """What a speed is of, as the plan's data say it."""
    found: Found = {"stage": stage, "engine": engine, "precision": PRECISION, "rows": rows}
    return found | {"parameters": shape_of(shape).parameters}


def build(folder: Path, shape: str) -> Path:
    """A Qwen2 checkpoint with random weights."""
    own = shape_of(shape)
    sizes = {key: getattr(own, name) for name, key in gpus.KEYS.items()}
    tokenizer = train_tokenizer(TASKS, 300)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    more: Found = {"tie_word_embeddings": own.tied, "dtype": PRECISION, **sizes, **ends}
    config = Qwen2Config(bos_token_id=None, max_position_embeddings=4096, **more)
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = Qwen2ForCausalLM._from_config(config, dtype=DTYPE)
    model.generation_config = GenerationConfig(**ends)
    save_checkpoint(model, tokenizer, folder)
    del model
    torch.cuda.empty_cache()  # for vLLM
    return folder


def open_sampler(base: Path, engine: str = ENGINE) -> Any:
    """The project's sampler of a checkpoint."""
    tokenizer = load_tokenizer(base)
    if engine == "transformers":
        return TransformersSampler.from_model(load_model(base, DTYPE).to(DEVICE), tokenizer, ROWS)
    own: Found = {"tensor_parallel": 1, "progress": False, "longest": 2048 if CUDA else 128}
    own["limits"] = {"gpu_memory_utilization": 0.4} if CUDA else {}
    kind = import_module("sage.sampling.vllm_engine").VllmSampler
    return kind(base, tokenizer, base, DEVICE, PRECISION, ROWS, None, **own)


def requests_of(base: Path) -> list[Request]:
    tokenizer = load_tokenizer(base)
    return [Request(tuple(prompt_ids(tokenizer, TASKS[i])), f"gpu/{i}") for i in range(ROWS)]


def draw(sampler: Any, base: Path, tokens: int) -> list[Completion]:
    """A completion for each of `requests_of` the base, with log-probs."""
    sampling = Sampling(temperature=1.0, max_tokens=tokens, stop=[])
    return sampler.sample(requests_of(base), sampling, log_probs=True)


def memory() -> Found:
    """GiB: the peak of this process and of torch on the GPU, and what the GPU holds now in all."""
    found = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
    if CUDA:
        free, total = torch.cuda.mem_get_info()
        found |= {"torch": torch.cuda.max_memory_allocated() / 2**30, "gpu": (total - free) / 2**30}
    return {name: round(size, 2) for name, size in found.items()}


def of_trl(**arguments: Any) -> GRPOTrainer:
    """TRL's trainer with the vLLM that it opens, and none of what this project adds."""
    own = ("shaping", "stop_texts", "reference", "micro_batches", "make_drawer", "correction")
    return GRPOTrainer(**{k: v for k, v in arguments.items() if k not in (*own, "trims")})


def trained(base: Path, steps: int, tokens: int, engine: str, sleeps: bool) -> list[Found]:
    """The log of GRPO with an adapter and 8 completions a step, rewarded at random. `engine` is
    transformers, vllm, or trl: TRL's own trainer with its vLLM."""
    content = {"problems": "sums", "steps": steps, "prompts_per_step": 1, "rollouts": 8}
    content |= {"sampling": {"temperature": 1.0, "max_tokens": tokens, "stop": []}}
    content |= {"engine": engine.replace("trl", "vllm"), "vllm_sleep": sleeps, "lora": LORA}
    content |= {"learning_rate": 1e-3, "schedule": "constant", "warmup_ratio": 0.0}
    content |= {"weight_decay": 0.0, "kl_coefficient": 0.05, "precision": PRECISION}
    settings = RL.model_validate(content | {"gradient_checkpointing": True})
    method = {"title": "x", "loss": "grpo", "kl": "reverse", "estimator": "k3"}
    algorithm = Algorithm.model_validate(method | {"rewards": ["random"]})
    config = rl.grpo_config(settings, algorithm, 1, DEVICE, base.with_name("scratch"))
    config.save_strategy = "no"
    if engine == "trl":
        config.use_vllm, config.vllm_mode = True, "colocate"
        config.vllm_gpu_memory_utilization, config.vllm_max_model_length = 0.3, 40 + tokens
        config.vllm_enable_sleep_mode = sleeps
        config.vllm_importance_sampling_mode = "token_truncate"
    problems = [Problem(task, task, "0", "math", "1", "test", "0") for task in TASKS]
    kind: Any = of_trl if engine == "trl" else SageTrainer
    trainer = rl.build_trainer(kind, base, problems, settings, algorithm, config, Grader())
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def drawing_speed(shape: str, engine: str, folder: Path) -> Found:
    """Tokens a second after a first draw."""
    base = build(folder / "base", shape)
    sampler = open_sampler(base, engine)
    draw(sampler, base, 8)
    start = time.perf_counter()
    speed = sum(one.n_tokens for one in draw(sampler, base, TOKENS // 2))
    speed /= time.perf_counter() - start
    found: Found = {"ok": None, "tokens_per_second": round(speed, 1), "memory": memory()}
    return found | {"work": work_of("sample", engine, shape, ROWS)}


def bare_speed(folder: Path) -> Found:
    """Tokens a second of our sampler over those of a bare `LLM.generate` with the same seeds."""
    if not VLLM:
        return {"ok": None, "skipped": "vLLM is not installed"}
    from vllm import SamplingParams

    from sage.sampling.vllm_engine import seed_of

    base, tokens, seconds = build(folder / "base", "1.5B"), TOKENS // 2, list[float]()
    sampler, requests = open_sampler(base), requests_of(base)
    asked = [{"prompt_token_ids": list(one.prompt_ids)} for one in requests]
    each = {"temperature": 1.0, "max_tokens": tokens, "logprobs": 0}
    settings = [SamplingParams(seed=seed_of(one.stream), **each) for one in requests]
    for _ in range(3):  # the first round is a warm-up
        start = time.perf_counter()
        ours = sum(one.n_tokens for one in draw(sampler, base, tokens))
        middle = time.perf_counter()
        outputs = sampler._llm.generate(asked, settings, use_tqdm=False)
        theirs = sum(len(output.outputs[0].token_ids) for output in outputs)
        seconds.append((time.perf_counter() - middle) / theirs * ours / (middle - start))
    return {"ok": None, "ours_over_bare": [round(one, 3) for one in seconds[1:]]}


def step_speed(shape: str, engine: str, sleeps: bool, folder: Path) -> Found:
    """Seconds and tokens a second of steps after the first, 8 completions each, and memory."""
    log = trained(build(folder / "base", shape), 3, TOKENS, engine, sleeps)
    seconds = [round(entry["step_time"], 3) for entry in log[1:]]
    tokens = sum(8 * entry["completions/mean_length"] for entry in log[1:])
    gaps = [entry["sampler/gap_mean"] for entry in log if "sampler/gap_mean" in entry]
    found: Found = {"ok": max(gaps) < TOLERANCE if gaps else None, "gap_nats": gaps}
    found |= {"seconds_of_steps": seconds, "tokens_per_second": round(tokens / sum(seconds), 1)}
    own = engine != "trl" and not sleeps
    return found | {"memory": memory()} | ({"work": work_of("rl", engine, shape, 8)} if own else {})


def tested(arguments: Sequence[str], folder: Path) -> Found:
    """The outcome of each of pytest's tests, with what it measured (`record_property`)."""
    report, options = folder / "tests.xml", ["-q", "-s", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    rows: Found = {}
    for case in ElementTree.parse(report).iter("testcase") if report.is_file() else ():
        faults = [part for part in case if part.tag in ("failure", "error", "skipped")]
        row = {"outcome": faults[0].tag if faults else "passed", "seconds": case.get("time")}
        row["measured"] = {one.get("name"): one.get("value") for one in case.iter("property")}
        row |= {"reason": (faults[0].get("message") or "")[:300]} if faults else {}
        rows[str(case.get("name"))] = row
    return {"ok": done.returncode == 0, "tests": rows}


# What is measured, what matters most first.
_SHAPES = "tests/training/test_gpu_shapes.py"
_OF_PYTEST = (
    ("guide", "tests/training/test_gpu.py", "guide"),
    *(("1.5b", _SHAPES, "not 7b"), ("7b", _SHAPES, "7b")),
    ("training", "tests/training/test_gpu.py", "not guide"),
    ("vllm", "tests/sampling/test_vllm.py", ""),
    ("vllm_training", "tests/training/test_vllm_training.py", ""),
)
TESTS: dict[str, Callable[[Path], Found]] = {
    f"tests_{name}": partial(tested, ["-m", "gpu or vllm", file, "-k", word])
    for name, file, word in _OF_PYTEST
}
SPEEDS: dict[str, Callable[[Path], Found]] = {}
for _shape in ("1.5B", "0.5B", "7B"):
    SPEEDS[f"draw_{_shape}"] = partial(drawing_speed, _shape, ENGINE)
    SPEEDS[f"step_{_shape}"] = partial(step_speed, _shape, ENGINE, False)
    SPEEDS[f"step_trl_{_shape}"] = partial(step_speed, _shape, "trl", False)
SPEEDS["step_asleep_1.5B"] = partial(step_speed, "1.5B", ENGINE, True)
SPEEDS["draw_transformers_1.5B"] = partial(drawing_speed, "1.5B", "transformers")
SPEEDS["draw_bare_1.5B"] = bare_speed
PARTS = TESTS | SPEEDS
GROUPS = {"tests": [*TESTS], "speeds": [*SPEEDS]}


def ended(command: Sequence[str], seconds: float, **more: Any) -> int:
    """The status of a command, or OUT_OF_TIME after `seconds`; what it started is killed then."""
    with subprocess.Popen(command, start_new_session=True, **more) as started:
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def one_part(name: str, folder: Path) -> Found:
    """What a part finds, or why it fails."""
    if "trl" in name and not (CUDA and VLLM):
        return {"ok": None, "skipped": "TRL's own vLLM needs a GPU"}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return PARTS[name](folder)
    except BaseException as error:
        return {"ok": False, "error": repr(error)[:600], "where": traceback.format_exc()[-1500:]}


def measure(names: Sequence[str], out: Path, seconds: float, each: float) -> Found:
    """The table of parts, run for at most `seconds` together, those that are no tests for at most
    `each` alone; kept in `out`."""
    table: Found = {"commit": git_commit(), "hardware": hardware(), "versions": versions()}
    parts, end = table.setdefault("parts", {}), time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, (out / "parts.log").open("a") as log:
        for name in names:
            start, place = time.monotonic(), Path(folder) / f"{name}.json"
            parts[name] = {"ok": None, "skipped": "no time left"}
            if (left := min(seconds if name in TESTS else each, end - start)) > LEAST:
                own = ["-m", "benchmarks.gpu", "--out", str(place), "--part", name]
                command = [sys.executable, *own]
                print(f"== {name}", file=log, flush=True)
                status = ended(command, left, stdout=log, stderr=log)
                lost = {"ok": False, "error": f"ended with status {status}: see parts.log"}
                parts[name] = json.loads(place.read_text("utf-8")) if place.is_file() else lost
                parts[name]["seconds"] = round(time.monotonic() - start, 1)
            rest = {key: value for key, value in parts[name].items() if key != "tests"}
            print(f"{name}: {json.dumps(rest)[:400]}", flush=True)
            for test, row in parts[name].get("tests", {}).items():
                print(f"  {test}: {row}", flush=True)
            write_text_atomic(out / "parts.json", json.dumps(table, indent=1) + "\n")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if no part failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    out = Path("results/gpu")
    parser.add_argument("--out", type=Path, default=out, help="folder for parts.json")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of all parts at most")
    parser.add_argument("--each", type=float, default=150.0, help="of a speed at most")
    parser.add_argument("--only", nargs="*", default=["tests"], choices=[*GROUPS, *PARTS])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes where there is no GPU")
    parser.add_argument("--keep", type=Path, help="a folder with parts.json: give it to the plan")
    parser.add_argument("--part", choices=[*PARTS], help=argparse.SUPPRESS)  # in its own process
    options = parser.parse_args(arguments)
    if options.part:
        found = one_part(options.part, options.out.with_suffix(""))
        write_text_atomic(options.out, json.dumps(found))
        sys.stdout.flush()
        os._exit(0)  # threads of vLLM and of the grader are not waited for
    if options.keep:
        table = json.loads((options.keep / "parts.json").read_text(encoding="utf-8"))
        entries = map(json.dumps, gpus.with_parts(gpus.measured_speeds(), table))
        write_text_atomic(gpus.SPEEDS, "[\n " + ",\n ".join(entries) + "\n]\n")
        return 0
    if not (CUDA or options.tiny):
        print(f"No GPU: torch {torch.__version__} sees no CUDA device here, so nothing was run.")
        return NO_GPU
    names = [name for one in options.only for name in GROUPS.get(one, [one])]
    table = measure(names, options.out, options.seconds, options.each)
    return int(any(part["ok"] is False for part in table["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())
