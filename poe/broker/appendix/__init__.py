"""The owner of one segment: puts, reads and syncs of it."""
