"""A study as a whole, and the settings of a machine.

Its parts are in the modules beside this one. References between sections (a method's name, say)
are checked by `sage.study.reading`.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, SerializeAsAny, Tag

from sage.fields import BASE, Distinct, Name, Seed, Strict, known
from sage.problems.contamination import Contamination
from sage.problems.entries import Benchmark, BenchmarkSet
from sage.results import Results, Run
from sage.runtime.tracking import Tracker
from sage.study.algorithms import Algorithm
from sage.study.exhibit import Exhibit, of_kind
from sage.study.models import RL, Evaluation, Model
from sage.study.watch import Watch
from sage.tasks import ProblemSet

AnyExhibit = Annotated[SerializeAsAny[Exhibit], BeforeValidator(of_kind)]
"""An exhibit of any kind that the validation context knows."""


class Paper(Strict):
    """The paper that a study reproduces."""

    title: str
    """title of the paper"""
    authors: str
    """its authors, as in `Lee, Kang and Hwang`"""
    year: Annotated[int, Field(ge=1900, le=2100)]
    """year [year]"""
    arxiv: Annotated[str | None, Field(pattern="^\\d{4}\\.\\d{4,5}$")] = None
    """its number on arXiv, such as `2605.18864`"""


AskedClaim = dict[str, Any]
"""A claim as it is written; `sage.claims.tests`, on a higher floor, checks it."""

PAPERS_CLAIMS = "config/claims.yaml"

SAGE = Paper(
    title="SAGE: Shaping Anchors for Guided Exploration in RLVR of LLMs",
    authors="Lee, Kang and Hwang",
    year=2026,
    arxiv="2605.18864",
)
"""The paper that this project is about; a study writes `paper: sage`."""


def _known_paper(asked: Any) -> Any:
    return SAGE if asked == "sage" else asked


class Study(Strict):
    """One complete study.

    Names of problem sets and models become names of folders: letters, digits, `_`, `.` and `-`,
    starting with a letter or a digit. The same holds for the name of the file, or of the folder of
    a file `study.yaml`, which becomes the folder of results.
    """

    extends: Annotated[str | None, Field(exclude=True)] = None
    """another study, which this one changes: a path from this file, or a name in `config/studies`.
    Sections are merged key by key, lists replace lists. `null` takes out a key of the other study,
    and `others: null` all keys of a section that are not named beside it.
    `snakemake resolved --cores 1` prints what comes of it [path or name]"""
    title: str
    """heading of the report"""
    notice: str = ""
    """what the numbers do and do not show; stands at the top of the report"""
    paper: Annotated[
        Paper | None,
        BeforeValidator(_known_paper, json_schema_input_type=Paper | Literal["sage"] | None),
    ] = None
    """the paper that the study reproduces, `sage` for that of this project: the report names it and
    shows its theory, its numbering and its estimator"""
    claims: Annotated[
        Annotated[str, Field(pattern="\\.ya?ml$"), Tag("file")]
        | Annotated[dict[Name, AskedClaim], Tag("dict")],
        Discriminator(lambda asked: "dict" if isinstance(asked, dict) else "file"),
    ] = PAPERS_CLAIMS
    """the claims that are tested, by name, with the keys of `config/claims.yaml`; or the file of a
    list, from the folder of the Snakefile. A claim of this study replaces one of the same name of
    the study that it extends"""
    problems: Annotated[dict[Name, ProblemSet], Field(min_length=1)]
    """problem sets, to train on or to use as benchmarks"""
    models: Annotated[dict[Name, Model], Field(min_length=1)]
    """models, with everything that is done to them"""
    bases: dict[
        Name, Annotated[list[Annotated[Name, known("model")]], Field(min_length=2), Distinct]
    ] = Field(default_factory=dict)
    """models that differ in their base alone, such as `sums: [first, second, third]`, each a
    pretraining with another seed. A claim about one of them is then about all: bases, like
    problems, are a sample of those there could be"""
    own_methods: dict[Name, Algorithm] = Field(default_factory=dict)
    """methods of this study beside those of `algorithms.yaml`, in the same form, such as
    `pkpo_branch: {base: pkpo, guide: branch}`"""
    seeds: Annotated[list[Seed], Distinct] = Field(default_factory=list)
    """training seeds of RL: one run for each model, method and seed. A model can give some of its
    methods others [integers]"""
    evaluation: Evaluation
    """how much is sampled, and how"""
    open_choices: dict[Name, Name] = Field(default_factory=dict)
    """choices to switch where the paper and its release differ or are silent, such as `sft_length:
    prompt`; they take precedence over what models and methods say. All of them, and what they set:
    `sage/study/open_choices.yaml`"""
    exhibits: Annotated[dict[Name, AnyExhibit], Field(min_length=1)]
    """tables and figures; each name is also a target, such as `snakemake table1 --cores 1`"""
    contamination: Contamination = Field(default_factory=Contamination)
    """when a training problem counts as a copy of a benchmark's problem"""


def _as_list(value: Any) -> Any:
    """One `KEY=VALUE`, or a mapping, as the list that it stands for."""
    if isinstance(value, dict):
        return [f"{key}={json.dumps(each)}" for key, each in value.items()]
    return [value] if isinstance(value, str) else value


class Settings(Strict):
    """Which study to run, and settings of this machine only."""

    study: str
    """a name in `config/studies`, or the path of your own file [name or path]"""
    set: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    """values that go over those of the study, such as `[rl.steps=10, seeds=[1, 2]]`; `sage-rlvr run
    mini --set rl.steps=10` for short. A key is a path in the study; one that begins with a section
    of models (`rl.steps`) is about all models. Results go to a folder of their own [KEY=VALUE]"""
    results: Annotated[str, AfterValidator(os.path.expanduser)] = "results"
    """where results go: one folder for each study, named after its file [path]"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where models run. `auto` uses the GPUs that a model's `job` asks for, if the machine has any;
    `cuda` uses at least one, and fails without"""
    mirror: str | None = None
    """a folder with copies of public data sets, used before the Hugging Face hub; with `null` it is
    the environment variable `SAGE_MIRROR`, if that is set [path]"""
    kept: str | None = None
    """what `snakemake compare --cores 1` compares the run with: the results folder of a finished
    study, or a folder with its `metrics/pass_at_k.parquet`, which may be a CSV file; no other file
    is read [path]"""
    pretrain: Literal["kept", "again"] = "kept"
    """whether a base from scratch that comes with the repository (`config/bases`) is taken, or made
    again; the weights are the same on the same machine"""
    tracking: Tracker = "auto"
    """where the curves of SFT and RL can be watched while they run: a tool that is installed,
    writing to `tracking` in the study's folder and to no server. `auto` is trackio where it is
    installed, else `none`. A change makes no job run again"""


class ResolvedStudy(Strict):
    """A study with its name and the definitions of the methods and data sets it uses.

    `option` is what `--config study=` takes: the name, or the path of a file elsewhere, and after
    it the `overrides` of the command line. `algorithms` also holds the methods that exhibits add
    (`variants`).
    """

    name: Name
    option: str
    overrides: list[str] = Field(default_factory=list)
    study: Study
    algorithms: dict[Name, Algorithm]
    variants: list[Name]
    benchmarks: dict[Name, Benchmark]

    def model(self, name: str) -> Model:
        """The model called `name`."""
        return self.study.models[name]

    def rl(self, model: str, method: str | None = None) -> RL:
        """The settings of RL of a model, with a method's own learning rate if one is named.

        Raises ValueError for a model that is not trained.
        """
        if (settings := self.model(model).rl) is None:
            raise ValueError(f"model {model!r} has no rl, so nothing of it is trained")
        own = self.model(model).learning_rates.get(method) if method else None
        return settings.model_copy(update={"learning_rate": own}) if own else settings

    def bases(self, model: str) -> tuple[str, list[str]]:
        """The group that a model is in and the models of it, or the model's name and itself."""
        groups = self.study.bases.items()
        return next(((name, group) for name, group in groups if model in group), (model, [model]))

    def evaluation(self, model: str) -> Evaluation:
        """How the model is sampled: its own section, or the study's."""
        return self.model(model).evaluation or self.study.evaluation

    def problem_set(self, name: str) -> dict[str, Any]:
        """All that decides the problems of a set: its settings, and its entry if it has one."""
        settings = self.study.problems[name]
        if isinstance(settings, BenchmarkSet):
            entry = self.benchmarks[settings.benchmark]
            return {**settings.model_dump(), "entry": entry.model_dump()}
        return settings.model_dump()

    def trained_strata(self, model: str) -> list[str]:
        """The strata of the problems that RL trains the model on; none where they have none."""
        rl = self.model(model).rl
        return list(self.problem_set(rl.problems).get("strata") or ()) if rl else []

    def methods(self, model: str) -> list[str]:
        """Methods of the model's main table: `base` first, then its methods."""
        return [BASE, *self.model(model).algorithms]

    def exhibits(self, model: str) -> dict[str, Exhibit]:
        """The exhibits that show the model, in the order of the study."""
        return {name: e for name, e in self.study.exhibits.items() if e.model == model}

    def methods_of(self, exhibit: str) -> list[str]:
        """Methods of an exhibit, `base` among them where samples are shown."""
        return self.study.exhibits[exhibit].methods_of(self)

    def benchmarks_of(self, exhibit: str) -> list[str]:
        """Benchmarks whose samples an exhibit shows."""
        return self.study.exhibits[exhibit].benchmarks_of(self)

    def trained(self, model: str) -> list[str]:
        """Every method that the model is trained with: its own, then those of exhibits."""
        own = self.model(model).algorithms
        more = [method for name in self.exhibits(model) for method in self.methods_of(name)]
        return [method for method in dict.fromkeys([*own, *more]) if method != BASE]

    def evaluated(self, model: str) -> list[tuple[str, str]]:
        """Every (method, benchmark) that the model is sampled on: each once, for all exhibits."""
        benchmarks = self.model(model).benchmarks
        pairs = [(method, benchmark) for method in self.methods(model) for benchmark in benchmarks]
        for name in self.exhibits(model):
            pairs += itertools.product(self.methods_of(name), self.benchmarks_of(name))
        return list(dict.fromkeys(pairs))

    def runs_of(self, model: str, method: str) -> list[Run]:
        """The policies of a method, one per training seed; `base` has none and is under seed 0."""
        seeds = [0] if method == BASE else self.seeds(model, method)
        return [Run(model, method, seed) for seed in seeds]

    def seeds(self, model: str, method: str) -> list[int]:
        """The training seeds of a method."""
        return self.model(model).seeds.get(method, self.study.seeds)

    def numbers_of_runs(self) -> list[int]:
        """How many runs the methods have, each number once, the smallest first."""
        pairs = [(model, method) for model in self.study.models for method in self.trained(model)]
        return sorted({len(self.seeds(*pair)) for pair in pairs})

    def seeds_text(self, model: str | None = None, rows: Collection[str] | None = None) -> str:
        """The training seeds of all models or of one, as in `1, 2, 3 (GRPO); 1 (others)`.

        `rows` are the methods of a model that matter; left out, all that are trained.
        """
        titles: dict[str, dict[str, None]] = {}
        for name in [model] if model else self.study.models:
            for method in self.trained(name) if rows is None else rows:
                seeds = ", ".join(map(str, self.seeds(name, method)))
                titles.setdefault(seeds, {})[self.algorithms[method].title] = None
        general = ", ".join(map(str, self.study.seeds))
        if len(titles) < 2:
            return next(iter(titles), general)
        own = [
            f"{seeds} ({', '.join(owners)})" for seeds, owners in titles.items() if seeds != general
        ]
        return "; ".join([*own, f"{general} (others)"] if general in titles else own)

    def trained_runs(self, model: str) -> list[Run]:
        """Every run of RL that the study asks for."""
        return [run for method in self.trained(model) for run in self.runs_of(model, method)]

    def evaluated_runs(self, model: str) -> list[tuple[Run, str]]:
        """Every policy and benchmark that the study samples."""
        return [
            (run, benchmark)
            for method, benchmark in self.evaluated(model)
            for run in self.runs_of(model, method)
        ]

    def snapshots(self, model: str, algorithm: str) -> int:
        """At how many moments of training a policy is kept, for the exhibits that show it."""
        return max(
            (
                exhibit.snapshots_kept()
                for name, exhibit in self.exhibits(model).items()
                if algorithm in self.methods_of(name)
            ),
            default=0,
        )

    def training_problems(self, results: Results, model: str) -> Path:
        """What RL trains on: the whole set, or what is left of it where overlaps are dropped."""
        name = self.rl(model).problems
        dropped = self.study.contamination.drop
        return results.decontaminated(name) if dropped else results.problems(name)

    def training_sets(self) -> list[str]:
        """Problem sets that RL trains on."""
        sections = [model.rl for model in self.study.models.values()]
        return list(dict.fromkeys(rl.problems for rl in sections if rl))

    def benchmark_sets(self) -> list[str]:
        """Problem sets that models are evaluated on."""
        pairs = [pair for model in self.study.models for pair in self.evaluated(model)]
        return list(dict.fromkeys(benchmark for _, benchmark in pairs))

    def problem_sets(self) -> list[str]:
        """Problem sets that a model trains on or is evaluated on, in the study's order."""
        used = {*self.training_sets(), *self.benchmark_sets()}
        return [name for name in self.study.problems if name in used]

    def kl_coefficient(self, model: str, method: str) -> float:
        """The weight of a method's KL term: its own, else the model's; 0 without one [per nat]."""
        own = self.algorithms[method]
        return 0.0 if own.kl == "none" else own.kl_coefficient or self.rl(model).kl_coefficient

    def seen_by(self, *exhibits: str) -> ResolvedStudy:
        """The study as some exhibits see it: without the others, title, notice, claims, `rl.watch`
        and its own methods, of which `algorithms` has those that are used.

        Of none in particular: with all exhibits, but without their titles. What is made from a
        part is made again only when something changes that it can show.
        """
        kept = {name: self.study.exhibits[name] for name in exhibits} or {
            name: exhibit.model_copy(update={"title": ""})
            for name, exhibit in self.study.exhibits.items()
        }
        models = {
            name: model.model_copy(
                update={"rl": model.rl and model.rl.model_copy(update={"watch": Watch()})}
            )
            for name, model in self.study.models.items()
        }
        hidden: dict[str, Any] = {"title": "", "notice": "", "paper": None, "own_methods": {}}
        hidden["claims"] = PAPERS_CLAIMS
        study = self.study.model_copy(update={**hidden, "exhibits": kept, "models": models})
        return self.model_copy(update={"study": study})
