"""The paper's claims: tests, evidence, verdicts and the ledger of them."""

CONTRASTS = "claims"
"""Name of the figure of all contrasts."""
