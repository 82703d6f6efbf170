# What the audit of the grader reads.


def samples_by_benchmark():
    """Sample files of the study by the benchmark that they are of."""
    files = {}
    for path in all_samples():
        files.setdefault(path.stem, []).append(str(path))
    return files
