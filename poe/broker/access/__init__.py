"""Who may do what at this node: at the moment, and of the connection that asks."""
