"""The paper's claims: tests, evidence, verdicts and the ledger of them."""
