"""A plain Thespian program: asks what comes as lines on its input, one literal a line.

It knows nothing of Poe but the name of the service. `again` makes it look for the service anew and
ask for its pid. `exit` sends the service an exit request, `shutdown` asks for the end of the
system, as many a program does in the end.
"""

import ast
import sys

from thespian.actors import ActorExitRequest, ActorSystem

SERVICE = "poe.thespian.ThespianService"


def main() -> None:
    system = ActorSystem("multiprocTCPBase", {"Admin Port": int(sys.argv[1])})
    service = system.createActor(SERVICE, globalName="poe")
    for line in sys.stdin:
        if line == "shutdown\n":
            system.shutdown()
            print("shut down", flush=True)
            break
        if line == "exit\n":
            system.tell(service, ActorExitRequest())
            print("told", flush=True)
            continue
        if line == "again\n":
            service = system.createActor(SERVICE, globalName="poe")
        request = {"op": "pid"} if line == "again\n" else ast.literal_eval(line)
        print(repr(system.ask(service, request, 10)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
