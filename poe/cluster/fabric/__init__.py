"""The network between the nodes of a cluster: what carries bytes, and who is there.

Higher rooms say what the bytes mean. Only `zenoh_session` knows zenoh.
"""
