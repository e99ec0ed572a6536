"""`poe work`: runs a program for each message of a topic."""

import os
import shutil
import subprocess
import sys
from typing import Annotated

import typer

from poe.cli.address import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    HostOption,
    PortOption,
    complete_topic,
    looking,
    url_of,
)
from poe.cli.argument import number, topic_name
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, write_error
from poe.client import GroupWorker, Job
from poe.errors import ConfigError
from poe.topic_name import topic_text


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
            metavar="GROUP", help="Whose members share the messages; made where there is none."
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
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
) -> ExitCode:
    """Run a program for each message of a topic: its standard input is the message.

    A program that ends with 0 has done its message. With anything else the message is tried again,
    after a while that grows, and after some attempts it is a dead letter, which `poe queue dead`
    shows with the end of what the program wrote to standard error. The program finds POE_TOPIC,
    POE_POINTER and POE_ATTEMPTS in its environment.

    SIGTERM and Ctrl-C let the programs that run end, and take no more messages.
    """
    if shutil.which(command[0]) is None:
        msg = f"{command[0]!r} is no program that can be run; give the path of one behind --"
        raise ConfigError(msg)
    with looking(host, port):
        pass  # a server that is not there is told now, one that goes later is waited for
    pool = GroupWorker(
        url_of(host, port),
        topic,
        lambda job: _run(command, job),
        group=group,
        concurrency=concurrency,
        stop_timeout_s=stop_timeout_s,
    )
    try:
        with pool:
            pool.join()
    except KeyboardInterrupt:
        told = pool.statistics()
        failed = told["retry"] + told["dead"]
        write_error(f"{counted(told['done'], 'message')} done, {failed} failed")
    return ExitCode.OK


def _run(command: list[str], job: Job) -> None:
    """Run the program with one message."""
    variables = {
        "POE_TOPIC": topic_text(job.topic),
        "POE_POINTER": str(job.pointer),
        "POE_ATTEMPTS": str(job.attempts),
    }
    # In a session of its own: Ctrl-C is for us, and the program is to end its work.
    ended = subprocess.run(  # noqa: S603 - it is what the user has asked for
        command,
        input=job.value or b"",
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,
        check=False,
    )
    if ended.stderr and sys.stderr is not None:
        sys.stderr.buffer.write(ended.stderr)
        sys.stderr.flush()
    if ended.returncode:
        tail = ended.stderr[-150:].decode("utf-8", "replace").strip()
        job.nack(reason=f"exit code {ended.returncode}: {tail}")
