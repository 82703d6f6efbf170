# The report of a study that trains nothing: few seconds of work, so one job for all of it.


rule page:
    """The report, as one HTML page, with its metrics, tables and figures."""
    input:
        samples=all_samples(),
        problems=problem_files(STUDY.problem_sets()),
        parents=[RESULTS.rl_start(model) for model in STUDY.study.models],
        manifests=[path.with_suffix(".json") for path in all_samples()],
        sources=page_sources(),
        code=shown_code(),
    output:
        page=report(
            RESULTS.page,
            caption="../../reports/captions/page.rst",
            category="Report",
            labels={"page": "the whole report"},
        ),
        metrics=[RESULTS.metrics(name) for name in METRICS],
        evaluated=[directory(folder) for folder in all_evaluated()],
        tables=[
            RESULTS.table(name, end)
            for name in TABLES
            for end in ("csv", "tex", "json")
        ],
        figures=[
            RESULTS.figure(name, end) for name in FIGURES for end in ("svg", "pdf")
        ],
        excerpts=RESULTS.excerpts,
    log:
        RESULTS.log("report/page"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        study=STUDY.model_dump(mode="json"),
        folder=RESULTS.folder,
    script:
        "../scripts/whole_page.py"
