#!/bin/bash
# Runs Snakemake itself as a small, long job. In the repository's root:
#
#   sbatch --time=14-00:00:00 profiles/slurm/controller.sh --config study=paper
#
# What stands before the file's name is for sbatch (--partition, --account), what follows it for
# Snakemake.
#SBATCH --job-name=sage
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --output=sage-%j.log

PATH="$PWD/.venv/bin:$PATH"

# These variables describe this job, and must not reach the jobs that Snakemake submits. The executor
# removes these as well, and would also remove SLURM_CONF, the place of SLURM's settings.
for name in $(compgen -e SLURM_); do
    [[ $name == SLURM_CONF ]] || unset "$name"
done

# It releases the lock of a controller that was killed, unless jobs of it are still in the queue.
exec sage-rlvr run --verbose --workflow-profile profiles/slurm "$@"
