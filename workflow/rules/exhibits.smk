# Metrics of the whole study. Measures each exhibit into its own folder, and shows it as tables and figures. The registry of
# `sage.exhibits` knows what a kind needs and makes. Exhibits that need a model are measured by a
# rule of their own, because their jobs need other resources.


localrules:
    metrics,
    table,
    figure,


# Measured once, shown by many exhibits.
rule evaluate:
    """All metrics of a model's methods on a benchmark."""
    input:
        samples=samples_of_all,
        problems=RESULTS.problems("{benchmark}"),
        code=code_of("evaluate", "sage.evaluation.metrics"),
    output:
        folder=directory(RESULTS.evaluated("{model}", "{benchmark}")),
    log:
        RESULTS.log("evaluation/{model}/{benchmark}"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/evaluate.py"


rule metrics:
    """pass@k, comparisons and support of the whole study."""
    input:
        evaluated=all_evaluated(),
        code=code_of("metrics", "sage.evaluation.metrics"),
    output:
        counts=RESULTS.metrics("counts"),
        pass_at_k=RESULTS.metrics("pass_at_k"),
        rates=RESULTS.metrics("rates"),
        comparisons=RESULTS.metrics("comparisons"),
        support=RESULTS.metrics("support"),
        paper_reading=RESULTS.metrics("paper_reading"),
        chance=RESULTS.metrics("chance"),
    log:
        RESULTS.log("metrics"),
    conda:
        ENVIRONMENT
    params:
        bases=STUDY.study.bases,
        bootstrap=STUDY.study.evaluation.bootstrap,
    script:
        "../scripts/metrics.py"


rule measure:
    """What an exhibit measures."""
    input:
        unpack(inputs_of),
        code=measuring_code,
    output:
        folder=directory(RESULTS.measured("{exhibit}")),
    log:
        RESULTS.log("metrics/{exhibit}"),
    wildcard_constraints:
        exhibit=one_of(WITHOUT_MODEL),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        exhibit=exhibit_settings,
        settings=lambda w: kind_of(STUDY, w.exhibit).settings(STUDY, w.exhibit),
        shards=lambda w: RESULTS.exhibit_shards(w.exhibit),
        device="cpu",
    script:
        "../scripts/measure.py"


use rule measure as measure_with_model with:
    wildcard_constraints:
        exhibit=one_of(WITH_MODEL),
    priority: 3  # as `sample_priority`
    resources:
        gpu=gpus,
        gpus_asked=gpus,
        mem_mb=memory,
        runtime=minutes,
    params:
        exhibit=exhibit_settings,
        settings=lambda w: kind_of(STUDY, w.exhibit).settings(STUDY, w.exhibit),
        shards=lambda w: RESULTS.exhibit_shards(w.exhibit),
        device=SETTINGS.device,


rule table:
    """A table of an exhibit: CSV, LaTeX and the page's."""
    input:
        measured=measured_of,
        paper=paper_of,
        code=lambda w: code_of("exhibit", type(shown_by(w)).__module__),
    output:
        csv=report(
            RESULTS.table("{table}"),
            caption="../../reports/captions/exhibit.rst",
            category=lambda w: shown_by(w).category or "Tables",
            labels={"exhibit": "{table}"},
        ),
        tex=RESULTS.table("{table}", "tex"),
        page=RESULTS.table("{table}", "json"),
    log:
        RESULTS.log("report/tables/{table}"),
    wildcard_constraints:
        table=one_of(TABLES),
    conda:
        ENVIRONMENT
    params:
        study=shown_study,
        piece=piece_of,
        contents=lambda w: shown_by(w).contents,
    script:
        "../scripts/exhibit.py"


use rule table as figure with:
    input:
        measured=measured_of,
        code=lambda w: code_of("exhibit", type(shown_by(w)).__module__),
    output:
        svg=report(
            RESULTS.figure("{figure}"),
            caption="../../reports/captions/exhibit.rst",
            category=lambda w: shown_by(w).category or "Figures",
            labels={"exhibit": "{figure}"},
        ),
        pdf=RESULTS.figure("{figure}", "pdf"),
    log:
        RESULTS.log("report/figures/{figure}"),
    wildcard_constraints:
        figure=one_of(FIGURES),


if not AS_MODULE:
    workflow.get_rule("figure").docstring = "A figure of an exhibit: SVG and PDF."
