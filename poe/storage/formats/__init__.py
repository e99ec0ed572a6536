"""What lies in which file of a store, and how it tells that it is what was written."""
