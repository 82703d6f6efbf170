# What `compare` reads besides the study's own metrics.


def file_of_reference(wildcards):
    """The reference's pass@k by training run; a missing one is an error before any job starts."""
    from sage.tools.compare import reference_file

    folder = SETTINGS.reference
    try:
        return str(reference_file(Path(folder) if folder else None))
    except (FileNotFoundError, ValueError) as error:
        raise WorkflowError(str(error)) from None
