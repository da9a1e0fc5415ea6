"""Texts on the way to Redis and back: arguments of scripts, what is left out of these, libraries, answers to INFO."""
