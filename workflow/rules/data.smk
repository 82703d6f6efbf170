# On a cluster these run where Snakemake does: the first may need the network, which compute nodes
# often lack, and the others take seconds.
localrules:
    problems,
    contamination,
    decontaminate,


rule problems:
    input:
        code=code_of("sage.problems.sets"),
    output:
        problems=result("problems/{benchmark}.jsonl"),
    log:
        log_of("problems/{benchmark}"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(1000),
        runtime=growing(10),
    params:
        problem_set=problem_set,
    script:
        "../scripts/problems.py"


rule contamination:
    input:
        training=problem_files(training_sets()),
        benchmarks=problem_files(benchmark_sets()),
        code=code_of("sage.problems.contamination"),
    output:
        table=result("metrics/contamination.parquet"),
        csv=result("metrics/contamination.csv"),
        pairs=result("metrics/contamination_pairs.csv"),
    log:
        log_of("contamination"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        ngram=STUDY.study.contamination.ngram,
        share=STUDY.study.contamination.share,
    script:
        "../scripts/contamination.py"


rule decontaminate:
    input:
        training=result("problems/{benchmark}.jsonl"),
        benchmarks=benchmarks_beside,
        code=code_of("sage.problems.contamination"),
    output:
        problems=result("problems/decontaminated/{benchmark}.jsonl"),
    log:
        log_of("problems/decontaminated/{benchmark}"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    params:
        ngram=STUDY.study.contamination.ngram,
        share=STUDY.study.contamination.share,
    script:
        "../scripts/decontaminate.py"
