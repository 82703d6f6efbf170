# Checks results against their records, and packs a finished study.


# It has no inputs, because it must not start other jobs.
rule verify:
    """Computes the sums of all results again; fails if one does not match. Starts no other job."""
    log:
        RESULTS.log("verify"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        data=data_of_jobs,
        folder=RESULTS.folder,
    script:
        "../scripts/verify.py"


rule archive:
    """The study as one RO-Crate: workflow, settings, results and records."""
    input:
        page=RESULTS.page,
        code=code_of("sage.tools.archive"),
    output:
        archive=RESULTS.archive,
    log:
        RESULTS.log("archive"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
    script:
        "../scripts/archive.py"
