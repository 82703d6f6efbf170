# Problem sets, and training sets without the problems that are also in benchmarks.


rule problems:
    """A problem set, generated or read from its data set."""
    input:
        code=lambda w: code_of("problems", "sage.tasks", sets=[w.benchmark]),
    output:
        problems=RESULTS.problems("{benchmark}"),
    log:
        RESULTS.log("problems/{benchmark}"),
    # Short, and the first page waits for it.
    priority: 20
    conda:
        ENVIRONMENT
    params:
        data=lambda w: sums_of_set(w.benchmark),
        problem_set=problem_set,
    script:
        "../scripts/problems.py"


rule decontaminate:
    """A training set without its overlaps."""
    input:
        training=RESULTS.problems("{benchmark}"),
        benchmarks=other_benchmarks,
        code=code_of("decontaminate", "sage.problems.contamination"),
    output:
        problems=RESULTS.decontaminated("{benchmark}"),
    log:
        RESULTS.log("problems/decontaminated/{benchmark}"),
    conda:
        ENVIRONMENT
    params:
        ngram=STUDY.study.contamination.ngram,
        share=STUDY.study.contamination.share,
    script:
        "../scripts/decontaminate.py"
