"""Which nodes a cluster has, and which of them live: all of it pure."""
