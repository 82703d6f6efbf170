from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.report.browser import write_excerpts

    write_excerpts(
        [Path(path) for path in snakemake.input.samples],
        {Path(path).stem: Path(path) for path in snakemake.input.problems},
        Path(snakemake.output.excerpts),
    )
