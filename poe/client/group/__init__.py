"""Members of groups: consumers that share the units of topics, and queues that share messages."""
