"""A consumer has a window, deliveries to settle, and dead letters; a browser looks at stored messages."""
