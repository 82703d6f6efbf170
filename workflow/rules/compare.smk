# A run held against a kept run: `snakemake compare --cores 1 --config kept=FOLDER`.


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
