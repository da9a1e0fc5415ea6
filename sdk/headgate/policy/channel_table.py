"""A policy document has one table for each channel."""

from pydantic import Field

from headgate.policy.channel_forms import ByteRate, Group, Interface, PacketSize, Port, Topics, Ttl
from headgate.policy.tables import Table
from headgate.policy.value_forms import Name


class ChannelTable(Table):
    """A channel sends the messages of topics to a multicast group; the topics' own limits play no part."""

    name: Name = Field(description="its name for operators and readers")
    topics: Topics = Field(description="that are sent; a topic is in one channel")
    group: Group = Field(description="multicast address, of 224.0.0.0/4")
    port: Port = Field(description="of UDP")
    ttl: Ttl = Field(1, description="networks that a packet may cross, 0: it stays on its host")
    interface: Interface = Field(
        None, description="to send by: its address, or the network that each node has one in; else the system's choice"
    )
    maxrate: ByteRate = Field("10MB", description="bytes a second of all nodes and topics together, headers included")
    packet: PacketSize = Field(1400, description="most bytes of a packet")
