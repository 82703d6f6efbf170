from pathlib import Path

from sage.runtime.job import device_of, job
from sage.runtime.shared_imports import MODELS

if __name__ == "__main__":  # vLLM's child processes run this file again, but not this part
    with job(snakemake, MODELS) as manifest:
        from sage.evaluation.samples import evaluate_all
        from sage.problems.record import read_problems
        from sage.study import Draws
        from sage.study.without_effect import of_job

        settings = {
            **snakemake.params.evaluation,
            "batch_size": snakemake.params.batch_size,
            **of_job(snakemake.wildcards.model, "evaluation"),
        }
        evaluate_all(
            base=Path(snakemake.input.base),
            policy=Path(snakemake.input.policy) if snakemake.input.get("policy") else None,
            problems={Path(p).stem: read_problems(Path(p)) for p in snakemake.input.problems},
            settings=Draws.model_validate(settings),
            device=device_of(snakemake.params.device),
            model=snakemake.wildcards.model,
            train_seed=int(snakemake.wildcards.seed),
            shards=Path(snakemake.params.shards),
            output=Path(snakemake.output.samples),
            manifest=manifest,
        )
