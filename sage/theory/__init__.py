"""The paper's theory, exact: every completion is enumerated, nothing is sampled.

`spaces` holds the enumerable spaces, `objectives` what is maximised, `stationary` the closed
forms. `support` checks the claim about what they reach, `estimators` says where a KL estimator used
as a loss really leads, and `toy` is Appendix C with numbers. Only guides and anchors of the package
are used.
"""
