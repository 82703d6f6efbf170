"""A report of what is there: metrics, tables and figures from the runs that have finished.

The workflow makes its metrics from all runs at once, so a study under way has none. This makes
them from what exists, into a folder of their own that the full report does not read; what takes a
model to make (perplexity, accuracy during training) is shown only if it has been made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pandas as pd

from sage.analysis.case_study import write_case
from sage.analysis.dynamics import read_histories, write_gradient_norms
from sage.analysis.patterns import write_pattern_table
from sage.analysis.perplexity import tail_table
from sage.claims.ledger import write_ledger
from sage.evaluation.curves import run_of
from sage.evaluation.metrics import TABLES, write_metrics
from sage.problems.contamination import write_contamination
from sage.problems.record import read_problem_sets
from sage.reporting import (
    ablation,
    accuracy,
    figures_measured,
    figures_theory,
    measures,
    paper_reading,
    settings,
    toy,
)
from sage.reporting.browser import write_excerpts
from sage.reporting.latex import write_table
from sage.reporting.layout import (
    evaluated_runs,
    page_files,
    policy_folder,
    sample_file,
    trained_runs,
    used_problem_sets,
)
from sage.reporting.looks import save_figure
from sage.reporting.page import write_page
from sage.reporting.wording import benchmark_titles
from sage.study import BASE, ResolvedStudy
from sage.study.exhibits import (
    CaseStudyText,
    GradientTable,
    PatternTable,
    PerplexityFigure,
    StepTimesTable,
    TrajectoryFigure,
)
from sage.theory.toy import toy_example


def write_partial(study: ResolvedStudy, folder: Path, reports: Path, config: Path) -> Path:
    """Make the report of what is in `folder` and return the page's path, `partial.html`.

    `reports` holds the templates, `config` the ledger of claims and the phrase lists. What cannot
    be made is left out with a line on the output, and the page says that it is not run.
    """
    made = folder / "partial"
    all_samples = [
        sample_file(folder, run)
        for model in study.study.models
        for run in evaluated_runs(study, model)
    ]
    samples = comparable([path for path in all_samples if path.is_file()])
    policies = {
        model: [
            path
            for path in (policy_folder(folder, run) for run in trained_runs(study, model))
            if (path / "history.jsonl").is_file()
        ]
        for model in study.study.models
    }
    if samples:
        tables = {name: made / f"metrics/{name}.parquet" for name in TABLES}
        draws = study.study.evaluation.bootstrap
        _attempt("metrics", lambda: write_metrics(samples, draws, tables))
    for name in study.study.exhibits:
        _attempt(name, partial(_exhibit, study, name, folder, made, samples, policies, config))
    _attempt("theory", lambda: _theory(study, made))
    _attempt("contamination", lambda: _contamination(study, folder, made))
    _attempt("claims", lambda: _claims(study, folder, made, policies, config))
    if samples:
        problems = {path.stem: folder / f"problems/{path.stem}.jsonl" for path in samples}
        output = made / "report/samples.json"
        _attempt("samples", lambda: write_excerpts(study, samples, problems, output))
    page = folder / "report/partial.html"
    write_page(study, page_files(study, folder, reports, made), page, partial_report=True)
    return page


def comparable(samples: Iterable[Path]) -> list[Path]:
    """Sample files of rows that share a training seed, as comparing them takes.

    Per model and benchmark the seed that most rows have is the common one; rows without it
    are left out.
    """
    groups: dict[tuple[str, str], list[Path]] = {}
    for path in samples:
        model, _, _, benchmark = run_of(path)
        groups.setdefault((model, benchmark), []).append(path)
    kept = []
    for paths in groups.values():
        runs = {path: run_of(path) for path in paths}
        seeds = Counter(seed for _, row, seed, _ in runs.values() if row != BASE)
        common = min(seeds, key=lambda seed: (-seeds[seed], seed)) if seeds else 0
        rows = {row for _, row, seed, _ in runs.values() if seed == common or row == BASE}
        kept += [path for path, run in runs.items() if run[1] in rows]
    return kept


def _exhibit(
    study: ResolvedStudy,
    name: str,
    folder: Path,
    made: Path,
    samples: list[Path],
    policies: dict[str, list[Path]],
    config: Path,
) -> None:
    """Metrics, table and figure of one exhibit, from what is there."""
    shown, rows = study.study.exhibits[name], study.rows_of(name)
    measured = made / f"metrics/{name}.parquet"
    csv, svg = made / f"report/tables/{name}.csv", made / f"report/figures/{name}.svg"
    tex, titles = csv.with_suffix(".tex"), benchmark_titles(study)
    metrics = made / "metrics"
    folders = [path for path in policies[shown.model] if path.parent.name in rows]
    drawn = [
        path
        for path in samples
        if (run := run_of(path))[0] == shown.model
        and run[1] in rows
        and run[3] == getattr(shown, "benchmark", None)
    ]
    if shown.kind == "accuracy":
        pass_at_k = pd.read_parquet(metrics / "pass_at_k.parquet")
        table = accuracy.accuracy_table(
            pass_at_k, pd.read_parquet(metrics / "comparisons.parquet"), study, name
        )
        caption = accuracy.accuracy_caption(pass_at_k, study, name)
        write_table(table, accuracy.accuracy_latex(table, caption, titles), csv, tex)
        reading = paper_reading.reading_table(
            pass_at_k, pd.read_parquet(metrics / "paper_reading.parquet"), study, name
        )
        caption = paper_reading.reading_caption(study, name)
        latex = paper_reading.reading_latex(reading, caption, study)
        write_table(
            reading, latex, csv.with_stem(f"{name}_reading"), tex.with_stem(f"{name}_reading")
        )
    elif shown.kind == "curves":
        pass_at_k = pd.read_parquet(metrics / "pass_at_k.parquet")
        save_figure(figures_measured.curves_figure(pass_at_k, study, name), svg)
    elif shown.kind == "ablation":
        pass_at_k = pd.read_parquet(metrics / "pass_at_k.parquet")
        table = ablation.ablation_table(pass_at_k, study, name)
        caption = ablation.ablation_caption(table, study, name)
        write_table(table, ablation.ablation_latex(table, caption, study, name), csv, tex)
    elif shown.kind == "training" and folders:
        save_figure(figures_measured.training_figure(read_histories(folders), study, name), svg)
    elif isinstance(shown, PatternTable) and drawn:
        lists, draws = config / "patterns.yaml", study.study.evaluation.bootstrap
        write_pattern_table(drawn, lists, draws, shown.samples, measured)
        table = measures.patterns_table(pd.read_parquet(measured), study, name)
        caption = measures.patterns_caption(table, study, name)
        write_table(table, measures.patterns_latex(table, caption), csv, tex)
    elif isinstance(shown, GradientTable) and folders:
        write_gradient_norms(folders, rows, measured)
        table = measures.gradient_table(pd.read_parquet(measured), study, name)
        caption = measures.gradient_caption(table, study, name)
        write_table(table, measures.gradient_latex(table, caption), csv, tex)
    elif isinstance(shown, CaseStudyText):
        there = {run_of(path)[1] for path in drawn}
        if set(rows) <= there:
            problems = folder / f"problems/{shown.benchmark}.jsonl"
            write_case(drawn, problems, rows, made / f"metrics/{name}.json")
    elif isinstance(shown, PerplexityFigure | TrajectoryFigure | StepTimesTable):
        _made_by_a_model(study, name, folder / f"metrics/{name}.parquet", folders, svg, csv)


def _made_by_a_model(
    study: ResolvedStudy, name: str, metrics: Path, folders: list[Path], svg: Path, csv: Path
) -> None:
    """Figure and table of metrics that only the workflow makes; nothing where they are not."""
    if not metrics.is_file():
        return
    found, shown = pd.read_parquet(metrics), study.study.exhibits[name]
    if isinstance(shown, StepTimesTable):
        table = measures.step_times_table(found, study, name)
        latex = measures.step_times_latex(table, measures.step_times_caption(table, study, name))
        write_table(table, latex, csv, csv.with_suffix(".tex"))
        return
    if isinstance(shown, TrajectoryFigure):
        histories = read_histories(folders)
        save_figure(figures_measured.trajectory_figure(histories, found, study, name), svg)
        return
    save_figure(figures_measured.perplexity_figure(found, study, name), svg)
    table = measures.tails_table(tail_table(found), study, name)
    latex = measures.tails_latex(table, measures.tails_caption(table, study, name))
    write_table(table, latex, csv, csv.with_suffix(".tex"))


def _theory(study: ResolvedStudy, made: Path) -> None:
    tables = made / "report/tables"
    for name, make in figures_theory.FIGURES.items():
        save_figure(make(), made / f"report/figures/{name}.svg")
    example = toy_example()
    table = toy.toy_table(example)
    latex = toy.toy_latex(table, toy.toy_caption(example))
    write_table(table, latex, tables / "appendix_c.csv", tables / "appendix_c.tex")
    for name, make_table, caption in (
        ("table7", settings.sft_settings_table, settings.sft_caption(study)),
        ("table8", settings.rl_settings_table, settings.rl_caption(study)),
    ):
        table = make_table(study)
        latex = settings.settings_latex(table, caption, study)
        write_table(table, latex, tables / f"{name}.csv", tables / f"{name}.tex")


def _contamination(study: ResolvedStudy, folder: Path, made: Path) -> None:
    paths = {name: folder / f"problems/{name}.jsonl" for name in used_problem_sets(study)}
    there = [name for name, path in paths.items() if path.is_file()]
    trained = {model.rl.problems for model in study.study.models.values()}
    tested = {b for model in study.study.models for _, b in study.evaluated(model)}
    training = read_problem_sets([paths[name] for name in there if name in trained])
    benchmarks = read_problem_sets([paths[name] for name in there if name in tested])
    if not training or not benchmarks:
        return
    rule, folder = study.study.contamination, made / "metrics"
    write_contamination(
        training,
        benchmarks,
        rule.ngram,
        rule.share,
        folder / "contamination.parquet",
        folder / "contamination.csv",
        folder / "contamination_pairs.csv",
    )


def _claims(
    study: ResolvedStudy, folder: Path, made: Path, policies: dict[str, list[Path]], config: Path
) -> None:
    comparisons = made / "metrics/comparisons.parquet"
    wanted = {
        name: (made if isinstance(shown, PatternTable) else folder) / f"metrics/{name}.parquet"
        for name, shown in study.study.exhibits.items()
        if isinstance(shown, PatternTable | PerplexityFigure | StepTimesTable)
    }
    write_ledger(
        study,
        config / "claims.yaml",
        comparisons if comparisons.is_file() else None,
        {name: path for name, path in wanted.items() if path.is_file()},
        [folder for folders in policies.values() for folder in folders],
        made / "metrics/claims.parquet",
    )


def _attempt(name: str, make: Callable[[], None]) -> None:
    """Make a part of the report; what cannot be made for want of data is named and left out."""
    try:
        make()
    except (ValueError, FileNotFoundError) as error:
        print(f"{name}: not made, {error}")
