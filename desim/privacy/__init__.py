"""What the agents reveal: mechanisms and the ledger of releases."""
