from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.exhibits import restore_study
    from sage.tools.archive import write_archive

    write_archive(
        restore_study(snakemake.params.study),
        Path(snakemake.params.folder),
        Path("."),
        Path(snakemake.output.archive),
    )
