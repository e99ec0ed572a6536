"""A producer: what its callers give, in batches, to brokers that come and go."""
