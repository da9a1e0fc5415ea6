"""Message selectors as JMS has them: read, and asked whether a message is meant."""
