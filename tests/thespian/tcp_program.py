"""Runs a TCP system with an actor, a child of it and a `private` client until its input ends."""

import os
import sys

from thespian.actors import Actor, ActorExitRequest

from poe.thespian import loopback_tcp_system


class Family(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Tells its pid; makes a child."""

    def receiveMessage(self, message, sender):  # noqa: N802
        if message == "pid":
            self.send(sender, os.getpid())
        elif message == "child":
            self.send(sender, self.createActor("tests.thespian.tcp_program.Family"))
        elif not isinstance(message, ActorExitRequest):
            self.send(sender, message)


def main() -> None:
    system = loopback_tcp_system(int(sys.argv[1]))
    actor = system.createActor("tests.thespian.tcp_program.Family", globalName="family")
    child = system.ask(actor, "child", 10)
    assert isinstance(system.ask(child, "pid", 10), int)
    with system.private() as context:
        assert context.ask(actor, "there?", 10) == "there?"
        print("ready", flush=True)
        sys.stdin.read()
    system.shutdown()


if __name__ == "__main__":
    main()
