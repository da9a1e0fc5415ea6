"""A job writes ledgers to Parquet, each entry once, and a publisher puts its files in place."""
