"""The node's ends of clients' links: senders, receivers, browsers, relays."""
