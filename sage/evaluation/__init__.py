"""From a policy to numbers: sample and grade, count, pass@k with intervals.

`verdicts.pass_at_k_with_intervals` works on verdicts from anywhere.
"""
