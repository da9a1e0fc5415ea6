"""Ledgers to read, written fast: entries as scripts write them, by a script in Redis."""

from headgate.redis.bulk import BulkConnections
from headgate.redis.keys import Address

NAMESPACE = "bench"
LEDGERS = 4
_FILL = """
for seq = ARGV[1], ARGV[2] do
  redis.call('XADD', KEYS[1], string.format('%d-0', seq), 'e', string.format(
    '1,%d,publish,billing~1a2b3c4d,%d,1,%d,unblock:billing~1a2b3c4d:12;grant:billing~1a2b3c4d:%d:%d,%d,%d,%d,1,%d',
    1763600000000 + seq, seq % 9000, seq, seq * 9, seq, seq % 90000, seq % 100, seq % 5000, 1763600000000))
end
"""


def fill(url: str, count: int) -> None:
    """Write so many entries, spread over a few ledgers."""
    direct = BulkConnections(url)
    for number in range(LEDGERS):
        key = Address.of(NAMESPACE, f"orders.{number}").shared[-1]
        for first in range(1, count // LEDGERS + 1, 5000):
            last = min(first + 4999, count // LEDGERS)
            direct.home(key).eval(_FILL, 1, key, first, last)
    direct.close()
