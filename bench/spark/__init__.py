"""The cost of the pipeline, on ledgers that are filled here."""
