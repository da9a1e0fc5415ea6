"""The table of a policy document that is a spool store."""

from pydantic import Field

from headgate.policy.forms import LimitSize, Name, Percent, Size, StoreFull, StoreUrl
from headgate.policy.tables import Table


class StoreTable(Table):
    """Where payloads go for which memory has no room; destinations name it with ``when_full = "spool"``."""

    name: Name
    url: StoreUrl = Field(description="where segments are, as fsspec reads it; without user, password and options")
    limit: LimitSize = Field(None, description="bytes of segments at the most; or percent of total")
    percent: Percent = Field(None, description="of total")
    total: Size = Field(None, description="bytes; stated, not compared with any disk")
    segment: Size = Field(None, description="bytes of payload in one segment, about; 4 KiB to 64 MiB, else 1 MiB")
    when_full: StoreFull = Field(None, description="what sends do that find neither memory nor room here")
