"""The links of a policy are worked on by the nodes of a namespace."""
