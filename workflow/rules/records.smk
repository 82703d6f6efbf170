# Checks results against their records, packs a finished study, and prepares it for publication.


# Computes the sums of all results again and fails if one does not match. It has no inputs, because
# it must not start other jobs.
rule verify:
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


# The study as one RO-Crate: workflow, settings, results and records.
rule archive:
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


# Cards, logbook and scores of a finished study. It has no outputs: `publish_to` may have changed, and
# an upload may have been incomplete.
rule publish:
    input:
        page=RESULTS.page,
        metrics=RESULTS.metrics("pass_at_k"),
        claims=RESULTS.metrics("claims"),
    log:
        RESULTS.log("publish"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
        to=SETTINGS.publish_to,
    script:
        "../scripts/publish.py"
