"""Models of a study, and what is done to them: SFT, RL, sampling. `bases` has their origins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from sage.fields import (
    Distinct,
    Faults,
    Name,
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Seed,
    Share,
    Size,
    Strict,
    about,
    known,
)
from sage.problems.corpora import AnyCorpus
from sage.study.bases import Base, ScratchBase, SharedBase
from sage.study.watch import Watch

UNCOUNTED = ("title", "checkpoint_every", "watch")
"""Settings that change no result."""

Engine = Literal["transformers", "vllm"]

Precision = Annotated[
    Literal["float32", "bfloat16"],
    about("number format of the computation and of weights that are not trained", trl="bf16"),
]
Optimizer = Annotated[
    Literal["adamw", "adamw_8bit"],
    about("`adamw_8bit` needs bitsandbytes (the extra `gpu`)", trl="optim"),
]


class LoRA(Strict):
    """Low-rank adapters on the attention and MLP projections, in `sft` and in `rl`."""

    rank: Size
    """rank of the update [dimensions; TRL: lora_r]"""
    alpha: Positive
    """the update is scaled by alpha / rank [integer; TRL: lora_alpha]"""


class SFT(Strict):
    """Supervised fine-tuning to the answer format.

    An adapter is trained on conversations in the answer format and then merged. The checkpoint's
    manifest says how many were kept, left out for their length, and cut. Where the paper and its
    release differ, see `open_choices`.
    """

    data: Annotated[Name, known("data")] | None = None
    """a data set of `benchmarks.yaml` with worked solutions; without one they are drawn from a
    corpus"""
    corpus: AnyCorpus | None = None
    """the corpus to draw from; `null` takes that of the base"""
    examples: Positive | None = None
    """how many; `null` takes the whole data set [conversations]"""
    epochs: Positive
    """passes over the examples [epochs; TRL: num_train_epochs]"""
    batch_size: Positive
    """conversations in an optimizer step, on all GPUs together [conversations; TRL:
    per_device_train_batch_size]"""
    max_tokens: Positive
    """longest conversation [tokens; TRL: max_length]"""
    length: Literal["conversation", "prompt"] = "conversation"
    """what may take at most half of `max_tokens`; longer examples are left out"""
    too_long: Literal["leave_out", "cut"] = "leave_out"
    """what is done with a conversation of more than `max_tokens`"""
    loss: Literal["text", "completion"] = "text"
    """what is learnt: the whole text, problem included, or the completion alone [TRL:
    completion_only_loss]"""
    template: Literal["own", "unsloth"] = "own"
    """how a conversation is written, here and wherever the checkpoint is used: as the model's own
    chat template says, or as Unsloth's: the system prompt and an end of text, then the problem"""
    learning_rate: PositiveFloat
    """peak of AdamW's learning rate, which then falls linearly to 0 [rate; TRL: learning_rate]"""
    warmup_steps: NonNegative
    """linear rise to the peak [optimizer steps; TRL: warmup_steps]"""
    weight_decay: NonNegativeFloat
    """AdamW's weight decay [rate; TRL: weight_decay]"""
    lora: LoRA
    """the adapter"""
    precision: Precision = "float32"
    optimizer: Optimizer = "adamw"
    seed: Seed
    """seed of examples, adapter and order [integer; TRL: seed]"""
    checkpoint_every: Positive = 200
    """how often a checkpoint is kept, from which an interrupted run continues [optimizer steps;
    TRL: save_steps]"""


class Sampling(Strict):
    """How completions are sampled, in `rl` and in `evaluation`.

    The settings are applied in this order: temperature, top-k, top-p, min-p.
    """

    temperature: PositiveFloat
    """logits are divided by it [factor; TRL: temperature]"""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """the smallest set of tokens with this probability is kept; 1 keeps all [probability; TRL:
    top_p]"""
    top_k: NonNegative = 0
    """the k most likely tokens are kept; 0 keeps all [tokens; TRL: top_k]"""
    min_p: Share = 0.0
    """tokens are kept whose probability is at least this share of the largest; 0 keeps all [share,
    0 to 1; TRL: min_p]"""
    max_tokens: Positive
    """longest completion [tokens; TRL: max_completion_length]"""
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=lambda: ["</SOLUTION>"])
    """a completion ends after the first of these texts that it writes"""

    def filters(self) -> list[str]:
        """The settings that cut tokens off the distribution that is drawn from."""
        cuts = {"top_k": self.top_k > 0, "top_p": self.top_p < 1.0, "min_p": self.min_p > 0.0}
        return [name for name, cut in cuts.items() if cut]


class RL(Strict):
    """Reinforcement learning with verifiable rewards (the paper's Table 8).

    One generation of rollouts serves `steps_per_generation` × `iterations` optimizer steps.
    """

    problems: Annotated[Name, known("set")]
    """the problem set to train on"""
    steps: Positive
    """length of training [optimizer steps; TRL: max_steps]"""
    prompts_per_step: Positive
    """different problems in a step [problems]"""
    rollouts: Annotated[Size, Field(ge=2)]
    """completions of each problem in a step: the group [completions; TRL: num_generations]"""
    micro_batches: Positive = 1
    """parts of a step over which its gradient is accumulated; more of them need less memory.
    Several GPUs share them. The loss `bnpo` averages over the tokens of one part [parts; TRL:
    gradient_accumulation_steps]"""
    steps_per_generation: Positive = 1
    """optimizer steps that one generation of rollouts is split over [optimizer steps]"""
    iterations: Positive = 1
    """how often each rollout is trained on [passes; TRL: num_iterations]"""
    sampling: Sampling
    """how rollouts are sampled"""
    engine: Engine = "transformers"
    """what samples rollouts. `vllm` shares each GPU with training and needs the extra of that name;
    it holds the base and is handed the adapter, and with `lora: null` TRL hands over all weights
    each step [TRL: use_vllm]"""
    vllm_memory: Share | None = None
    """what vLLM takes of each GPU while it samples; `null` computes it from the sizes of the GPU
    and the model and from the length of completions [share, 0 to 1; TRL:
    vllm_gpu_memory_utilization]"""
    vllm_sleep: bool | None = None
    """whether vLLM gives its GPU memory back while the policy is trained. Going to sleep and waking
    take seconds: with `null` it stays awake once the free memory is one and a half times what
    training has taken so far [TRL: vllm_enable_sleep_mode]"""
    correction: Literal["none", "token"] | None = None
    """`token` weights each token's advantage by the trainer's probability over the sampler's
    (truncated importance sampling); the KL term is not weighted. `null` takes `token` with `vllm`,
    else `none`"""
    correction_cap: PositiveFloat = 3.0
    """the largest such weight [ratio; TRL: vllm_importance_sampling_clip_max]"""
    learning_rate: PositiveFloat
    """peak of AdamW's learning rate [rate; TRL: learning_rate]"""
    schedule: Literal["linear", "constant", "constant_with_warmup"]
    """linear: up over the warm-up, then down to 0; constant: the peak from the first step on,
    without a warm-up; constant_with_warmup: up, then the peak [TRL: lr_scheduler_type]"""
    warmup_ratio: Share
    """linear rise to the peak; `constant` has none [share of `steps`, 0 to 1; TRL: warmup_steps]"""
    weight_decay: NonNegativeFloat
    """AdamW's weight decay [rate; TRL: weight_decay]"""
    max_grad_norm: PositiveFloat = 1.0
    """longer gradients are scaled down to it [norm; TRL: max_grad_norm]"""
    kl_coefficient: PositiveFloat
    """weight of the KL term; a method may set its own [per nat; TRL: beta]"""
    lora: LoRA | None
    """the adapter; `null` trains all weights"""
    precision: Precision = "float32"
    gradient_checkpointing: bool = False
    """whether activations are recomputed: less memory, more time [TRL: gradient_checkpointing]"""
    optimizer: Optimizer = "adamw"
    checkpoint_every: Positive = 100
    """how often a checkpoint is kept, from which an interrupted run continues; a multiple of
    `steps_per_generation` × `iterations` [optimizer steps; TRL: save_steps]"""
    watch: Watch = Field(default_factory=Watch)
    """when training counts as gone wrong, and what ends it"""

    @model_validator(mode="after")
    def _sections_agree(self) -> RL:
        completions = self.prompts_per_step * self.rollouts
        if completions % self.micro_batches:
            raise ValueError(
                f"micro_batches {self.micro_batches} must divide the completions of a step, "
                f"prompts_per_step x rollouts = {completions}"
            )
        served = self.steps_per_generation * self.iterations
        if self.checkpoint_every < self.steps and self.checkpoint_every % served:
            raise ValueError(
                f"checkpoint_every {self.checkpoint_every} must be a multiple of the steps that a "
                f"generation serves, steps_per_generation x iterations = {served}: a checkpoint "
                "does not hold rollouts, so a run that goes on within a generation would differ"
            )
        if self.correction == "token" and self.sampling.filters():
            raise ValueError(
                f"correction token compares the trainer's probabilities with the sampler's, which "
                f"are behind {', '.join(self.sampling.filters())}; set correction: none, or sample "
                "without"
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

    samples: Positive
    """for each problem and evaluation seed; pass@k goes up to k = samples × seeds [completions]"""
    seeds: Annotated[list[Seed], Field(min_length=1), Distinct]
    """evaluation seeds; with each, `samples` more completions are drawn [integers]"""
    sampling: Sampling
    """how completions are sampled"""
    engine: Engine = "transformers"
    """what samples them; `vllm` needs the extra of that name"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """number format of weights and activations; the 16-bit formats are for GPUs"""
    batch_size: Positive | None = None
    """largest number sampled together; fewer where memory is short, and with `null` as many as
    memory holds. It changes speed and memory, not the random numbers [completions]"""
    shard_size: Positive = 1024
    """how many are written to disk at once: the most an interrupted job can lose. It changes no
    result [completions]"""
    batch_invariant: bool = False
    """whether vLLM uses kernels whose roundings do not depend on what is sampled together: slower,
    and for GPUs of compute capability 9.0 or newer"""


class Evaluation(Draws):
    """How much is sampled for the tables and figures, and how, and what they show of it."""

    primary_k: Positive
    """k of the coverage that tables show and claims are about: a power of two, at most `samples`
    and, above 1, at most half of all samples, so that pass@k is no single draw [samples]"""
    bootstrap: Annotated[int, Field(ge=100, le=10**6)] = 10_000
    """resamples for each 95 % interval [resamples]"""

    def draws(self) -> dict[str, Any]:
        """The settings of Draws but `shard_size`, which changes no result."""
        return self.model_dump(mode="json", include=set(Draws.model_fields) - {"shard_size"})

    def decisive(self) -> dict[str, Any]:
        """The settings that samples and grades depend on: those of Draws but for speed."""
        return {key: value for key, value in self.draws().items() if key != "batch_size"}

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

    gpus: NonNegative = 0
    """GPUs of a job; on a cluster all on one node [devices]"""
    memory_gb: Positive = 4
    """host memory for each GPU, or of a job without any; `snakemake plan --cores 1` shows what runs
    have used [GB]"""
    hours: Positive = 4
    """longest running time [hours]"""
    training: PositiveFloat | None = None
    """speed of RL and SFT; `snakemake plan --cores 1` uses it until a run has been measured [tokens
    per second]"""
    sampling: PositiveFloat | None = None
    """speed of sampling, for the same purpose [tokens per second]"""

    @property
    def host_memory_gb(self) -> int:
        """Host memory of a job, in GB."""
        return self.memory_gb * max(1, self.gpus)


class Model(Strict):
    """A model with all that is done to it, and the methods and benchmarks of its main table."""

    extends: Annotated[Name | None, Field(exclude=True)] = None
    """another model of this study, or of the one that it extends; merged like studies"""
    title: str
    """its name in tables and figures"""
    base: Base
    """where its weights come from"""
    sft: SFT | None = None
    """fine-tuning to the answer format. Its result is `base`, the start of every RL run; with
    `null` that is the base itself"""
    rl: RL | None = None
    """settings of RL that all methods share; with `null` nothing is trained, and the tables show
    the base alone"""
    algorithms: Annotated[list[Annotated[Name, known("algorithm")]], Distinct] = Field(
        default_factory=list
    )
    """names of `algorithms.yaml` or `own_methods`: the methods in the model's tables, unless an
    exhibit names its own; none without `rl`"""
    benchmarks: Annotated[list[Annotated[Name, known("set")]], Field(min_length=1), Distinct]
    """problem sets to evaluate on, unless an exhibit names its own; not the set that RL trains
    on"""
    seeds: dict[
        Name, Annotated[list[Seed], Field(min_length=1), Distinct, about("seeds", unit="integers")]
    ] = Field(default_factory=dict)
    """training seeds of single methods, in place of the study's `seeds`: more for those that are to
    be compared [integers]"""
    learning_rates: dict[Name, PositiveFloat] = Field(default_factory=dict)
    """learning rates of single methods in place of `rl.learning_rate`, where each method was tuned
    [rates]"""
    evaluation: Evaluation | None = None
    """replaces the study's `evaluation` for this model"""
    job: Job = Field(default_factory=Job)
    """what its jobs ask of the machine"""

    @model_validator(mode="after")
    def _sections_agree(self) -> Model:
        if faults := list(self._faults()):
            raise Faults(faults)
        return self

    def _faults(self) -> Iterator[str]:
        """What does not go together in its sections, as messages of `Faults`."""
        if self.algorithms and not self.rl:
            yield (
                "rl: missing, but algorithms are trained by it; add it, or leave algorithms out to "
                "evaluate the base alone"
            )
        if self.rl and not self.algorithms:
            yield "algorithms: missing; name the methods to train, or leave rl out to train nothing"
        if self.rl and self.rl.problems in self.benchmarks:
            yield f"benchmarks: {self.rl.problems!r} is what RL trains on; name another set"
        try:
            if self.rl:
                self.rl.micro_batches_each(max(1, self.job.gpus))
        except ValueError as error:
            yield f": {error}"
        if self.sft and isinstance(self.base, SharedBase):
            yield "sft: a base taken from another model is tuned there; leave sft out"
        elif self.sft and self.sft.data and self.sft.corpus:
            yield "sft: data and corpus both say where the examples come from; leave one out"
        elif self.sft and self.sft.data is None:
            if self.sft.corpus is None and not isinstance(self.base, ScratchBase):
                yield (
                    ": sft needs data or corpus: only a base made from scratch has a corpus of its "
                    "own"
                )
            elif self.sft.examples is None:
                yield ": sft.examples is missing: a corpus has no end"
