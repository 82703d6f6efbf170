# Named targets: every exhibit of the study, the theory, the report, the plan and the check.


rule theory:
    input:
        [
            exhibit_files(name)
            for name in ("figure1", "figure5", "appendix_c", "estimators")
        ],


rule report:
    input:
        RESULTS.page,


# Prints the study with what it extends merged in and every default written out: a study of its own.
rule resolved:
    log:
        RESULTS.log("resolved"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        study=STUDY.study.model_dump(mode="json"),
    script:
        "../scripts/resolved.py"


# Prints the cost of the study, from runs on disk or from the throughput in its models' `job`.
rule plan:
    log:
        RESULTS.log("plan"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
        config=CONFIG_FOLDER,
        option=SETTINGS.study,
    script:
        "../scripts/plan.py"


# Compares the study's needs with this machine and fails if one is not met. Snakemake reduces the
# request to its limit of `gpu`, so the script can see the limit.
rule check:
    log:
        RESULTS.log("check"),
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
            f"study {STUDY.name}: exhibits.{exhibit}: this name is reserved for a rule or for an "
            "exhibit of every report; choose another name"
        )

    rule:
        name:
            exhibit
        input:
            exhibit_files(exhibit),
