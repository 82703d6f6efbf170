from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import MODELS

kept, output = snakemake.input.kept, Path(snakemake.output.checkpoint)
with job(snakemake, () if kept else MODELS) as manifest:
    from sage.fetched_bases import take_base
    from sage.study import ScratchBase

    if kept:
        take_base(Path(kept[0]), output, manifest)
    else:
        from sage.training.pretrain import pretrain

        pretrain(ScratchBase.model_validate(snakemake.params.base), output, manifest)
