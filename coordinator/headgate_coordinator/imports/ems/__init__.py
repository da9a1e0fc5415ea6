"""TIBCO EMS is read from ``tibemsd.conf``, and files of destinations, bridges, channels, routes and durables beside it.

A file is known by its name. Flow control is off until ``tibemsd.conf`` switches it on, and then holds those
destinations that have the property, while somebody consumes: so the product's document has it of versions before 8.4.
"""
