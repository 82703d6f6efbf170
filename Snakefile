"""Reproduces "SAGE: Shaping Anchors for Guided Exploration in RLVR of LLMs".

The study named in config/config.yaml decides what is run; see README.md.
"""

from snakemake.utils import min_version

min_version("9.27.1")


configfile: "config/config.yaml"


# Used with `--software-deployment-method apptainer` only; container/sage.def makes it.
container: "container/sage.sif"


include: "workflow/rules/common.smk"
include: "workflow/rules/inputs.smk"
include: "workflow/rules/shown.smk"
include: "workflow/rules/resources.smk"
include: "workflow/rules/starting.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/base.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/records.smk"
include: "workflow/rules/targets.smk"


onstart:
    hold_results()
    refuse_what_is_missing()
    warn_of_untested()
    os.environ[COMMIT] = git_commit()
    register_study()
    note_owner(Path.cwd(), executor(None))
    let_scheduler_sleep()


onsuccess:
    say_results()


onerror:
    from sage.tools.progress import STOPPED

    needed = {job.rule.name for job in workflow.dag.needrun_jobs()}
    if needed - {*TELLING} and not STOPPED:
        print(ON_ERROR)


rule all:
    """Everything: the report of the study that config/config.yaml names."""
    default_target: True
    input:
        RESULTS.page,
        [RESULTS.first_page] * bool(FIRST),


refuse_unknown_targets()
compare_with_records()
