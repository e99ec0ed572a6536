"""One segment: appends batches to its files, and finds records in them."""
