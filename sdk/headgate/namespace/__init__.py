"""A namespace: its destinations, policy, topics, pools, and what an administrator does with them."""
