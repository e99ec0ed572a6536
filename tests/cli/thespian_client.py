"""A plain Thespian program: asks what comes as lines on its input, one literal a line.

It knows nothing of Poe but the name of the service. `again` makes it look for the service anew and
ask for its pid.
"""

import ast
import sys

from thespian.actors import ActorSystem

SERVICE = "poe.gateway.ThespianService"


def main() -> None:
    system = ActorSystem("multiprocTCPBase", {"Admin Port": int(sys.argv[1])})
    service = system.createActor(SERVICE, globalName="poe")
    for line in sys.stdin:
        if line == "again\n":
            service = system.createActor(SERVICE, globalName="poe")
        request = {"op": "pid"} if line == "again\n" else ast.literal_eval(line)
        print(repr(system.ask(service, request, 10)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
