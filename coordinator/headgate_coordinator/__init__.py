"""Headgate's nodes and command line are stateless processes that serve what the scripts in Redis decide."""
