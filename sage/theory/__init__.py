"""The paper's theory, exact: every completion is enumerated, nothing is sampled.

`spaces` holds the enumerable spaces, `credit` where a KL estimator used as a loss really leads,
`toy` the claim about what stationary policies reach and Appendix C with numbers, `figures` the data
of the conceptual figures. Only guides and anchors of the package are used.
"""
