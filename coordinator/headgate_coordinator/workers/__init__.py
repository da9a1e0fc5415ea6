"""Workers: processes at one address, and the supervisor that begins, replaces and ends them."""
