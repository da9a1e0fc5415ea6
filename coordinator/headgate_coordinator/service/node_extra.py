"""A check finds whether a node can run here at all."""

from headgate import HeadgateError


def why_no_node() -> str | None:
    """Return what is missing for nodes and how to get it, None when they can run."""
    try:
        import headgate_coordinator.service.service  # noqa: F401 -- only whether it can be imported; it takes its time
    except HeadgateError as error:  # the engine says itself what it needs
        return str(error)
    except ImportError as error:
        return f"install headgate[node]; import says: {error}"
    return None
