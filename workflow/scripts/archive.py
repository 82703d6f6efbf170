from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.exhibits import restore_study
    from sage.runtime.files import from_repository
    from sage.tools.archive import write_archive

    write_archive(
        restore_study(snakemake.params.study),
        Path(snakemake.params.folder),
        from_repository(""),
        Path(snakemake.output.archive),
    )
