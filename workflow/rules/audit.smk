# How often the grader may err on the study's samples: `snakemake audit --cores 1`.


rule audit_grading:
    """How often the grader may err on the study's samples."""
    input:
        samples=all_samples(),
        problems=problem_files(samples_by_benchmark()),
        code=code_of("audit", "sage.grading.audit"),
    output:
        counts=RESULTS.audit("counts"),
        suspects=RESULTS.audit("suspects"),
    log:
        RESULTS.log("audit"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(6000),
        runtime=growing(60),
    params:
        samples=samples_by_benchmark(),
    script:
        "../scripts/audit.py"


rule audit:
    """Prints how often the grader may err on the study's samples."""
    input:
        counts=rules.audit_grading.output.counts,
        suspects=rules.audit_grading.output.suspects,
    log:
        RESULTS.log("audit_shown"),
    conda:
        ENVIRONMENT
    script:
        "../scripts/show_audit.py"
