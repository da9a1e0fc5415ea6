"""Every statement of the source documents that is to hold here, a row each; `docs/conformance.md` is made of them."""
# ruff: noqa: E501 - a statement is one line

from dataclasses import dataclass
from typing import Final

SYSTEMS: Final = {
    "artemis": "Apache Artemis",
    "activemq_producers": "ActiveMQ Classic, producer flow control",
    "tibco_ems": "TIBCO EMS",
    "activemq_prefetch": "ActiveMQ Classic, prefetch",
    "blazingmq": "BlazingMQ",
    "priority": "Priorities: JMS, ActiveMQ, Artemis, RabbitMQ",
    "later": "Later, and again: Artemis, ActiveMQ, RabbitMQ, NATS",
    "product": "The product itself",
}
WAITS_FOR: Final = {
    "links": "routes, bridges and channels (issue 5)",
    "pipeline": "the pipeline (issue 6)",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What a document says, how it is spelled here, and what the row waits for, if it does."""

    id: str
    system: str
    says: str
    ours: str
    waits_for: str = ""


ROWS: Final = (
    Row(
        "A01",
        "artemis",
        "A consumer buffers at most `consumerWindowSize` bytes; default 1 MiB",
        "`window.bytes`, same default in the Artemis preset",
    ),
    Row("A02", "artemis", "-1: unbounded", "`unlimited`"),
    Row("A03", "artemis", "0: nothing buffered; what is not being processed stays on the server", "`pull`"),
    Row(
        "A04",
        "artemis",
        "Two consumers, one very slow, with a buffer: the fast one idles while messages sit in the slow one's buffer; with 0: deterministic distribution, the fast one gets the rest",
        "with a buffer the fast one gets within 2 s what the slow one has not begun; with `pull` at once",
    ),
    Row(
        "A05",
        "artemis",
        "Window set on the connection (factory or URL option) or per consumer",
        "`connect(...?consumer_window=pull)`, per consumer wins",
    ),
    Row("A06", "artemis", "`consumerMaxRate`: never faster than n messages/s; -1 off (default)", "`consumer.rate`"),
    Row(
        "A07",
        "artemis",
        "Rate limits consumption, not buffering: a slow rate with a large window fills the buffer",
        "both settings independent",
    ),
    Row("A08", "artemis", "A producer sends only with sufficient credits; a message costs its size", "credit"),
    Row(
        "A09",
        "artemis",
        "It asks for more as it runs low; the window is what it asks in one go and bounds bytes in flight",
        "`producer.window`",
    ),
    Row("A10", "artemis", "The server gives as many credits as asked, if the address has room", ""),
    Row("A11", "artemis", "No producer gets more than the address has left", "P1"),
    Row(
        "A12", "artemis", "With n producers Artemis may exceed the limit by n x window", "never here (P1), n = 1, 8, 64"
    ),
    Row("A13", "artemis", "`myqueue`, 10 MiB: never more than 10 MiB of messages in it", ""),
    Row("A14", "artemis", "Full: producers block on the client until messages are consumed", "`when_full = block`"),
    Row("A15", "artemis", "Only with policy BLOCK; paging does not block but stores", "`block` against `spool`"),
    Row(
        "A16",
        "artemis",
        "The limit is for all queues of the address together; for a topic all its subscriptions together",
        "per destination",
    ),
    Row("A17", "artemis", "`jms.queue.exampleQueue`, 100000 bytes, BLOCK", "the example, run"),
    Row("A18", "artemis", "Default configuration blocks after 10 MiB", "Artemis preset"),
    Row(
        "A19",
        "artemis",
        "A misbehaving client can ignore its credits",
        "refused by script and node, charged what it really sent",
    ),
    Row(
        "A20",
        "artemis",
        "AMQP credits count messages: 100 at a time, refreshed at 30, none while full",
        "node preset; exact stop",
    ),
    Row(
        "A21",
        "artemis",
        "`max-size-bytes-reject-threshold`: above it AMQP messages are rejected; off by default",
        "`hard_limit`",
    ),
    Row("A22", "artemis", "`producerMaxRate`; -1 off (default)", "`producer.rate`"),
    Row(
        "A23",
        "artemis",
        "`resource-limit-setting`: `max-connections` of a user to a broker, `max-queues` that it creates; -1 off (default)",
        "`[[user_limit]]`: `connections`, over all nodes, and `destinations`; the error names the quota",
    ),
    Row(
        "C01",
        "activemq_producers",
        "Each producer on a shared connection is flow-controlled by itself; the connection goes on",
        "per destination and link",
    ),
    Row(
        "C02",
        "activemq_producers",
        "Destination memory, temp and store limits of the broker all count",
        "destination limit, pools, and the limits of spool stores",
    ),
    Row("C03", "activemq_producers", "Default: block until space", ""),
    Row("C04", "activemq_producers", "Synchronous sends are controlled per producer", "`send`"),
    Row(
        "C05",
        "activemq_producers",
        "Asynchronous sends: at most ProducerWindowSize bytes unacknowledged",
        "`post` within `producer.window`",
    ),
    Row(
        "C06",
        "activemq_producers",
        "`alwaysSyncSend`: the producer learns of the limit at once",
        "`send` with `when_full = fail`",
    ),
    Row(
        "C07",
        "activemq_producers",
        'Off per pattern: `topic="FOO.>" producerFlowControl="false"`',
        "`enforce = off` for `FOO.>`",
    ),
    Row(
        "C08",
        "activemq_producers",
        "A file cursor spools, so the memory limit is never reached; vmQueueCursor keeps messages in memory and stops producers",
        "`spool` against `block`",
    ),
    Row("C09", "activemq_producers", '`queue=">"`, `memoryLimit="1mb"`: each queue 1 MB', "`scope = each`"),
    Row(
        "C10",
        "activemq_producers",
        "A ProducerAck tells that the window was processed and another may be sent; a client that ignores it is stalled",
        "cumulative grants; refused",
    ),
    Row(
        "C11",
        "activemq_producers",
        "`sendFailIfNoSpace`: exception instead of blocking; catch, wait, retry",
        "`fail`, `DestinationFull`",
    ),
    Row(
        "C12",
        "activemq_producers",
        "`sendFailIfNoSpaceAfterTimeout=3000`: exception only after 3 s without space",
        "`fail-after 3s`; and space at 2 s: sent",
    ),
    Row(
        "C13",
        "activemq_producers",
        "Flow control off: dispatch goes on until the disk is used up",
        "`spool` with a store limit",
    ),
    Row(
        "C14",
        "activemq_producers",
        "systemUsage: memory 64 mb for non-persistent, store 100 gb for persistent, temp 10 gb for temporary",
        "pools by destination; spool stores by destination, or by delivery mode with `store_nonpersistent`. Memory holds "
        "both modes, and one session's messages keep one order across its stores",
    ),
    Row(
        "C15",
        "activemq_producers",
        "`percentLimit`; with `total`, relative to that total and not checked against the real disk",
        "`percent`, `total` of a pool and of a spool store",
    ),
    Row(
        "E01",
        "tibco_ems",
        "Near the target the server blocks new sends until storage is below it or the limit is raised",
        "block; raise frees at once",
    ),
    Row("E02", "tibco_ems", "`flow_control` off (default): destination settings are not enforced", "global switch"),
    Row("E03", "tibco_ems", "`flowControl=60MB`; bytes unless KB, MB, GB", "sizes"),
    Row("E04", "tibco_ems", "`flowControl` without a value: 256 KB", '`limit = "256KB"`'),
    Row("E05", "tibco_ems", "Slightly more or less than the target", "exactly"),
    Row("E06", "tibco_ems", "Below the limit: blocked calls return and producers go on", ""),
    Row(
        "E07",
        "tibco_ems",
        "No started receivers on a queue, or only inactive durables or no subscribers on a topic: not enforced",
        "`enforce = with-consumers` (and `always`, EMS since 8.4)",
    ),
    Row("E08", "tibco_ems", "`foo.bar` is enforced while a subscriber of it or of a parent (`foo.*`) exists", ""),
    Row(
        "E09",
        "tibco_ems",
        "A channel over its `maxrate` builds a backlog; with flow control off the server buffers it; the backlog can be shown",
        "`[[channel]]`, `headgate links`",
    ),
    Row(
        "E10",
        "tibco_ems",
        "With flow control on, the publish response waits until the backlog is clear",
        '`flow_control = "on"`',
    ),
    Row(
        "E11",
        "tibco_ems",
        "The destination's flowControl plays no part for multicast",
        '`enforce = "off"`, by the channel',
    ),
    Row(
        "E12",
        "tibco_ems",
        "Routed topics: limit on the sending or the receiving server; routed queues: not relevant",
        "route",
    ),
    Row("E13", "tibco_ems", "Receiver full: nothing is forwarded until its subscriber has made room", ""),
    Row(
        "E14",
        "tibco_ems",
        "Sender's limit: publishers block when the route is too slow (latency, or the other side)",
        "",
    ),
    Row(
        "E15",
        "tibco_ems",
        "A bridge slows its source down only if both sides have a limit",
        "all four combinations",
    ),
    Row(
        "E16",
        "tibco_ems",
        "Producer and consumer in one session, and Figure 14 over two threads or hosts, can deadlock",
        "detected, named, resolved as policy says",
    ),
    Row(
        "F01",
        "activemq_prefetch",
        "At most `prefetch` messages dispatched and unacknowledged; then none until half is acknowledged; then half more",
        "`window.messages`, `top_up = 0.5`",
    ),
    Row("F02", "activemq_prefetch", "Per consumer", ""),
    Row("F03", "activemq_prefetch", "1: one at a time", ""),
    Row("F04", "activemq_prefetch", "0: the consumer polls, one at a time", "`pull`"),
    Row("F05", "activemq_prefetch", "Slow consumer: more than twice its prefetch pending", "slow-consumer rule"),
    Row(
        "F06",
        "activemq_prefetch",
        "Defaults: persistent queue 1000, non-persistent queue 1000, persistent topic 100, non-persistent topic 32766",
        "Classic preset",
    ),
    Row(
        "F07",
        "activemq_prefetch",
        "URL: `jms.prefetchPolicy.all=50`, `jms.prefetchPolicy.queuePrefetch=1`",
        "connection options",
    ),
    Row(
        "F08", "activemq_prefetch", "Destination option: `TEST.QUEUE?consumer.prefetchSize=10`", "accepted in addresses"
    ),
    Row(
        "F09",
        "activemq_prefetch",
        "Unconsumed prefetched messages are released when the consumer closes; a pooled consumer that is not closed keeps them",
        "close releases; what nobody has begun is given back when others wait",
    ),
    Row("F10", "activemq_prefetch", "Larger prefetch, more throughput and more memory", "bench figure"),
    Row("B01", "blazingmq", "Push up to `maxUnconfirmedMessages` and/or `maxUnconfirmedBytes`", "window"),
    Row("B02", "blazingmq", "Given when attaching, changed at any time later", "`consumer.configure`"),
    Row("B03", "blazingmq", "At capacity: the rest stays in the queue until confirms", ""),
    Row("B04", "blazingmq", "1,000 messages or 100 MB, whichever first", ""),
    Row("B05", "blazingmq", "0 of either: paused, nothing is routed to it, others get it", "`paused`"),
    Row("B06", "blazingmq", "1: one at a time", ""),
    Row("B07", "blazingmq", "Separately for every subscription", ""),
    Row(
        "H01",
        "priority",
        "JMS, so ActiveMQ `prioritizedMessages` and Artemis: priorities 0 to 9, 4 the usual one; 5 to 9, the expedited ones, "
        "go before; of one priority in order",
        '`fair_by = "priority"`; 3 and 2, and 1 and 0, are one',
    ),
    Row(
        "H02",
        "priority",
        "ActiveMQ, RabbitMQ classic queues: only queues that are configured for it go by priority",
        "likewise",
    ),
    Row(
        "H03",
        "priority",
        "RabbitMQ 4.0 to 4.2, quorum queues: two of high priority (above 4), then one of normal that was stored before, so "
        "that these come too (`rabbit_fifo_q`, `WEIGHT`); 4.3: strictly, up to 32 priorities, and the last may starve",
        "at most `max_overtaken` go before one that is next in its band",
    ),
    Row(
        "H04",
        "priority",
        "RabbitMQ, Artemis: what consumers have prefetched is not put in order again; bound it",
        "windows, and HG125 of `policy lint`",
    ),
    Row("H05", "priority", "RabbitMQ: one above the most that a queue has is of the most", "above 9 as 9"),
    Row(
        "L01",
        "later",
        "Artemis `redelivery-delay`, `redelivery-delay-multiplier`, `max-redelivery-delay`: a failed delivery waits, longer each time, up to a bound. ActiveMQ `initialRedeliveryDelay`, `backOffMultiplier`, `maximumRedeliveryDelay`; NATS `backoff`",
        "`retry = { delay, factor, max }`",
    ),
    Row("L02", "later", "Artemis: by default there is no redelivery delay (0)", "at once where no `retry` is set"),
    Row(
        "L03",
        "later",
        "Artemis `max-delivery-attempts`, ActiveMQ `maximumRedeliveries`, NATS `MaxDeliver`, RabbitMQ 4 `delivery-limit`: then it is a dead letter, or dropped",
        "`max_attempts`, `dead_letter`; the last attempt does not wait",
    ),
    Row(
        "L04",
        "later",
        "ActiveMQ `nonBlockingRedelivery`: others are delivered while one waits, out of order; Artemis always so",
        "always so",
    ),
    Row(
        "L05",
        "later",
        "Artemis `x-opt-delivery-time`, `x-opt-delivery-delay`, JMS `setDeliveryDelay`, ActiveMQ `AMQ_SCHEDULED_DELAY`: a message is delivered at a time, or after a delay",
        "`send(at=...)`, `send(delay=...)`, the same annotations; it counts under the limit from when it is stored",
    ),
    Row(
        "L06",
        "later",
        "RabbitMQ: delays by a TTL and dead letters; a message expires at the head of its queue only, so that a short one waits behind a long one",
        "each at its own time",
    ),
    Row(
        "L07",
        "later",
        "NATS `NakWithDelay`: who gives a message back says for how long",
        "`modify(after=...)`, and an annotation of AMQP's `modified`",
    ),
    Row(
        "L08",
        "later",
        "NATS: no answer within `AckWait` counts as a delivery, and `backoff` holds for it; Artemis: what a consumer that is lost had counts, and waits",
        "what a dead consumer held counts as failed, and waits after its lease",
    ),
    Row(
        "L09",
        "later",
        "NATS `MaxAckPending`: that many are delivered and not acknowledged, then none; -1 none such. A message that waits for its delay is none of them",
        "`consumer.window`, and its `top_up`; over all receivers of a user `in_flight` of a `[[user_limit]]`",
    ),
    Row("K01", "product", "Cluster-wide credits, pending-byte counters, rate buckets in atomic Lua", "core"),
    Row(
        "K02",
        "product",
        "Several stateless broker nodes and SDK clients on different hosts share one limit (network namespaces as hosts)",
        "nodes",
    ),
    Row("K03", "product", "Route and bridge forwarding limits shared across hosts", "links"),
    Row("K04", "product", "State readable with redis-cli", "core"),
    Row("K05", "product", "Data pipeline on Spark through PySpark", "pipeline"),
)
