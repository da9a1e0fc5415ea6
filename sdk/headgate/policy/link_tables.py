"""A policy document has tables about links: bridges, routes, and the sites and zones that these name."""

from typing import Literal

from pydantic import Field, model_validator

from headgate.policy.tables import Table
from headgate.policy.value_forms import (
    DurabilityText,
    Hops,
    Name,
    Names,
    Rate,
    Replicas,
    SelectorText,
    SiteName,
    SiteUrl,
    Tenant,
    Topics,
)


class SiteTable(Table):
    """A site is another deployment, which bridges and routes may lead to."""

    name: SiteName = Field(description="what all sites call it")
    url: SiteUrl = Field(
        description="of its Redis, without a password; env:HEADGATE_SITE_NAME and file:name say where nodes find it"
    )
    namespace: Tenant = Field(None, description="of its destinations; else the same as here")


class ZoneTable(Table):
    """A zone is a set of sites that route to one another."""

    name: SiteName
    hops: Literal["one", "many"] = Field(
        description="one: what came by a route of the zone goes over no other of it, for sites that all route to all"
    )


class LinkTable(Table):
    """The common part of bridges and routes."""

    name: Name = Field(description="what operators call it")
    selector: SelectorText = Field(None, description="only messages whose headers are so, e.g. region = 'EU'")
    rate: Rate = Field(None, description="messages a second, over all links of this table and all nodes")
    byte_rate: Rate = Field(None, description="bytes a second, over all links of this table and all nodes")
    max_hops: Hops = Field(None, description="places that a message may come through, the source included; else 8")
    dead_letters: Name = Field(None, description="gets copies of what can never be delivered; else it stops there")
    durability: DurabilityText = Field(
        None, description="what must have a message at the target before the source lets go of it, as of a destination"
    )
    replicas: Replicas = Field(0, description="short for durability = 'replicas:N'")


class BridgeTable(LinkTable):
    """A bridge makes links from one destination to others: what is stored there is forwarded, once and in order."""

    source: Name = Field(
        alias="from",
        description="a queue, whose messages it moves or copies, or a topic, of which it gets a copy of each",
    )
    to: Names = Field(description="a queue or a topic; several of a topic, or with copies: each gets all messages")
    copies: bool = Field(
        False, description="of a queue: whether its consumers get each message too, as with a bridge of TIBCO EMS"
    )
    site: SiteName = Field(None, description="where the targets are; else here")


class RouteTable(LinkTable):
    """A route makes links from destinations to those of the same name at another site."""

    to: SiteName = Field(description="a [[site]]")
    topics: Topics = Field(None, description="one, or several; a pattern such as news.> is each topic that it matches")
    queues: Names = Field(None, description="one, or several; limits of a routed queue do not bind at this site")
    zone: SiteName = Field(None, description="a [[zone]]; else messages may go on from there")

    @model_validator(mode="after")
    def _says_something(self) -> "RouteTable":
        if self.topics is None and self.queues is None:
            raise ValueError("a route of what? give topics, queues or both")
        return self
