"""A policy document as a policy.

The command `headgate policy` reads it, in a process of its own: documents belong to the nodes' side, and neither side
knows the other.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from headgate import InvalidValue
from headgate.core.policy import Policy
from headgate.namespace.policy_follower import GOVERNED


def read(file: Path, option: str = "--policy") -> Policy:
    """Return the policy in a file, the very one that ``headgate policy apply`` takes.

    Args:
        file: TOML, or JSON if its name ends so.
        option: that named it.

    Raises:
        InvalidValue: it cannot be read; all that is wrong with it, on a line each.
    """
    if find_spec("headgate_coordinator") is None:
        raise InvalidValue(
            f"{option}: only `headgate policy` reads documents; install it with: pip install 'headgate[node]'"
        )
    command = [sys.executable, "-P", "-m", "headgate_coordinator", "policy", "show", "--json", "--file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise InvalidValue(done.stderr.strip().replace("headgate: ", "") or f"{file}: it cannot be read")
    return Policy.from_json(done.stdout, defaults=GOVERNED)
