"""Headgate's nodes and command line: stateless processes that serve what the scripts in Redis decide."""
