# A run held against a kept run: `snakemake compare --cores 1 --config kept=FOLDER`.


# The table says what lies outside of what the kept runs let expect; the rule fails if more
# does than chance allows.
rule compare:
    input:
        metrics=rules.metrics.output.pass_at_k,
        kept=file_of_kept_run,
    log:
        RESULTS.log("compare"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        table=RESULTS.metrics("compare", "csv"),
    script:
        "../scripts/compare.py"
