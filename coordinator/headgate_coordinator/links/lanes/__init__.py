"""A lane brings messages of a link to one slice of its target, where values say the slice."""
