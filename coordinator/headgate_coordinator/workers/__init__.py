"""Workers are processes at one address, and a supervisor begins, replaces and ends them."""
