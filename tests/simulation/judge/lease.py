"""The lease of each session of a history."""

import os
from typing import Final

TTL: Final = float(os.environ.get("HEADGATE_HISTORY_TTL", "3"))
"""Its seconds, a few, so that histories are short in which much waits for its end; clients have 10 by default."""
