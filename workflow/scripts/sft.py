from pathlib import Path

from sage.runtime.job import device_of, job
from sage.runtime.shared_imports import MODELS

with job(snakemake, MODELS) as manifest:
    from sage.study import SFT
    from sage.study.without_effect import of_job
    from sage.training.examples import read_solutions
    from sage.training.processes import most_processes, run
    from sage.training.sft import fine_tune, processes_for

    settings = SFT.model_validate(
        {**snakemake.params.sft, **of_job(snakemake.wildcards.model, "sft")}
    )
    device = device_of(snakemake.params.device)
    run(
        processes_for(settings, most_processes(snakemake.resources.gpu, device)),
        fine_tune,
        Path(snakemake.input.checkpoint),
        read_solutions(Path(snakemake.input.examples)),
        settings,
        device,
        scratch=Path(snakemake.params.scratch),
        output=Path(snakemake.output.checkpoint),
        manifest=manifest,
    )
