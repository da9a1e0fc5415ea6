"""Texts are read and written here on the way to Redis and back.

They are arguments of scripts, what is left out of these, libraries, and answers to INFO.
"""
