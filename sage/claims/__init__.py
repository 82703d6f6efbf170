"""The paper's claims: tests, evidence, verdicts and the ledger of them."""

CONTRASTS = "claims"
"""Name of the figure of all contrasts."""

CONTRASTS_CAPTION = (
    "All contrasts of the claims: effect and 95 % interval. Squares are primary contrasts, with "
    "their margin as a band; dots are secondary ones. Open marks rest on one training run."
)
