"""What a producer counts, and where it may send it."""
