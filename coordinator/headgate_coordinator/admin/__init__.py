"""Admin HTTP serves health, metrics, a JSON API and the live page, in a node or by itself.

:func:`create_app` makes the application, :class:`AdminServer` serves it in the event loop that is running.
"""

from headgate_coordinator.admin.app import create_app
from headgate_coordinator.admin.serve import AdminServer

__all__ = ["AdminServer", "create_app"]
