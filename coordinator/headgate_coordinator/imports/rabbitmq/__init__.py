"""RabbitMQ is read from definitions of ``rabbitmqctl export_definitions``, and policies as its HTTP API lists them.

One policy of those that match holds for a queue there, as a whole: the one of the highest priority. Here the most
specific rule that says something holds, for each setting; so rules are written that come to the same.
"""
