"""An audit replays each ledger, and its verdict says whether every promise held."""
