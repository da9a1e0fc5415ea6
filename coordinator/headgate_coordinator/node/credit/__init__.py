"""A node has credit at each destination, which all clients that send there through it share."""
