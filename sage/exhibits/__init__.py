"""Tables and figures: one module for each kind, and the registry of kinds.

The study's types, the rules and targets, the page and the partial page, LaTeX, captions, plan and
claims all find a kind here. A kind of your own is `kind: my_tables:Mine`: a subclass of
`sage.exhibits.kind.Kind` in a file beside the Snakefile. What one question alone shows is in the
folder of its answer, as `reports.dose.dose_grid:DoseFigure`. The rules and the partial report make
files by the same functions (`measure`, `write_piece`), so both show the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sage.exhibits.kind import Display, Files, Kind, Measuring, Shows
from sage.named import Named
from sage.results import Results
from sage.runtime.dependencies import module_files
from sage.runtime.files import ROOT, atomic_directory
from sage.runtime.manifest import Manifest
from sage.study import ResolvedStudy, reading
from sage.study.kept import updated

KINDS = {
    "accuracy": "sage.exhibits.accuracy:AccuracyTable",
    "curves": "sage.exhibits.curves:CurvesFigure",
    "tradeoff": "sage.exhibits.tradeoff:TradeoffFigure",
    "equal_tokens": "sage.exhibits.equal_tokens:EqualTokensTable",
    "patterns": "sage.exhibits.patterns:PatternTable",
    "distinct": "sage.exhibits.distinct:DistinctTable",
    "gradient_norms": "sage.exhibits.training:GradientTable",
    "ablation": "sage.exhibits.ablation:AblationTable",
    "trajectory": "sage.exhibits.trajectory:TrajectoryFigure",
    "strata": "sage.exhibits.strata:StrataFigure",
    "perplexity": "sage.exhibits.perplexity:PerplexityFigure",
    "case_study": "sage.exhibits.case_study:CaseStudyText",
    "training": "sage.exhibits.training:TrainingFigure",
    "learned_guide": "sage.exhibits.training:LearnedGuideFigure",
    "equal_accuracy": "sage.exhibits.equal_accuracy:EqualAccuracyTable",
    "cost_free_baselines": "sage.exhibits.equal_accuracy:CostFreeBaselines",
    "guide_dose": "sage.exhibits.guide_dose:GuideDoseTable",
}
"""Kinds that a study can name. Each is imported only when it is used."""

CONTAMINATION = "contamination"

EVERY_REPORT = {
    "figure1": "sage.exhibits.theory:GuidedAnchorsFigure",
    "figure5": "sage.exhibits.theory:ModesFigure",
    "appendix_c": "sage.exhibits.theory:ToyTable",
    "estimators": "sage.exhibits.theory:EstimatorsTable",
    "table7": "sage.exhibits.settings:SFTSettings",
    "table8": "sage.exhibits.settings:RLSettings",
    "readings": "sage.exhibits.settings:OpenChoicesTable",
    CONTAMINATION: "sage.exhibits.every_report:ContaminationTable",
    "chance": "sage.exhibits.every_report:ChanceTable",
    "grading": "sage.exhibits.every_report:GradingTable",
    "support": "sage.exhibits.every_report:SupportTable",
}
"""Exhibits of every report, by name. A study does not name them."""

OF_SAMPLES = ("chance", "grading")
"""Those of them that are about samples, whatever drew them."""

OF_PAPER = ("figure1", "figure5", "appendix_c", "estimators", "readings")
"""Those of them that are about the paper: its theory and what it leaves open."""

PAPER = "_paper"
"""Suffix of the table that compares an exhibit with the paper's numbers."""


_KIND = Named(what="a kind of exhibit", base="sage.exhibits.kind:Kind", classes=KINDS)
_OF_EVERY_REPORT = Named(
    what="an exhibit of every report",
    methods={"tables": (), "figures": ()},
    classes=EVERY_REPORT,
)


def kind_class(kind: str) -> type[Kind]:
    """The class of a kind: a name in KINDS, or `module:Class`. Raises ValueError."""
    imported: type[Kind] = _KIND.find(kind)
    if imported.measure is Kind.measure and imported.evaluated is Kind.evaluated:
        raise ValueError(f"{kind!r} must define `measure` or `evaluated`")
    if imported.with_model and "evaluated" in imported.needs:
        raise ValueError(
            f"{kind!r} needs a model, so it is measured before the report, which makes what was "
            "`evaluated`: let it need `samples`"
        )
    return imported


def load_study(study: str, config_folder: Path, overrides: Sequence[str] = ()) -> ResolvedStudy:
    """The study `study`: a name in `config_folder`/studies, or the path of a YAML file.

    `overrides` are settings that go over it, such as `rl.steps=10`.

    Raises StudyError, which lists every fault, if the study cannot be run.
    """
    return reading.load_study(study, config_folder, kind_class, overrides)


def restore_study(dump: Mapping[str, Any]) -> ResolvedStudy:
    """A study from its own `model_dump`, which is how scripts receive it from rules."""
    return ResolvedStudy.model_validate(dump, context=reading.context_of(kind_class))


def kept_study(folder: Path) -> ResolvedStudy:
    """The study of a kept run, of this version or an earlier one; its own classes may lie in the
    folder of its question. Raises as `updated` does."""
    reading.import_from(folder, folder.parent, ROOT)
    return restore_study(updated(json.loads((folder / "study.json").read_text(encoding="utf-8"))))


def in_every_report(study: ResolvedStudy) -> list[str]:
    """Exhibits that the report of this study has beside its own: OF_SAMPLES if it trains nothing,
    else all of EVERY_REPORT, but for OF_PAPER where it reproduces no paper."""
    left_out = () if study.study.paper else OF_PAPER
    names = EVERY_REPORT if study.training_sets() else OF_SAMPLES
    return [name for name in names if name not in left_out]


def shows(study: ResolvedStudy, exhibit: str) -> Shows:
    """The object that makes the tables and figures of an exhibit, one of the study's own or of
    every report."""
    if exhibit in EVERY_REPORT:
        made: Shows = _OF_EVERY_REPORT.find(exhibit)()
        return made
    return kind_of(study, exhibit)


def kind_of(study: ResolvedStudy, exhibit: str) -> Kind:
    """An exhibit of the study."""
    own = study.study.exhibits[exhibit]
    assert isinstance(own, Kind)
    return own


def frames_of(
    study: ResolvedStudy, exhibit: str, made: Results, results: Results | None = None
) -> list[Path]:
    """The folders of an exhibit's frames: its own measurement, and metrics that it shows.

    All are in `made`; `results`, if given, holds what a model is needed to measure.
    """
    source = shows(study, exhibit)
    place = (source.with_model and results) or made
    own = [place.measured(exhibit)] if source.measures else []
    return own + [made.evaluated(*pair) for pair in source.evaluated(study)]


def tables_of(study: ResolvedStudy, exhibit: str, paper: Path | None = None) -> dict[str, str]:
    """Tables of an exhibit: the suffix of each, by the table's name.

    With `paper`, the folder of the paper's tables, the comparison with the paper is among them if
    the paper has numbers for the exhibit.
    """
    from sage.exhibits.paper_values import in_paper

    own = exhibit not in EVERY_REPORT
    compared = paper and study.study.paper and own and in_paper(paper, kind_of(study, exhibit))
    shown = shows(study, exhibit)
    suffixes = [*shown.tables(), *([PAPER] if compared else [])]
    out = shown.left_out(study)
    return {f"{exhibit}{suffix}": suffix for suffix in suffixes if suffix not in out}


def figures_of(study: ResolvedStudy, exhibit: str) -> dict[str, str]:
    """Figures of an exhibit: the suffix of each, by the figure's name."""
    shown = shows(study, exhibit)
    out = shown.left_out(study)
    return {f"{exhibit}{suffix}": suffix for suffix in shown.figures() if suffix not in out}


def own_files(exhibit: Shows) -> list[str]:
    """The source files of a user's own kind and of the user's modules that it imports; none for a
    kind of this package."""
    module = type(exhibit).__module__
    return [] if module.startswith("sage.") else module_files(module, ["sage"])


def measure(
    exhibit: Mapping[str, Any],
    settings: Mapping[str, Any],
    files: Files,
    folder: Path,
    device: str,
    shards: Path,
    manifest: Manifest,
) -> None:
    """Measure an exhibit, given as plain data, into `folder`. The folder is written completely or
    not at all."""
    kind = kind_class(exhibit["kind"]).model_validate(exhibit)
    with atomic_directory(folder) as temporary:
        kind.measure(Measuring(files, settings, temporary, device, shards, manifest))


def write_piece(
    study: ResolvedStudy,
    exhibit: str,
    suffix: str,
    measured: Sequence[Path],
    paper: Path,
    output: Path,
) -> None:
    """Write one table or figure of an exhibit, as its `output` says.

    A table is a CSV file with LaTeX and JSON beside it, a figure an SVG file with a PDF. `measured`
    are the folders of the exhibit's frames (`frames_of`).
    """
    display = Display(study, exhibit, measured, paper)
    if output.suffix == ".svg":
        from sage.rendering.style import draw_figure

        draw_figure(partial(shows(study, exhibit).figures()[suffix], display), output)
        return
    from sage.rendering.documents import write_document

    if suffix == PAPER:
        from sage.exhibits.paper_values import paper_document

        document = paper_document(kind_of(study, exhibit), display)
    else:
        document = shows(study, exhibit).tables()[suffix](display)
    write_document(document, output)
