from pathlib import Path

from sage.runtime.job import job

with job(snakemake):
    import pandas as pd

    from sage.reporting.latex import write_table
    from sage.reporting.measures import step_times_caption, step_times_latex, step_times_table
    from sage.study import ResolvedStudy

    study = ResolvedStudy.model_validate(snakemake.params.study)
    exhibit = snakemake.wildcards.exhibit
    table = step_times_table(pd.read_parquet(snakemake.input.table), study, exhibit)
    latex = step_times_latex(table, step_times_caption(table, study, exhibit))
    write_table(table, latex, Path(snakemake.output.csv), Path(snakemake.output.tex))
