"""Mappings: rules that say what becomes of messages, and the programs that carry them out.

A mapping reads topics as a group does, and puts each message where its rules say: onto other
topics, to a function, aside, or nowhere. See `docs/mapping.md`.
"""
