"""What commands say of a policy: the traps in it, and what it would change."""
