"""Rate limiters of models, with the real libraries."""
