from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import EXHIBITS

with job(snakemake, EXHIBITS):
    from sage.claims.figure import write_contrasts
    from sage.claims.ledger import write_ledger
    from sage.claims.tests import read_claims
    from sage.exhibits import kind_of, restore_study

    files, study = snakemake.input, restore_study(snakemake.params.study)
    folders = {Path(path).name: Path(path) for path in files.exhibits}
    write_ledger(
        study,
        claims=read_claims(snakemake.params.claims),
        comparisons=Path(files.comparisons),
        chance=Path(files.chance),
        exhibits={
            name: folder / f"{kind_of(study, name).evidence}.parquet"
            for name, folder in folders.items()
        },
        policies=[Path(path) for path in files.policies],
        table=Path(snakemake.output.table),
    )
    write_contrasts(Path(snakemake.output.table), study, Path(snakemake.output.svg))
