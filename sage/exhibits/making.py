"""Makes the files of exhibits: measurements, tables, figures.

The rules and the partial report call the same functions, so both show the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sage.exhibits import PAPER, kind_class, kind_of, shows
from sage.exhibits.kind import Display, Files, Measures, Measuring
from sage.runtime.files import atomic_directory
from sage.runtime.manifest import Manifest
from sage.study import ResolvedStudy


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
    assert isinstance(kind, Measures)
    with atomic_directory(folder) as temporary:
        kind.measure(Measuring(files, settings, temporary, device, shards, manifest))


def write_table(
    study: ResolvedStudy,
    exhibit: str,
    suffix: str,
    measured: Sequence[Path],
    paper: Path,
    output: Path,
) -> None:
    """Write one table of an exhibit as the CSV file `output`, with LaTeX and JSON beside it.

    `measured` are the folders of its frames (`sage.exhibits.frames_of`).
    """
    from sage.rendering.documents import write_document

    display = Display(study, exhibit, measured, paper)
    if suffix == PAPER:
        from sage.exhibits.paper_values import paper_document

        document = paper_document(kind_of(study, exhibit), display)
    else:
        document = shows(study, exhibit).tables()[suffix](display)
    write_document(document, output)


def write_figure(
    study: ResolvedStudy,
    exhibit: str,
    suffix: str,
    measured: Sequence[Path],
    paper: Path,
    output: Path,
) -> None:
    """Draw one figure of an exhibit as the SVG file `output`, with a PDF beside it."""
    from sage.rendering.style import draw_figure

    display = Display(study, exhibit, measured, paper)
    draw_figure(partial(shows(study, exhibit).figures()[suffix], display), output)
