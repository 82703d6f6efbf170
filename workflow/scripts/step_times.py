from pathlib import Path

from sage.runtime.job import device_of, job

with job(snakemake) as manifest:
    from sage.study import RL, Algorithm
    from sage.training.stopwatch import write_step_times

    algorithms = snakemake.params.algorithms
    write_step_times(
        parent=Path(snakemake.input.parent),
        problems=Path(snakemake.input.problems),
        settings=RL.model_validate(snakemake.params.rl),
        algorithms={name: Algorithm.model_validate(row) for name, row in algorithms.items()},
        rounds=snakemake.params.exhibit["rounds"],
        device=device_of(snakemake.params.device),
        output=Path(snakemake.output.table),
        manifest=manifest,
    )
