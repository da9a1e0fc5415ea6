"""Envoy's rate limit service: proxies ask a node, by descriptors, for what limiters admit."""
