from pathlib import Path

from sage.runtime.job import job
from sage.runtime.shared_imports import MODELS

with job(snakemake, MODELS) as manifest:
    from sage.study import ScratchBase
    from sage.training.pretrain import pretrain

    pretrain(
        ScratchBase.model_validate(snakemake.params.base),
        Path(snakemake.output.checkpoint),
        manifest,
    )
