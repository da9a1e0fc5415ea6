"""Text goes to Redis and comes back: arguments of scripts, what is left out of these, libraries, answers to INFO."""
