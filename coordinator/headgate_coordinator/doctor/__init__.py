"""The doctor examines the Redis that Headgate is to stand on: facts are collected first, and judged without I/O."""
