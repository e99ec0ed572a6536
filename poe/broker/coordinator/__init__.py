"""Groups as actors: who keeps their state, writes what changes to a topic, and leases messages."""
