"""The account of a session at one destination, in which all its producers wait."""
