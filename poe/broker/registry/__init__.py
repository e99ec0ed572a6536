"""Which topics there are, which segments they have, and who serves them."""
