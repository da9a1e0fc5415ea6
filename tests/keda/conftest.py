"""The external scaler as KEDA sees it."""

from tests.envoy.conftest import HERE, client, url

collect_ignore = [] if HERE else ["test_scaler.py"]
__all__ = ["client", "url"]
