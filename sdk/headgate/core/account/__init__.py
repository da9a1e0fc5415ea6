"""One account is kept here without I/O: which call is due, what an answer means, and who waits."""
