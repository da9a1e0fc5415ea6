"""A namespace has destinations, a policy, topics and pools, and an administrator works on them."""
