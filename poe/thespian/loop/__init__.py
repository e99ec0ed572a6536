"""Thespian's programs on Poe's own runtime: plain actors, in the process of the GenServers.

`ThespianBase` is what Thespian's `ActorSystem` speaks to; a `ThespianCell` is the place of one
plain actor, and what that calls its `_myRef`; an `OutsideContext` is how an application thread
hears.
"""
