"""The replicated log: topics of which a majority of nodes agrees on each message and its place."""
