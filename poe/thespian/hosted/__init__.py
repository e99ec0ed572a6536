"""GenServers on Thespian's other system bases: each actor in a host of its own.

On these bases an actor is a Thespian actor, often an OS process. A `Host` is that Thespian actor;
in it lives a small actor system of the usual cells and run queue, with the GenServer as its one
main actor. An actor elsewhere is represented by a `RemoteCell`, which turns what it is given into
packets. So GenServer and everything built on it have one implementation for all bases.
"""
