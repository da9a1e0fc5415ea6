"""A limiter is kept here without I/O: amounts and keys, holds in line and held, and slices in hand."""
