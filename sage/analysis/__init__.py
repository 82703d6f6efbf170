"""What the samples and histories of a study show beyond pass@k.

`phrases` and `patterns` count reasoning patterns (Table 2), `perplexity` asks how likely the base
model finds a completion (Figure 7), `dynamics` reads training histories (Table 5, Figure 2),
`step_times` says what guides cost, and `case_study` chooses one problem to show (App. H). Drawing
and formatting are left to reporting.
"""
