# Problem sets, and which training problems are also in benchmarks.


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


rule overlaps:
    """Training problems that also occur in benchmarks."""
    input:
        training=problem_files(STUDY.training_sets()),
        benchmarks=problem_files(STUDY.benchmark_sets()),
        code=code_of("overlaps", "sage.problems.contamination"),
    output:
        folder=directory(RESULTS.measured("contamination")),
    log:
        RESULTS.log("metrics/contamination"),
    conda:
        ENVIRONMENT
    params:
        ngram=STUDY.study.contamination.ngram,
        share=STUDY.study.contamination.share,
    script:
        "../scripts/overlaps.py"


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
