# The report: metrics, tables, figures, excerpts, claims and the page, in one job. What needs a model
# has been measured by jobs of their own.


rule report:
    """The report, as one HTML page, with its metrics, tables, figures and claims."""
    input:
        exhibits=needed_by(*SHOWN),
        samples=all_drawn(),
        problems=problem_files(STUDY.problem_sets()),
        policies=all_policies(),
        parents=[RESULTS.rl_start(model) for model in STUDY.study.models],
        claims=file_of_claims(),
        sources=page_sources(),
        code=report_code(),
    output:
        page=report(
            RESULTS.page,
            caption="../../reports/captions/page.rst",
            category="Report",
            labels={"page": "the whole report"},
        ),
        claims=report(
            RESULTS.metrics("claims"),
            caption="../../reports/captions/claims.rst",
            category="Tables",
            labels={"exhibit": "claims"},
        ),
        claims_csv=RESULTS.metrics("claims", "csv"),
        contrasts=[RESULTS.figure(CONTRASTS, end) for end in ("svg", "pdf")],
        metrics=[RESULTS.metrics(name) for name in METRICS],
        evaluated=[directory(folder) for folder in all_evaluated()],
        measured=[directory(RESULTS.measured(name)) for name in WITHOUT_MODEL],
        tables=[
            report(RESULTS.table(name), **said_of(owner, "Tables"))
            for name, owner in TABLES.items()
        ],
        forms=[RESULTS.table(name, end) for name in TABLES for end in ("tex", "json")],
        figures=[
            report(RESULTS.figure(name), **said_of(owner, "Figures"))
            for name, owner in FIGURES.items()
        ],
        prints=[RESULTS.figure(name, "pdf") for name in FIGURES],
        excerpts=RESULTS.excerpts,
    log:
        RESULTS.log("report/page"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
    script:
        "../scripts/report.py"


rule first_page:
    """A report of one run of each method that the headlines compare, as soon as these are there."""
    input:
        samples=dict.fromkeys(RESULTS.drawn(run) for run, _ in FIRST),
    output:
        done=RESULTS.first_page,
    log:
        RESULTS.log("report/first_page"),
    priority: 20
    conda:
        ENVIRONMENT
    script:
        "../scripts/report_partial.py"
