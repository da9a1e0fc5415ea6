"""A replay of measured demand under other limits, to answer what would have happened."""
