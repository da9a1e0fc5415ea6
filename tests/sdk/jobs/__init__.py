"""Jobs that are put off, with the real libraries and real workers."""
