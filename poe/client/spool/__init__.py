"""The downtime buffer of a producer on disk."""
