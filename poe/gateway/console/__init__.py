"""The console: pages in a browser that show a node and what it does, served by the gateway.

It runs in the gateway's process, never in the node's: a browser must not take the node's core. Who
looks keeps rates and histories here; the node tells totals alone. See docs/console.md.
"""
