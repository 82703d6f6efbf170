"""Models of a study, and what is done to them: pretraining, SFT, RL, sampling."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sage.study.problem_sets import check_order
from sage.study.strict import (
    Name,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Seed,
    Share,
    Strict,
)


class Architecture(Strict):
    """A small Qwen2 model with tied embeddings."""

    hidden_size: Positive
    intermediate_size: Positive
    layers: Positive
    heads: Positive
    key_value_heads: Positive
    max_positions: Positive
    vocab_size: Annotated[int, Field(ge=300)]

    @model_validator(mode="after")
    def _divisible(self) -> Architecture:
        if self.hidden_size % self.heads or self.heads % self.key_value_heads:
            raise ValueError("hidden_size must be a multiple of heads, heads of key_value_heads")
        return self


class Slips(Strict):
    """How often worked solutions of the corpus go wrong (see `sage.problems.corpus`)."""

    direct: Share
    steps: Share
    group: Share
    below_zero: Share
    knights: Share


Style = Literal["direct", "steps", "let", "group", "contradiction"]


class Corpus(Strict):
    """Worked solutions that stand in for the web text a real base model has read."""

    styles: Annotated[dict[Style, NonNegativeFloat], Field(min_length=1)]
    slips: Slips
    min_terms: Annotated[int, Field(ge=2)]
    max_terms: Annotated[int, Field(ge=2)]
    max_value: Positive
    knights_share: Share
    knights_people: Annotated[list[Annotated[int, Field(ge=2, le=8)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _drawable(self) -> Corpus:
        check_order(self.min_terms, self.max_terms)
        if not any(self.styles.values()):
            raise ValueError("styles: at least one must have a frequency above 0")
        return self


class Pretraining(Strict):
    """Language modelling on the corpus; `tagged_share` of it is in the answer format."""

    documents: Positive
    tagged_share: Share
    steps: Positive
    batch_size: Positive
    learning_rate: PositiveFloat
    warmup_steps: Annotated[int, Field(ge=0)]
    weight_decay: NonNegativeFloat
    seed: Seed


class ScratchBase(Strict):
    """A base model made by this workflow."""

    source: Literal["scratch"]
    architecture: Architecture
    corpus: Corpus
    pretraining: Pretraining


class HubBase(Strict):
    """A pretrained checkpoint of the Hugging Face hub, or its copy in the mirror."""

    source: Literal["hub"]
    repository: str
    revision: str = "main"


class PackageBase(Strict):
    """A pretrained checkpoint as a GGUF file inside an installed Python package."""

    source: Literal["package"]
    package: str
    file: str


class SharedBase(Strict):
    """The parent of another model of the study: its checkpoint before RL."""

    source: Literal["model"]
    model: Name


Base = Annotated[ScratchBase | HubBase | PackageBase | SharedBase, Field(discriminator="source")]

Precision = Literal["float32", "bfloat16"]
Optimizer = Literal["adamw", "adamw_8bit"]


class LoRA(Strict):
    """Low-rank adapters on the attention and MLP projections."""

    rank: Positive
    alpha: Positive
    dropout: Share = 0.0


class SFT(Strict):
    """Supervised fine-tuning to the answer format; trains an adapter and merges it.

    The examples come from the data set `data` of config/benchmarks.yaml, or are drawn from
    `corpus`, by default that of a base made from scratch.
    """

    data: Name | None = None
    corpus: Corpus | None = None
    examples: Positive | None = None
    epochs: Positive
    batch_size: Positive
    max_tokens: Positive
    learning_rate: PositiveFloat
    warmup_steps: Annotated[int, Field(ge=0)]
    weight_decay: NonNegativeFloat
    lora: LoRA
    precision: Precision = "float32"
    optimizer: Optimizer = "adamw"
    seed: Seed
    checkpoint_every: Positive = 200


class Sampling(Strict):
    """How completions are drawn; one meaning in training and in evaluation."""

    temperature: PositiveFloat
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Share = 0.0
    max_tokens: Positive
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=lambda: ["</SOLUTION>"])


class RL(Strict):
    """Reinforcement learning with verifiable rewards (the paper's Table 8).

    A generation of rollouts serves `steps_per_generation` x `iterations` optimizer steps; a
    step runs over its completions in `micro_batches` parts, accumulating the gradient.
    """

    problems: Name
    steps: Positive
    prompts_per_step: Positive
    rollouts: Annotated[int, Field(ge=2)]
    micro_batches: Positive = 1
    steps_per_generation: Positive = 1
    iterations: Positive = 1
    sampling: Sampling
    engine: Literal["transformers", "vllm"] = "transformers"
    drawing_copy: bool | None = None
    vllm_memory: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    correction: Literal["none", "token"] | None = None
    correction_cap: PositiveFloat = 3.0
    learning_rate: PositiveFloat
    schedule: Literal["linear", "constant"]
    warmup_ratio: Share
    weight_decay: NonNegativeFloat
    max_grad_norm: PositiveFloat = 1.0
    kl_coefficient: PositiveFloat
    lora: LoRA | None
    precision: Precision = "float32"
    gradient_checkpointing: bool = False
    optimizer: Optimizer = "adamw"
    checkpoint_every: Positive = 100

    @model_validator(mode="after")
    def _divisible(self) -> RL:
        if self.prompts_per_step * self.rollouts % self.micro_batches:
            raise ValueError(
                f"micro_batches {self.micro_batches} must divide the completions of a step, "
                f"prompts_per_step x rollouts = {self.prompts_per_step * self.rollouts}"
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


class Evaluation(Strict):
    """Samples per problem and evaluation seed, how they are drawn, and their intervals."""

    samples: Positive
    seeds: Annotated[list[Seed], Field(min_length=1)]
    sampling: Sampling
    engine: Literal["transformers", "vllm"] = "transformers"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: Positive
    shard_size: Positive = 1024
    bootstrap: Annotated[int, Field(ge=100)] = 10_000

    def decisive(self) -> dict[str, Any]:
        """The settings that samples and grades depend on: all but speed and the bootstrap."""
        return self.model_dump(mode="json", exclude={"bootstrap", "batch_size", "shard_size"})

    @model_validator(mode="after")
    def _distinct_seeds(self) -> Evaluation:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds}: each may stand there only once")
        return self


class Job(Strict):
    """What a job that trains or samples the model asks of the machine.

    `training` and `sampling` are tokens per second, for the plan alone.
    """

    gpus: Annotated[int, Field(ge=0)] = 0
    memory_gb: Positive = 4
    hours: Positive = 4
    training: PositiveFloat | None = None
    sampling: PositiveFloat | None = None


class Model(Strict):
    """A model with everything that is done to it, and the rows and columns of its main table."""

    title: str
    base: Base
    sft: SFT | None = None
    rl: RL
    algorithms: Annotated[list[Name], Field(min_length=1)]
    benchmarks: Annotated[list[Name], Field(min_length=1)]
    evaluation: Evaluation | None = None
    job: Job = Field(default_factory=Job)

    @model_validator(mode="after")
    def _gpus_share_a_step(self) -> Model:
        self.rl.micro_batches_each(max(1, self.job.gpus))
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
