"""Rivals: other ways to keep coverage, one file a paper.

A file begins with its formula and source, and holds all that a method may choose of it: an
advantage, a credit rule, an estimator, a reward, a filter, a planner. Its public classes are found
by `sage.study.choices`. An entry of config/algorithms.yaml names a class by its `kind`, or by the
name of its file. Files import from `sage.method`, not from each other.
"""
