# What `compare` reads besides the study's own metrics.


def file_of_kept_run(wildcards):
    """The kept run's pass@k by training run; a missing one is an error before any job starts."""
    from sage.tools.compare import kept_file

    folder = SETTINGS.kept
    try:
        return str(kept_file(Path(folder) if folder else None))
    except (FileNotFoundError, ValueError) as error:
        raise WorkflowError(str(error)) from None
