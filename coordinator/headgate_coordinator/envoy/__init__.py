"""Envoy's rate limit service is served by a node: proxies ask it, by descriptors, for what limiters admit."""
