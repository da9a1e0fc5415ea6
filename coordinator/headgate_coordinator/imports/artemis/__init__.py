"""Apache Artemis is read from ``broker.xml``, and from files that it includes.

Settings of addresses become rules of the same patterns: Artemis merges them setting by setting, the most specific
first, as a policy does. The first rule has the defaults of Artemis, for where a file says nothing.
"""
