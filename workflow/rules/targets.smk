# Named targets: every exhibit of the study, the theory, the report, the plan and the check.


# It has no inputs, because it must not start other jobs, and no outputs, so that it is made again
# whenever it is requested.
rule report_partial:
    """A report of the results so far; starts no other job."""
    log:
        RESULTS.log("report/partial"),
    conda:
        ENVIRONMENT
    script:
        "../scripts/report_partial.py"


rule resolved:
    """Prints the study with what it extends and every default: a study of its own."""
    log:
        RESULTS.log("resolved"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        study=STUDY.study.model_dump(mode="json"),
    script:
        "../scripts/resolved.py"


# From runs on disk, from those that were measured, or from the speeds in its models' `job`.
rule plan:
    """Prints the cost of the study: jobs, tokens, hours and disk."""
    log:
        RESULTS.log("plan"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
        gpu_limit=gpu_limit,
        config=CONFIG_FOLDER,
        option=SETTINGS.study,
        device=SETTINGS.device,
        executor=executor,
    script:
        "../scripts/plan.py"


rule check:
    """Compares the study's needs with this machine; fails if one is not met."""
    log:
        RESULTS.log("check"),
    retries: 0
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
        device=SETTINGS.device,
        gpu_limit=gpu_limit,
        executor=executor,
    script:
        "../scripts/check.py"


# The exhibits of a target. It waits for what they need alone, and makes them beside the report of
# the results so far: `report` makes all, and so needs all runs.
NAMED = {exhibit: [exhibit] for exhibit in SHOWN}
if theory := [name for name in SHOWN if shows(STUDY, name).category == "Theory"]:
    NAMED["theory"] = theory


for target, exhibits in NAMED.items():
    if target in [rule.name for rule in workflow.rules]:
        refuse(
            f"study {STUDY.name}: exhibits.{target}: this name is reserved for a rule or for an "
            "exhibit of every report; choose another name"
        )

    rule:
        name:
            target
        input:
            needed_by(*exhibits),
        log:
            RESULTS.log(f"report/{target}"),
        conda:
            ENVIRONMENT
        resources:
            mem_mb=growing(8000),
            runtime=growing(60),
        params:
            exhibits=exhibits,
        script:
            "../scripts/report_partial.py"

    if not AS_MODULE:  # where the rule may have another name
        workflow.get_rule(target).docstring = "; ".join(map(exhibit_line, exhibits))
