"""BlazingMQ is read from the JSON files of domains, and those of a broker and its clusters beside them.

A domain is the first words of its queues' names: ``bmq://my.domain/orders`` is the destination ``my.domain.orders``.
The policy stands on the preset ``blazingmq``, which has what a client asks for that says nothing.
"""
