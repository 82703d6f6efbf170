# Tables and figures of measured exhibits. The registry of `sage.exhibits` knows what a kind makes.


rule table:
    """A table of an exhibit: CSV, LaTeX and the page's."""
    input:
        measured=measured_of,
        paper=paper_of,
        code=showing_code,
    output:
        csv=report(
            RESULTS.table("{table}"),
            caption="../../reports/captions/exhibit.rst",
            category=table_category,
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
        contents=contents,
    script:
        "../scripts/exhibit.py"


use rule table as figure with:
    input:
        measured=measured_of,
        code=showing_code,
    output:
        svg=report(
            RESULTS.figure("{figure}"),
            caption="../../reports/captions/exhibit.rst",
            category=figure_category,
            labels={"exhibit": "{figure}"},
        ),
        pdf=RESULTS.figure("{figure}", "pdf"),
    log:
        RESULTS.log("report/figures/{figure}"),
    wildcard_constraints:
        figure=one_of(FIGURES),


workflow.get_rule("figure").docstring = "A figure of an exhibit: SVG and PDF."
