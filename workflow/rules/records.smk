# Checks results against their records and against a kept run (--config kept=FOLDER), and packs
# a finished study.


# The table says what lies outside of what the kept runs let expect; the rule fails if more
# does than chance allows. The study's own metrics are no input, because it must not start a study.
rule compare:
    """Compares the finished study with a kept run (--config kept=FOLDER); fails if they differ."""
    input:
        kept=file_of_kept_run,
    log:
        RESULTS.log("compare"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        metrics=RESULTS.metrics("pass_at_k"),
        table=RESULTS.metrics("compare", "csv"),
    script:
        "../scripts/compare.py"


# It has no inputs, because it must not start other jobs.
rule verify:
    """Reads all results again; fails if one is not what today's study makes. Starts no other job."""
    log:
        RESULTS.log("verify"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        today=todays_jobs,
        unrecorded=lambda w: LAST[-1].unrecorded,
        folder=RESULTS.folder,
        again=AGAIN,
    script:
        "../scripts/verify.py"


rule archive:
    """The study as one RO-Crate: workflow, settings, results and records."""
    input:
        page=RESULTS.page,
        code=code_of("archive", "sage.tools.archive"),
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
