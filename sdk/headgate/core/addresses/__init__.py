"""An address has a name that patterns match, found by an index, and options that a URL may carry."""
