"""The process that offers a node to Thespian programs, with `poe serve --thespian-port`.

It is started by `ThespianGateway`. It starts Thespian's own processes, the service among them, and
ends as soon as that one does: all are then gone, and its supervisor starts it anew.
"""

import errno
import logging
import os
import select
import signal
import sys
import time
from typing import Any

from poe.actors import end_with_parent, report_failure, report_ready
from poe.cli.exit_code import ExitCode
from poe.cli.gateway_arguments import GatewayArguments
from poe.cli.hangup import tell_hangups
from poe.cli.log import start_logging
from poe.cli.sentence import sentence_of
from poe.errors import CallTimeout, PoeError, ProcessStartFailed
from poe.thespian import ThespianService, loopback_tcp_system
from poe.thespian.service import NODE_CAPABILITY, SERVICE_NAME

_log = logging.getLogger("poe.gateway")

_ASK_TIMEOUT_S = 20.0
_ASK_AGAIN_S = 0.5


def main() -> int:
    """Offer the node until SIGTERM, or until the service has died."""
    end_with_parent()
    arguments = GatewayArguments.decode(sys.argv[1])
    start_logging(arguments.log_level)
    port = arguments.thespian_port
    try:
        node = {NODE_CAPABILITY: (arguments.host, arguments.port, arguments.token_path)}
        system = loopback_tcp_system(port, node, listening=arguments.descriptor)
        ended = os.pidfd_open(_pid_of_service(system))
    except (PoeError, OSError) as error:
        report_failure(sentence_of(error))
        return ExitCode.of(error) if isinstance(error, PoeError) else ExitCode.FAILURE
    signal.signal(signal.SIGTERM, lambda *_: _leave(system))
    _log.info("Thespian programs can ask %r at 127.0.0.1:%d", SERVICE_NAME, port)
    tell_hangups()
    report_ready()
    select.select([ended], [], [])
    _log.error("the Thespian service has died; all of Thespian's processes are started anew")
    # Not shut down: the admin would tell clients for a while that there will be no service.
    return ExitCode.FAILURE


def _pid_of_service(system: Any) -> int:  # noqa: ANN401 - Thespian is untyped
    """Start the service and ask for its pid.

    A client may have asked, too, and killed the service: it then never answers, and Thespian makes
    another one, at another address.

    Raises:
        CallTimeout: it does not answer.
        ProcessStartFailed: it does not get into the node; a token may be wrong.
        ProcessLookupError: it has died already.
    """
    service = system.createActor(ThespianService, globalName=SERVICE_NAME)
    last_s = time.monotonic() + _ASK_TIMEOUT_S
    while time.monotonic() < last_s:
        answer = system.ask(service, {"op": "pid"}, _ASK_AGAIN_S)
        if answer is not None:
            if (error := answer.get("error")) is not None:
                report = f"the Thespian service cannot ask the node: {error['message']}"
                raise ProcessStartFailed(SERVICE_NAME, error["name"], report)
            return int(answer["result"])
        if system.createActor(ThespianService, globalName=SERVICE_NAME) != service:
            raise ProcessLookupError(errno.ESRCH, "the Thespian service has died at once")
    raise CallTimeout(service, _ASK_TIMEOUT_S)


def _leave(system: Any) -> None:  # noqa: ANN401 - Thespian is untyped
    system.shutdown()
    sys.exit(ExitCode.OK)
