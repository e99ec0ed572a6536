"""The way in: the listener, the connections, and what bounds them."""
