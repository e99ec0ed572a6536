"""`poe work`: runs a program for each message of a topic."""

import contextlib
import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Annotated, Final

import typer

from poe.cli.argument import number, topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, discard, write_error
from poe.client import GroupWorker, Job
from poe.errors import ConfigError
from poe.topic_name import topic_text

_NO_ROOM: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Errors of a machine that has no room for another process: no message is to blame."""
_NO_ROOM_S: Final = 1.0


@asks_server
def work(  # noqa: PLR0913 - a command line option each
    topic: Annotated[
        bytes,
        typer.Argument(metavar="TOPIC", parser=topic_name, autocompletion=complete_topic),
    ],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="A program and its arguments.")
    ],
    *,
    group: Annotated[
        str,
        typer.Option(
            metavar="GROUP",
            help="Whose members share the messages, made where there is none; each topic or queue "
            "needs another one.",
        ),
    ] = "workers",
    concurrency: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            parser=number("--concurrency", int, 1, 1000),
            help="Programs that run at a time.",
        ),
    ] = 1,
    stop_timeout_s: Annotated[
        float,
        typer.Option(
            "--stop-timeout",
            metavar="SECONDS",
            parser=number("--stop-timeout", float, 0),
            help="How long the end waits for programs that run.",
        ),
    ] = 30.0,
    endpoint: Endpoint,
) -> ExitCode:
    """Run a program for each message of a topic: its standard input is the message.

    A program that ends with 0 has done its message. With anything else the message is tried again,
    after a while that grows, and after some attempts it is a dead letter, which `poe queue dead`
    shows with the end of what the program wrote to standard error. The program finds JOB_TOPIC,
    JOB_POINTER, JOB_ORDINAL and JOB_ATTEMPTS in its environment.

    SIGTERM and Ctrl-C let the programs that run end, and take no more messages. A program that runs
    on after --stop-timeout gets SIGTERM, since its message is tried again by others.
    """
    if shutil.which(command[0]) is None:
        msg = f"{command[0]!r} is no program that can be run; give the path of one behind --"
        raise ConfigError(msg)
    with endpoint.looking():
        pass  # a server that is not there is told now, one that goes later is waited for
    programs = _Programs(command)
    pool = GroupWorker(
        endpoint.url,
        topic,
        programs.run,
        group=group,
        concurrency=concurrency,
        stop_timeout_s=stop_timeout_s,
        **endpoint.options,
    )
    # Of one that runs on its supervisor says that it was killed, and of what the group refuses the
    # pool that it does nothing: both are told below.
    for name in ("poe.supervision", "poe.client.group.worker"):
        logging.getLogger(name).addFilter(_is_not_told_here)
    try:
        with pool:
            pool.join()
    except KeyboardInterrupt:
        told = pool.statistics()
        failed = told["retry"] + told["dead"]
        write_error(f"{counted(told['done'], 'message')} done, {failed} failed")
    finally:
        if ended_count := programs.end():
            what = "program was" if ended_count == 1 else "programs were"
            limit = f"--stop-timeout ({stop_timeout_s:g} s)"
            write_error(f"{ended_count} {what} still running after {limit}, and told to end")
    return ExitCode.OK


def _is_not_told_here(record: logging.LogRecord) -> bool:
    return getattr(record, "report", None) not in {"shutdown_error", "refusal"}


class _Programs:
    """The programs that run, each with one message."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, job: Job) -> None:
        """Run the program with one message, and say what became of that."""
        variables = {
            "JOB_TOPIC": topic_text(job.topic),
            "JOB_POINTER": str(job.pointer),
            "JOB_ORDINAL": str(job.ordinal),
            "JOB_ATTEMPTS": str(job.attempts),
        }
        try:
            # In a session of its own: Ctrl-C is for us, and the program is to end its work.
            program = subprocess.Popen(  # noqa: S603 - it is what the user has asked for
                self._command,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except OSError as error:
            told = f"{self._command[0]!r} cannot be run ({error.strerror})"
            write_error(told)
            if error.errno in _NO_ROOM:
                time.sleep(_NO_ROOM_S)  # for it may come again at once
                job.release()
            else:  # no `#!` in it, or gone meanwhile
                job.nack(reason=told)
            return
        self._running.add(program)
        _, errors = program.communicate(job.value or b"")
        self._running.discard(program)
        if errors and sys.stderr is not None:
            try:
                sys.stderr.buffer.write(errors)
                sys.stderr.flush()
            except OSError:  # nobody reads it any more, and the message is done all the same
                discard(sys.stderr)
        if program.returncode:
            tail = errors[-150:].decode("utf-8", "replace").strip()
            job.nack(reason=f"exit code {program.returncode}: {tail}")

    def end(self) -> int:
        """Have those that still run end, with all that they have started; return how many."""
        running = list(self._running)
        if running:
            # Each would say that its message was given back meanwhile. They are told as one.
            logging.getLogger("poe.client.group.worker").disabled = True
        for program in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGTERM)
        return len(running)
