from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.exhibits import restore_study, write_piece
    from sage.runtime.files import from_repository

    measured = snakemake.input.get("measured") or []
    measured = [measured] if isinstance(measured, str) else measured
    exhibit, suffix = snakemake.params.piece
    write_piece(
        restore_study(snakemake.params.study),
        exhibit,
        suffix,
        measured=[Path(folder) for folder in measured],
        paper=from_repository("reports/paper"),
        output=Path(snakemake.output[0]),
    )
