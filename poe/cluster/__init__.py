"""Nodes that see each other, and the queues whose messages lie on several of them.

Importing this package loads nothing: a node without a cluster needs its options alone, and zenoh is
known to one module, which a node with a cluster imports as it starts.
"""
