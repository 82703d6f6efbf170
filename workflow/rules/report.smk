# The ledger of claims, the samples that the page shows, and the page.


localrules:
    claims,


rule claims:
    """The verdicts on the claims of the paper."""
    input:
        claims=file_of_claims(),
        comparisons=RESULTS.metrics("comparisons"),
        chance=RESULTS.metrics("chance"),
        exhibits=evidence(),
        policies=all_policies(),
        code=code_of("claims", "sage.claims.ledger", "sage.claims.figure"),
    output:
        table=report(
            RESULTS.metrics("claims"),
            caption="../../reports/captions/claims.rst",
            category="Tables",
            labels={"exhibit": "claims"},
        ),
        csv=RESULTS.metrics("claims", "csv"),
        svg=RESULTS.figure("claims"),
        pdf=RESULTS.figure("claims", "pdf"),
    log:
        RESULTS.log("metrics/claims"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.seen_by().model_dump(mode="json"),
        claims=STUDY.study.model_dump(mode="json")["claims"],
    script:
        "../scripts/claims.py"


rule excerpts:
    """The completions that the page shows."""
    input:
        samples=all_samples(),
        problems=problem_files(STUDY.benchmark_sets()),
        code=code_of("excerpts", "sage.report.browser"),
    output:
        excerpts=RESULTS.excerpts,
    log:
        RESULTS.log("report/samples"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    script:
        "../scripts/excerpts.py"


rule page:
    """The report, as one HTML page."""
    input:
        metrics=rules.metrics.output,
        claims=[rules.claims.output.table, rules.claims.output.svg],
        excerpts=rules.excerpts.output.excerpts,
        measured=[RESULTS.measured(name) for name in MEASURED],
        tables=[RESULTS.table(name) for name in TABLES],
        figures=[RESULTS.figure(name) for name in FIGURES],
        problems=problem_files(STUDY.problem_sets()),
        policies=all_policies(),
        parents=[RESULTS.rl_start(model) for model in STUDY.study.models],
        manifests=[path.with_suffix(".json") for path in all_samples()],
        sources=page_sources(),
        code=code_of("page", "sage.report.page"),
    output:
        page=report(
            RESULTS.page,
            caption="../../reports/captions/page.rst",
            category="Report",
            labels={"page": "the whole report"},
        ),
    log:
        RESULTS.log("report/page"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
    script:
        "../scripts/page.py"


rule first_page:
    """A report of one run of each method that the headlines compare, as soon as these are there."""
    input:
        samples=first_samples(),
    output:
        done=RESULTS.first_page,
    log:
        RESULTS.log("report/first_page"),
    priority: 20
    conda:
        ENVIRONMENT
    script:
        "../scripts/first_page.py"
