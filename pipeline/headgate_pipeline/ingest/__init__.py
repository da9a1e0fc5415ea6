"""The job that copies ledgers to Parquet, each entry once, and what publishes its files."""
