"""Tools for tests of supervised actors: the driver that is compared with Erlang's own OTP."""
