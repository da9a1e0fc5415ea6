"""The texts of scripts: what their arguments may be, what is left out on the way to Redis, and their libraries."""
