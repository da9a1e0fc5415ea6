"""Links of a policy, worked on by the nodes of a namespace."""
