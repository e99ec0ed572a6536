"""`poe queue`: puts work for later, shows what was given up, and puts that back."""

import json
import os
import time
from base64 import b64encode
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

import typer

from poe.cli.argument import number, topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.group import GroupArgument, printable
from poe.cli.output import counted, write_line
from poe.cli.put import target_and_payloads
from poe.cli.topic import Format, FormatOption
from poe.client import Consumer, Received
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.queue_core import DELAY_MAX_S
from poe.errors import InvalidEnvelope
from poe.protocol import Socket
from poe.protocol.envelope import encode
from poe.topic_name import topic_text

_BATCH = 1000


def queue_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Put work for later, and see what was given up.", no_args_is_help=True
    )
    application.command("put")(put)
    application.command("dead")(dead)
    application.command("redrive")(redrive)
    return application


@asks_server
def put(
    topic: Annotated[
        bytes,
        typer.Argument(metavar="TOPIC", parser=topic_name, autocompletion=complete_topic),
    ],
    messages: Annotated[list[str], typer.Argument(metavar="MESSAGE")],
    *,
    delay_s: Annotated[
        float,
        typer.Option(
            "--delay",
            metavar="SECONDS",
            parser=number("--delay", float, 0, DELAY_MAX_S),
            help="When they are to come.",
        ),
    ],
    endpoint: Endpoint,
) -> None:
    """Put messages that come after a while; `poe put` puts those that come at once."""
    due_us = time.time_ns() // 1000 + round(delay_s * 1e6)
    topic, contents = target_and_payloads(topic, messages, None, endpoint)
    with endpoint.connect() as connection:
        connection.control("queue_put", topic=topic, messages=contents, due_us=due_us)
    write_line(f"{counted(len(messages), 'message')}, due in {delay_s:g} s")


@asks_server
def dead(
    group: GroupArgument,
    *,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="COUNT", parser=number("--limit", int, 1), help="The first so many."
        ),
    ] = 100,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show the messages that a group has given up: where they were, how often tried, and why."""
    pointer, left = 0, limit
    with endpoint.looking() as connection:
        # The node puts them onto the first partition, where somebody has made several.
        topic = endpoint.partitions_of(_dead_topic(connection, group)).topics[0]
        while left and (records := connection.read(topic, pointer, min(left, _BATCH))):
            for pointer, content in records:  # noqa: B007 - the last one is where to go on
                with suppress(InvalidEnvelope):  # somebody has put something else there
                    write_line(_told(DeadLetter.of(content), output_format))
            left -= len(records)


@asks_server
def redrive(group: GroupArgument, endpoint: Endpoint) -> None:
    """Put the messages that a group has given up back where they were.

    They stay in the dead letter topic, too; the group GROUP.redrive knows which were put back. What
    it is at when it is killed, up to 1000, is put back again the next time.
    """
    count = 0
    with endpoint.connect() as connection:
        topic = _dead_topic(connection, group)
        options = endpoint.options | {"commit": "manual", "batch": _BATCH, "on_corrupt": "skip"}
        with Consumer(endpoint.url, topic, group=f"{group}.redrive", **options) as consumer:
            for batch in consumer.batches():
                count += _put_back(connection, list(map(_letter, batch)))
                consumer.commit()
    write_line(f"{counted(count, 'message')} put back")


def _letter(received: Received) -> bytes:
    """Return a letter as it is stored, whether its topic is known to hold envelopes or not."""
    if received.headers is None:
        return received.value or b""
    return encode(received.key, received.value, received.headers)


def _put_back(connection: Socket, letters: list[bytes]) -> int:
    """Put messages back where they were; return how many."""
    found = []
    for each in letters:
        with suppress(InvalidEnvelope):
            found.append(DeadLetter.of(each))
    count = 0
    for topic, some in groupby(found, attrgetter("topic")):
        messages = [each.message for each in some if each.message]
        if topic and messages:
            connection.write(topic, messages)
            count += len(messages)
    return count


def _dead_topic(connection: Socket, group: str) -> bytes:
    """Return the dead letter topic of a group."""
    told: dict[str, Any] = connection.control("group", group=group)
    name = told["options"]["dead_letter_topic"] or f"{group}.dead"
    return os.fsencode(name)


def _told(letter: DeadLetter, output_format: Format) -> str:
    message = letter.message or b""
    if output_format is Format.TEXT:
        where = f"{topic_text(letter.topic)}\t{letter.pointer}"
        tried = counted(letter.attempts, "attempt")
        return f"{where}\t{tried}\t{printable(letter.reason)}\t{printable(topic_text(message))}"
    content = {**letter._asdict(), "topic": topic_text(letter.topic)}
    try:
        content["message"] = message.decode()
    except UnicodeDecodeError:
        del content["message"]
        content["message_base64"] = b64encode(message).decode()
    return json.dumps(content, ensure_ascii=False)
