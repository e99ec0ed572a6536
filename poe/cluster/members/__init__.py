"""Which nodes a cluster has, which of them live, and where copies go: all of it pure."""
