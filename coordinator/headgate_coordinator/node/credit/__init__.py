"""The credit of one node at each destination, which all clients that send there through it share."""
