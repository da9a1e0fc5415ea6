"""Apache Artemis: ``broker.xml``, and files that it includes.

Settings of addresses become rules of the same patterns: Artemis merges them setting by setting, the most specific
first, as a policy does. What it does where a file says nothing stands in the first rule.
"""
