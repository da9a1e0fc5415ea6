"""A ledger's entries are read from Redis or bytes, parsed into columns, and offered to Spark as a source."""
