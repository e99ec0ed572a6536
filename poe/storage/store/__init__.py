"""A base folder: its topics, each a list of segments, and what is known of them all together."""
