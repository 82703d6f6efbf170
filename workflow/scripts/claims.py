from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    from sage.claims.ledger import write_ledger
    from sage.study import ResolvedStudy

    files = snakemake.input
    write_ledger(
        ResolvedStudy.model_validate(snakemake.params.study),
        claims=Path(files.claims),
        comparisons=Path(files.comparisons),
        exhibits={Path(path).stem: Path(path) for path in files.exhibits},
        policies=[Path(path) for path in files.policies],
        table=Path(snakemake.output.table),
    )
