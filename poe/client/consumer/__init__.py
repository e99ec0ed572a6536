"""Consumers: messages in order from a pointer on, whatever becomes of the connection."""
