# What `compare` reads besides the study's own metrics.


def file_of_kept_run(wildcards):
    """The kept run's pass@k by training run; a missing one, of either side, ends the run."""
    from sage.tools.kept_run import kept_file, own_metrics

    folder = SETTINGS.kept
    try:
        kept = kept_file(Path(folder) if folder else None)
        own_metrics(RESULTS.metrics("pass_at_k"), STUDY.option)
        return str(kept)
    except (FileNotFoundError, ValueError) as error:
        refuse(error)
