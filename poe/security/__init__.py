"""Who gets in and what they may do: values and decisions, without sockets or actors.

What a client needs is here; what a node needs is in the modules.
"""
