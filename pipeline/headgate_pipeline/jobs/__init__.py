"""The jobs, each thin: where data comes from, where it goes, what is said on the way."""
