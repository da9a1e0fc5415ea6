"""An address is matched by patterns, which an index finds, and may have options in a URL."""
