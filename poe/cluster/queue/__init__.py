"""One queue on one node: what it holds, who else does, and who hands out what."""
