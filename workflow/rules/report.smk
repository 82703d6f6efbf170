# Tables, figures and the page: light jobs that read metrics and histories.


# Seconds of work each: on a cluster they are done where Snakemake runs, not queued. Not so
# `excerpts`, which reads every sample.
localrules:
    accuracy_table,
    ablation_table,
    patterns_table,
    gradient_table,
    perplexity_table,
    step_times_table,
    perplexity_figure,
    curves_figure,
    training_figure,
    trajectory_figure,
    claims,
    page,
    report_partial,


rule accuracy_table:
    input:
        pass_at_k=rules.exhibit_metrics.output.pass_at_k,
        comparisons=rules.exhibit_metrics.output.comparisons,
        paper_reading=rules.exhibit_metrics.output.paper_reading,
        code=code_of("sage.reporting.accuracy", "sage.reporting.paper_reading"),
    output:
        csv=report(
            result("report/tables/{exhibit}.csv"),
            caption="../../reports/captions/accuracy.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "pass@k"},
        ),
        tex=result("report/tables/{exhibit}.tex"),
        reading_csv=report(
            result("report/tables/{exhibit}_reading.csv"),
            caption="../../reports/captions/reading.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "the paper's reading"},
        ),
        reading_tex=result("report/tables/{exhibit}_reading.tex"),
    log:
        log_of("report/tables/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("accuracy")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/accuracy_table.py"


rule ablation_table:
    input:
        pass_at_k=rules.exhibit_curves.output.pass_at_k,
        code=code_of("sage.reporting.ablation"),
    output:
        csv=report(
            result("report/tables/{exhibit}.csv"),
            caption="../../reports/captions/ablation.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "pass@k over settings"},
        ),
        tex=result("report/tables/{exhibit}.tex"),
    log:
        log_of("report/tables/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("ablation")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/ablation_table.py"


rule patterns_table:
    input:
        table=rules.patterns.output.table,
        code=code_of("sage.reporting.measures"),
    output:
        csv=report(
            result("report/tables/{exhibit}.csv"),
            caption="../../reports/captions/patterns.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "reasoning patterns"},
        ),
        tex=result("report/tables/{exhibit}.tex"),
    log:
        log_of("report/tables/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("patterns")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/patterns_table.py"


rule gradient_table:
    input:
        table=rules.gradient_norms.output.table,
        code=code_of("sage.reporting.measures"),
    output:
        csv=report(
            result("report/tables/{exhibit}.csv"),
            caption="../../reports/captions/gradient_norms.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "gradient norms"},
        ),
        tex=result("report/tables/{exhibit}.tex"),
    log:
        log_of("report/tables/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("gradient_norms")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/gradient_table.py"


rule perplexity_table:
    input:
        table=rules.perplexity.output.table,
        code=code_of("sage.reporting.measures", "sage.analysis.perplexity"),
    output:
        csv=report(
            result("report/tables/{exhibit}.csv"),
            caption="../../reports/captions/perplexity_tails.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "tails of perplexity"},
        ),
        tex=result("report/tables/{exhibit}.tex"),
    log:
        log_of("report/tables/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("perplexity")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/perplexity_table.py"


rule step_times_table:
    input:
        table=rules.step_times.output.table,
        code=code_of("sage.reporting.measures"),
    output:
        csv=report(
            result("report/tables/{exhibit}.csv"),
            caption="../../reports/captions/step_times.rst",
            category="Tables",
            labels={"exhibit": "{exhibit}", "shows": "what guides cost"},
        ),
        tex=result("report/tables/{exhibit}.tex"),
    log:
        log_of("report/tables/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("step_times")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/step_times_table.py"


rule perplexity_figure:
    input:
        table=rules.perplexity.output.table,
        code=code_of("sage.reporting.figures_measured"),
    output:
        svg=report(
            result("report/figures/{exhibit}.svg"),
            caption="../../reports/captions/perplexity.rst",
            category="Figures",
            labels={"exhibit": "{exhibit}", "shows": "perplexity"},
        ),
        pdf=result("report/figures/{exhibit}.pdf"),
    log:
        log_of("report/figures/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("perplexity")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/perplexity_figure.py"


rule curves_figure:
    input:
        pass_at_k=rules.exhibit_curves.output.pass_at_k,
        code=code_of("sage.reporting.figures_measured"),
    output:
        svg=report(
            result("report/figures/{exhibit}.svg"),
            caption="../../reports/captions/curves.rst",
            category="Figures",
            labels={"exhibit": "{exhibit}", "shows": "pass@k"},
        ),
        pdf=result("report/figures/{exhibit}.pdf"),
    log:
        log_of("report/figures/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("curves")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/curves_figure.py"


rule training_figure:
    input:
        policies=exhibit_policies,
        code=code_of("sage.reporting.figures_measured", "sage.analysis.dynamics"),
    output:
        svg=report(
            result("report/figures/{exhibit}.svg"),
            caption="../../reports/captions/training.rst",
            category="Figures",
            labels={"exhibit": "{exhibit}", "shows": "training"},
        ),
        pdf=result("report/figures/{exhibit}.pdf"),
    log:
        log_of("report/figures/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("training")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/training_figure.py"


rule trajectory_figure:
    input:
        table=rules.trajectory.output.table,
        policies=exhibit_policies,
        code=code_of("sage.reporting.figures_measured", "sage.analysis.dynamics"),
    output:
        svg=report(
            result("report/figures/{exhibit}.svg"),
            caption="../../reports/captions/trajectory.rst",
            category="Figures",
            labels={"exhibit": "{exhibit}", "shows": "reward and accuracy"},
        ),
        pdf=result("report/figures/{exhibit}.pdf"),
    log:
        log_of("report/figures/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(exhibits_of("trajectory")),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/trajectory_figure.py"


rule claims:
    input:
        claims="config/claims.yaml",
        comparisons=rules.metrics.output.comparisons,
        exhibits=measured_exhibits(),
        policies=all_policies(),
        code=code_of("sage.claims.ledger"),
    output:
        table=report(
            result("metrics/claims.parquet"),
            caption="../../reports/captions/claims.rst",
            category="Tables",
            labels={"exhibit": "claims", "shows": "verdicts"},
        ),
        csv=result("metrics/claims.csv"),
    log:
        log_of("metrics/claims"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/claims.py"


rule excerpts:
    input:
        samples=all_samples(),
        problems=problem_files(benchmark_sets()),
        code=code_of("sage.reporting.browser"),
    output:
        excerpts=result("report/samples.json"),
    log:
        log_of("report/samples"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/excerpts.py"


rule page:
    input:
        metrics=rules.metrics.output,
        claims=rules.claims.output.table,
        contamination=rules.contamination.output.csv,
        excerpts=rules.excerpts.output.excerpts,
        tables=table_files(),
        figures=figure_files(),
        cases=expand(rules.select_case.output.case, exhibit=exhibits_of("case_study")),
        problems=problem_files(used_problem_sets(STUDY)),
        policies=all_policies(),
        bases=expand(result("models/{model}/base"), model=STUDY.study.models),
        manifests=sample_manifests(),
        template="reports/template.html.j2",
        sources=page_sources(),
        code=code_of("sage.reporting.page"),
    output:
        page=report(
            result("report/index.html"),
            caption="../../reports/captions/page.rst",
            category="Report",
            labels={"page": "the whole report"},
        ),
    log:
        log_of("report/page"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
        folder=study_folder,
    script:
        "../scripts/page.py"


# A report of what is there. It has no inputs, for it must not make any, and no outputs, so that
# it is made anew whenever it is asked for.
rule report_partial:
    log:
        log_of("report/partial"),
    conda:
        ENVIRONMENT
    params:
        study=STUDY.model_dump(mode="json"),
        folder=study_folder,
        reports="reports",
        config="config",
    script:
        "../scripts/report_partial.py"
