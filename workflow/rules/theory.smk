# What needs no run: figures and numbers of the theory, and the settings as tables.


# Seconds of work: on a cluster it is done where Snakemake runs, not queued.
localrules:
    theory_figure,
    toy_table,
    settings_tables,


rule theory_figure:
    input:
        code=code_of("sage.reporting.figures_theory"),
    output:
        svg=report(
            result("report/figures/{figure}.svg"),
            caption="../../reports/captions/theory.rst",
            category="Theory",
            labels={"exhibit": "{figure}"},
        ),
        pdf=result("report/figures/{figure}.pdf"),
    log:
        log_of("report/figures/{figure}"),
    wildcard_constraints:
        figure=one_of(THEORY_FIGURES),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    script:
        "../scripts/theory_figure.py"


rule toy_table:
    input:
        code=code_of("sage.reporting.toy"),
    output:
        csv=report(
            result("report/tables/appendix_c.csv"),
            caption="../../reports/captions/appendix_c.rst",
            category="Theory",
            labels={"exhibit": "appendix_c"},
        ),
        tex=result("report/tables/appendix_c.tex"),
    log:
        log_of("report/tables/appendix_c"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    script:
        "../scripts/toy_table.py"


rule settings_tables:
    input:
        code=code_of("sage.reporting.settings"),
    output:
        sft_csv=report(
            result("report/tables/table7.csv"),
            caption="../../reports/captions/settings.rst",
            category="Tables",
            labels={"exhibit": "table7", "shows": "settings of SFT"},
        ),
        sft_tex=result("report/tables/table7.tex"),
        rl_csv=report(
            result("report/tables/table8.csv"),
            caption="../../reports/captions/settings.rst",
            category="Tables",
            labels={"exhibit": "table8", "shows": "settings of RL"},
        ),
        rl_tex=result("report/tables/table8.tex"),
    log:
        log_of("report/tables/settings"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        study=STUDY.model_dump(mode="json"),
    script:
        "../scripts/settings_tables.py"
