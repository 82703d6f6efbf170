from pathlib import Path

from sage.runtime.job import device_of, job
from sage.runtime.shared_imports import MODELS

with job(snakemake, MODELS) as manifest:
    from sage.problems.record import read_problems
    from sage.study import RL, Algorithm
    from sage.study.without_effect import of_job
    from sage.training.processes import most_processes, run
    from sage.training.rl import train_rl

    device = device_of(snakemake.params.device)
    run(
        most_processes(snakemake.resources.gpu, device),
        train_rl,
        Path(snakemake.input.parent),
        read_problems(Path(snakemake.input.problems)),
        RL.model_validate({**snakemake.params.rl, **of_job(snakemake.wildcards.model, "rl")}),
        Algorithm.model_validate(snakemake.params.algorithm),
        seed=int(snakemake.wildcards.seed),
        device=device,
        scratch=Path(snakemake.params.scratch),
        output=Path(snakemake.output.policy),
        manifest=manifest,
        reference=Path(snakemake.input.reference) if snakemake.input.get("reference") else None,
        snapshots=snakemake.params.snapshots,
    )
