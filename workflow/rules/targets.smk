# Names to type: every exhibit of the study, the theory and the report.


for exhibit in [
    *STUDY.study.exhibits,
    *SETTINGS_TABLES,
    *THEORY_TABLES,
    *THEORY_FIGURES,
]:

    rule:
        name:
            exhibit
        input:
            exhibit_files(exhibit),


rule theory:
    input:
        [exhibit_files(name) for name in [*THEORY_TABLES, *THEORY_FIGURES]],


rule report:
    input:
        rules.page.output.page,


localrules:
    plan,
    check,


# Prints what the study will cost, from runs on disk or the throughput its models name.
rule plan:
    log:
        log_of("plan"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=study_folder,
    script:
        "../scripts/plan.py"


# Holds the study's needs against this machine; fails if one is not met. Snakemake's limit of
# `gpu` cuts the request down, which is how the script knows it.
rule check:
    log:
        log_of("check"),
    retries: 0
    conda:
        ENVIRONMENT
    resources:
        gpu=gpus_of_largest_job,
    params:
        study=STUDY.model_dump(mode="json"),
        folder=study_folder,
        device=SETTINGS.device,
        executor=executor,
    script:
        "../scripts/check.py"
