"""What the pipeline costs, on ledgers that are filled here."""
