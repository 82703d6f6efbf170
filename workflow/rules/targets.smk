# Names to type: every exhibit of the study, the theory and the report; and what plans and checks.


rule theory:
    input:
        [
            exhibit_files(name)
            for name in ("figure1", "figure5", "appendix_c", "estimators")
        ],


rule report:
    input:
        RESULTS.page,


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
        folder=RESULTS.folder,
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
        folder=RESULTS.folder,
        device=SETTINGS.device,
        executor=executor,
    script:
        "../scripts/check.py"


for exhibit in SHOWN:
    if exhibit in [rule.name for rule in workflow.rules]:
        raise WorkflowError(
            f"study {STUDY.name}: exhibits.{exhibit}: this name is kept for a rule or for what "
            "every report has; choose another"
        )

    rule:
        name:
            exhibit
        input:
            exhibit_files(exhibit),
