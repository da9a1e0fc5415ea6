"""ActiveMQ Classic is read from ``activemq.xml``.

The policy stands on the preset ``activemq``, which has what a broker does that says nothing. Where a pattern ends with
``>``, Classic takes the name in front of it too: that is ``#`` here.
"""
