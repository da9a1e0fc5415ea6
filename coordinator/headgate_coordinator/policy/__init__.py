"""`headgate policy` reports on a policy: the traps in it, and what it would change."""
