"""Consumer groups: who reads what, how far each group is, and who holds which messages."""
