"""From a policy to numbers: sample and grade, count, pass@k with intervals.

`pass_at_k.pass_at_k_with_intervals` works on verdicts from anywhere.
"""
