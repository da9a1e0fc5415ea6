"""The proof: each ledger is replayed, and a verdict says whether every promise held."""
