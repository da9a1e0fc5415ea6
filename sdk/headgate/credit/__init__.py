"""A session has one account at each destination, in which all its producers wait."""
