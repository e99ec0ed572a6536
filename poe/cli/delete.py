"""`poe trim` and `poe delete`: have a running server delete old messages of a topic, or all."""

import sys
from typing import Annotated

import typer

from poe.cli.argument import number, topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, is_terminal, write_error, write_line
from poe.errors import ConfigError
from poe.protocol import Socket
from poe.record import POINTER_MAX
from poe.topic_name import topic_text

TopicArgument = Annotated[
    bytes, typer.Argument(metavar="TOPIC", parser=topic_name, autocompletion=complete_topic)
]


@asks_server
def trim(
    topic: TopicArgument,
    pointer: Annotated[
        int, typer.Argument(metavar="POINTER", parser=number("POINTER", int, 0, POINTER_MAX))
    ],
    *,
    endpoint: Endpoint,
) -> None:
    """Delete old messages of a topic, whole segments of them: those with none behind POINTER.

    The topic stays, and so do messages up to POINTER that share a segment with later ones.
    """
    with endpoint.connect() as connection:
        write_line(f"{counted(connection.trim(topic, pointer), 'segment')} deleted")


@asks_server
def delete(
    topic: TopicArgument,
    *,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    endpoint: Endpoint,
) -> ExitCode:
    """Delete a topic with all its messages, once it was confirmed on the terminal or by --yes."""
    name = topic_text(topic)
    if not is_confirmed and not is_terminal(sys.stdin):
        msg = "there is no terminal to ask on; give --yes to delete the topic"
        raise ConfigError(msg)
    with endpoint.connect() as connection:
        what = f"topic {name}, {counted(_message_count(connection, topic), 'message')}"
        if not is_confirmed and not says_yes(f"delete {what}?"):
            write_error("nothing was deleted")
            return ExitCode.FAILURE
        connection.delete(topic)
    write_line(f"{what}: deleted")
    return ExitCode.OK


def _message_count(connection: Socket, topic: bytes) -> int:
    """Return how many messages a topic holds, in all of its partitions.

    Raises:
        UnknownTopic: there is no such topic.
    """
    found = connection.find_topic(topic)
    if found is not None:
        return sum(each.messages for each in found.partitions)
    return sum(each["count"] for each in connection.segments(topic))


def says_yes(question: str) -> bool:
    """Ask on the terminal; no is what anything but a yes means, the end of the input too.

    typer would write a part of its question to standard output.
    """
    write_error(f"{question} yes or no:")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
