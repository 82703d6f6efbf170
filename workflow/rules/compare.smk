# A run held against a reference: `snakemake compare --cores 1 --config reference=FOLDER`.


# The table says what lies outside of what the reference's runs let expect; the rule fails if more
# does than chance allows.
rule compare:
    input:
        metrics=rules.metrics.output.pass_at_k,
        reference=file_of_reference,
    log:
        RESULTS.log("compare"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        table=RESULTS.metrics("compare", "csv"),
    script:
        "../scripts/compare.py"
