"""Models of a study, and what is done to them: SFT, RL, sampling. `bases` has their origins."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from sage.fields import (
    Distinct,
    Faults,
    Name,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Seed,
    Share,
    Strict,
    about,
    known,
)
from sage.study.bases import Base, ScratchBase, SharedBase
from sage.study.tuning import SFT, LoRA, Optimizer, Precision
from sage.study.watch import Watch

UNCOUNTED = ("title", "checkpoint_every", "watch")
"""Settings that change no result."""

Engine = Literal["transformers", "vllm"]


class Sampling(Strict):
    """How completions are sampled, in `rl` and in `evaluation`.

    The settings are applied in this order: temperature, top-k, top-p, min-p.
    """

    temperature: Annotated[
        PositiveFloat, about("logits are divided by it", unit="factor", trl="temperature")
    ]
    top_p: Annotated[
        float,
        Field(gt=0.0, le=1.0),
        about(
            "the smallest set of tokens with this probability is kept; 1 keeps all",
            unit="probability",
            trl="top_p",
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        Field(ge=0),
        about("the k most likely tokens are kept; 0 keeps all", unit="tokens", trl="top_k"),
    ] = 0
    min_p: Annotated[
        Share,
        about(
            "tokens are kept whose probability is at least this share of the largest; 0 keeps all",
            unit="share, 0 to 1",
            trl="min_p",
        ),
    ] = 0.0
    max_tokens: Annotated[
        Positive, about("longest completion", unit="tokens", trl="max_completion_length")
    ]
    stop: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        about("a completion ends after the first of these texts that it writes"),
    ] = Field(default_factory=lambda: ["</SOLUTION>"])


class RL(Strict):
    """Reinforcement learning with verifiable rewards (the paper's Table 8).

    One generation of rollouts serves `steps_per_generation` × `iterations` optimizer steps.
    """

    problems: Annotated[Name, known("set"), about("the problem set to train on")]
    steps: Annotated[Positive, about("length of training", unit="optimizer steps", trl="max_steps")]
    prompts_per_step: Annotated[Positive, about("different problems in a step", unit="problems")]
    rollouts: Annotated[
        int,
        Field(ge=2),
        about(
            "completions of each problem in a step: the group",
            unit="completions",
            trl="num_generations",
        ),
    ]
    micro_batches: Annotated[
        Positive,
        about(
            "parts of a step over which its gradient is accumulated; more of them need less "
            "memory. Several GPUs share them. The loss `bnpo` averages over the tokens of one part",
            unit="parts",
            trl="gradient_accumulation_steps",
        ),
    ] = 1
    steps_per_generation: Annotated[
        Positive,
        about(
            "optimizer steps that one generation of rollouts is split over", unit="optimizer steps"
        ),
    ] = 1
    iterations: Annotated[
        Positive,
        about("how often each rollout is trained on", unit="passes", trl="num_iterations"),
    ] = 1
    sampling: Annotated[Sampling, about("how rollouts are sampled")]
    engine: Annotated[
        Engine,
        about(
            "what samples rollouts. `vllm` shares each GPU with training and needs the extra of "
            "that name; it holds the base and is handed the adapter, and with `lora: null` TRL "
            "hands over all weights each step",
            trl="use_vllm",
        ),
    ] = "transformers"
    drawing_copy: Annotated[
        bool | None,
        about(
            "whether `transformers` samples rollouts from a copy of the weights, in which the "
            "adapter is merged in float32: fastest, at 4 bytes a weight (2 in bfloat16 without an "
            "adapter). With `false` it samples with the adapter beside each layer. `null` copies "
            "in float32 and not in bfloat16. Only the architectures of Llama and Qwen2 can be "
            "copied"
        ),
    ] = None
    vllm_memory: Annotated[
        Share | None,
        about(
            "what vLLM takes of each GPU while it samples; `null` computes it from the sizes of "
            "the GPU and the model and from the length of completions",
            unit="share, 0 to 1",
            trl="vllm_gpu_memory_utilization",
        ),
    ] = None
    vllm_sleep: Annotated[
        bool | None,
        about(
            "whether vLLM gives its GPU memory back while the policy is trained. Going to sleep "
            "and waking take seconds: with `null` it stays awake once the free memory is one and a "
            "half times what training has taken so far",
            trl="vllm_enable_sleep_mode",
        ),
    ] = None
    correction: Annotated[
        Literal["none", "token"] | None,
        about(
            "`token` weights each token's advantage by the trainer's probability over the "
            "sampler's (truncated importance sampling); the KL term is not weighted. `null` takes "
            "`token` with `vllm`, else `none`"
        ),
    ] = None
    correction_cap: Annotated[
        PositiveFloat,
        about("the largest such weight", unit="ratio", trl="vllm_importance_sampling_clip_max"),
    ] = 3.0
    learning_rate: Annotated[
        PositiveFloat, about("peak of AdamW's learning rate", unit="rate", trl="learning_rate")
    ]
    schedule: Annotated[
        Literal["linear", "constant", "constant_with_warmup"],
        about(
            "linear: up over the warm-up, then down to 0; constant: the peak from the first step "
            "on, without a warm-up; constant_with_warmup: up, then the peak",
            trl="lr_scheduler_type",
        ),
    ]
    warmup_ratio: Annotated[
        Share,
        about(
            "linear rise to the peak; `constant` has none",
            unit="share of `steps`, 0 to 1",
            trl="warmup_steps",
        ),
    ]
    weight_decay: Annotated[
        NonNegativeFloat, about("AdamW's weight decay", unit="rate", trl="weight_decay")
    ]
    max_grad_norm: Annotated[
        PositiveFloat,
        about("longer gradients are scaled down to it", unit="norm", trl="max_grad_norm"),
    ] = 1.0
    kl_coefficient: Annotated[
        PositiveFloat,
        about("weight of the KL term; a method may set its own", unit="per nat", trl="beta"),
    ]
    lora: Annotated[LoRA | None, about("the adapter; `null` trains all weights")]
    precision: Precision = "float32"
    gradient_checkpointing: Annotated[
        bool,
        about(
            "whether activations are recomputed: less memory, more time",
            trl="gradient_checkpointing",
        ),
    ] = False
    optimizer: Optimizer = "adamw"
    checkpoint_every: Annotated[
        Positive,
        about(
            "how often a checkpoint is kept, from which an interrupted run continues; a multiple "
            "of `steps_per_generation` × `iterations`",
            unit="optimizer steps",
            trl="save_steps",
        ),
    ] = 100
    watch: Annotated[Watch, about("when training counts as gone wrong, and what ends it")] = Field(
        default_factory=Watch
    )

    @model_validator(mode="after")
    def _divisible(self) -> RL:
        if self.prompts_per_step * self.rollouts % self.micro_batches:
            raise ValueError(
                f"micro_batches {self.micro_batches} must divide the completions of a step, "
                f"prompts_per_step x rollouts = {self.prompts_per_step * self.rollouts}"
            )
        return self

    @model_validator(mode="after")
    def _checkpoints_between_generations(self) -> RL:
        served = self.steps_per_generation * self.iterations
        if self.checkpoint_every < self.steps and self.checkpoint_every % served:
            raise ValueError(
                f"checkpoint_every {self.checkpoint_every} must be a multiple of the steps that a "
                f"generation serves, steps_per_generation x iterations = {served}: a checkpoint "
                "does not hold rollouts, so a run that goes on within a generation would differ"
            )
        return self

    @model_validator(mode="after")
    def _no_dropout(self) -> RL:
        if self.lora and self.lora.dropout:
            raise ValueError(
                f"lora.dropout {self.lora.dropout} must be 0 in RL: rollouts, old log-probs and "
                "the signals of a guide come from passes that would each drop other units"
            )
        return self

    def micro_batches_each(self, processes: int) -> int:
        """How many micro-batches of a step each of `processes` runs.

        They share the micro-batches out, or each micro-batch where these are fewer. Raises
        ValueError if that leaves a remainder.
        """
        parts = max(self.micro_batches, processes)
        completions = self.prompts_per_step * self.rollouts
        if parts % self.micro_batches or parts % processes or completions % parts:
            raise ValueError(
                f"{processes} GPUs (job.gpus) cannot share a step evenly: of micro_batches "
                f"{self.micro_batches} and {processes} one must be a multiple of the other, and "
                f"prompts_per_step x rollouts = {completions} a multiple of both"
            )
        return parts // processes


class Draws(Strict):
    """How many completions of each problem are drawn, and how."""

    samples: Annotated[
        Positive,
        about(
            "for each problem and evaluation seed; pass@k goes up to k = samples × seeds",
            unit="completions",
        ),
    ]
    seeds: Annotated[
        list[Seed],
        Field(min_length=1),
        Distinct,
        about("evaluation seeds; with each, `samples` more completions are drawn", unit="integers"),
    ]
    sampling: Annotated[Sampling, about("how completions are sampled")]
    engine: Annotated[Engine, about("what samples them; `vllm` needs the extra of that name")] = (
        "transformers"
    )
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        about("number format of weights and activations; the 16-bit formats are for GPUs"),
    ] = "float32"
    batch_size: Annotated[
        Positive | None,
        about(
            "largest number sampled together; fewer where memory is short, and with `null` as "
            "many as memory holds. It changes speed and memory, not the random numbers",
            unit="completions",
        ),
    ] = None
    shard_size: Annotated[
        Positive,
        about(
            "how many are written to disk at once: the most an interrupted job can lose. It "
            "changes no result",
            unit="completions",
        ),
    ] = 1024
    merge_adapter: Annotated[
        bool,
        about(
            "whether an adapter is merged into the weights, in float32, and these are then rounded "
            "to `dtype`: less work for each token. By default that is done with `transformers` in "
            "float32 alone; 16 bits round small changes of a weight away"
        ),
    ] = False
    batch_invariant: Annotated[
        bool,
        about(
            "whether vLLM uses kernels whose roundings do not depend on what is sampled together: "
            "slower, and for GPUs of compute capability 9.0 or newer"
        ),
    ] = False


class Evaluation(Draws):
    """How much is sampled for the tables and figures, and how, and what they show of it."""

    primary_k: Annotated[
        Positive,
        about(
            "k of the coverage that tables show and claims are about: a power of two, at most "
            "`samples` and, above 1, at most half of all samples, so that pass@k is no single draw",
            unit="samples",
        ),
    ]
    bootstrap: Annotated[
        int, Field(ge=100), about("resamples for each 95 % interval", unit="resamples")
    ] = 10_000

    def draws(self) -> dict[str, Any]:
        """The settings of Draws."""
        return self.model_dump(mode="json", include=set(Draws.model_fields))

    def decisive(self) -> dict[str, Any]:
        """The settings that samples and grades depend on: those of Draws but for speed.

        `merge_adapter` counts where it is on: samples drawn before there was such a setting stay.
        """
        of_speed = ("batch_size", "shard_size", *(() if self.merge_adapter else ("merge_adapter",)))
        return {key: value for key, value in self.draws().items() if key not in of_speed}

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        k, drawn = self.primary_k, self.samples * len(self.seeds)
        if k & (k - 1):
            raise ValueError(f"primary_k {k} is not a power of two, for which pass@k is measured")
        if k > self.samples or 1 < k > drawn // 2:
            raise ValueError(
                f"primary_k {k} needs at least {k} samples of each evaluation seed and {2 * k} in "
                f"all; here they are {self.samples} and {drawn}"
            )
        return self


class Job(Strict):
    """What a job of this model asks of the machine: SFT, RL, sampling, and exhibits that load it.

    On a cluster, the second try of a job gets twice the memory and time, the third three times.
    """

    gpus: Annotated[
        int, Field(ge=0), about("GPUs of a job; on a cluster all on one node", unit="devices")
    ] = 0
    memory_gb: Annotated[
        Positive,
        about(
            "host memory for each GPU, or of a job without any; `snakemake plan --cores 1` shows "
            "what runs have used",
            unit="GB",
        ),
    ] = 4
    hours: Annotated[Positive, about("longest running time", unit="hours")] = 4
    training: Annotated[
        PositiveFloat | None,
        about(
            "speed of RL and SFT; `snakemake plan --cores 1` uses it until a run has been measured",
            unit="tokens per second",
        ),
    ] = None
    sampling: Annotated[
        PositiveFloat | None,
        about("speed of sampling, for the same purpose", unit="tokens per second"),
    ] = None

    @property
    def host_memory_gb(self) -> int:
        """Host memory of a job, in GB."""
        return self.memory_gb * max(1, self.gpus)


class Model(Strict):
    """A model with all that is done to it, and the methods and benchmarks of its main table."""

    extends: Annotated[
        Name | None,
        about("another model of this study, or of the one that it extends; merged like studies"),
        Field(exclude=True),
    ] = None
    title: Annotated[str, about("its name in tables and figures")]
    base: Annotated[Base, about("where its weights come from")]
    sft: Annotated[
        SFT | None,
        about(
            "fine-tuning to the answer format. Its result is `base`, the start of "
            "every RL run; with `null` that is the base itself"
        ),
    ] = None
    rl: Annotated[
        RL | None,
        about(
            "settings of RL that all methods share; with `null` nothing is trained, and the tables "
            "show the base alone"
        ),
    ] = None
    algorithms: Annotated[
        list[Annotated[Name, known("algorithm")]],
        Distinct,
        about(
            "entries of `algorithms.yaml`: the methods in the model's tables, unless an exhibit "
            "names its own; none without `rl`"
        ),
    ] = Field(default_factory=list)
    benchmarks: Annotated[
        list[Annotated[Name, known("set")]],
        Field(min_length=1),
        Distinct,
        about(
            "problem sets to evaluate on, unless an exhibit names its own; not the set that RL "
            "trains on"
        ),
    ]
    seeds: Annotated[
        dict[
            Name,
            Annotated[list[Seed], Field(min_length=1), Distinct, about("seeds", unit="integers")],
        ],
        about(
            "training seeds of single methods, in place of the study's `seeds`: more for those "
            "that are to be compared",
            unit="integers",
        ),
    ] = Field(default_factory=dict)
    learning_rates: Annotated[
        dict[Name, PositiveFloat],
        about(
            "learning rates of single methods in place of `rl.learning_rate`, where each method "
            "was tuned",
            unit="rates",
        ),
    ] = Field(default_factory=dict)
    evaluation: Annotated[
        Evaluation | None, about("replaces the study's `evaluation` for this model")
    ] = None
    job: Annotated[Job, about("what its jobs ask of the machine")] = Field(default_factory=Job)

    @model_validator(mode="after")
    def _methods_need_rl(self) -> Model:
        if self.rl and not self.algorithms:
            raise Faults(
                ["algorithms: missing; name the methods to train, or leave rl out to train nothing"]
            )
        if self.algorithms and not self.rl:
            raise Faults(
                [
                    "rl: missing, but algorithms are trained by it; add it, or leave algorithms "
                    "out to evaluate the base alone"
                ]
            )
        return self

    @model_validator(mode="after")
    def _gpus_share_a_step(self) -> Model:
        if self.rl:
            self.rl.micro_batches_each(max(1, self.job.gpus))
        return self

    @model_validator(mode="after")
    def _tested_on_other_sets(self) -> Model:
        if self.rl and self.rl.problems in self.benchmarks:
            raise Faults(
                [f"benchmarks: {self.rl.problems!r} is what RL trains on; name another set"]
            )
        return self

    @model_validator(mode="after")
    def _tuned_once(self) -> Model:
        if self.sft and isinstance(self.base, SharedBase):
            raise Faults(["sft: a base taken from another model is tuned there; leave sft out"])
        return self

    @model_validator(mode="after")
    def _sft_has_examples(self) -> Model:
        if self.sft is None or self.sft.data is not None:
            return self
        if self.sft.corpus is None and not isinstance(self.base, ScratchBase):
            raise ValueError(
                "sft needs data or corpus: only a base made from scratch has a corpus of its own"
            )
        if self.sft.examples is None:
            raise ValueError("sft.examples is missing: a corpus has no end")
        return self
