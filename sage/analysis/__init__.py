"""Analyses of samples and histories beyond pass@k.

`phrases` and `patterns` count reasoning patterns (Table 2), `perplexity` measures how likely
completions are under the base model (Figure 7), `dynamics` reads training histories (Table 5,
Figure 2), `step_times` measures the overhead of guides, `equal_tokens` compares methods at an equal
number of drawn tokens, and `case_study` chooses one problem to show (App. H). Drawing and
formatting are left to `sage.exhibits`.
"""
