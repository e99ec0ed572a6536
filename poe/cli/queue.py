"""`poe queue`: queues of a cluster, work that is put now or later, and what was given up."""

import json
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, TypeAlias

import typer

from poe.cli.argument import choice, named_as_typed, number, topic_name
from poe.cli.delete import says_yes
from poe.cli.endpoint import CALL_TIMEOUT_S, Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.exit_code import ExitCode
from poe.cli.group import GroupArgument, write_json
from poe.cli.output import counted, is_terminal, write_bytes, write_error, write_line
from poe.cli.put import payloads_of, target_and_payloads
from poe.cli.topic import Format, FormatOption
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.queue_core import COPIES_MAX, DELAY_MAX_S
from poe.client.group.redrive import Choice, dead_letter_topic
from poe.client.group.redrive import discard as discard_all
from poe.client.group.redrive import redrive as redrive_all
from poe.errors import ConfigError, InvalidEnvelope
from poe.errors.short_text import printable
from poe.protocol import Socket
from poe.protocol.records import split_records
from poe.topic_name import topic_text

_BATCH = 1000
_LIMIT_MAX = 2**63 - 1


class OnFull(StrEnum):
    """What a node does with messages for which it has no room."""

    BUSY = "busy"
    DROP_OLDEST = "drop-oldest"


class DumpFormat(StrEnum):
    """How messages are written."""

    LINES = "lines"
    JSON = "json"
    RAW = "raw"


QueueArgument: TypeAlias = Annotated[
    bytes, typer.Argument(metavar="QUEUE", parser=topic_name, autocompletion=complete_topic)
]
ReasonOption: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Only those whose reason holds this.")
]
CopiesOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="NODES",
        parser=number("--copies", int, 1, COPIES_MAX),
        help="On how many nodes of the cluster each message is to be.",
    ),
]


def queue_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Put work, now or later, look at queues of a cluster, and see what was given up.",
        no_args_is_help=True,
    )
    application.command("put")(put)
    application.command("list")(list_queues)
    application.command("create")(create)
    application.command("delete")(delete)
    application.command("dump")(dump)
    application.command("dead")(dead)
    application.command("redrive")(redrive)
    application.command("discard")(discard)
    return application


@asks_server
def put(
    topic: QueueArgument,
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
    ] = 0.0,
    copies: CopiesOption = None,
    endpoint: Endpoint,
) -> None:
    """Put messages onto a queue, all or none: at once, or such that they come after a while.

    At a node of a cluster they go onto a queue across nodes, which is made where there is none,
    unless a topic of that node has the name; else onto that topic.
    """
    if "-" in messages:
        msg = "only `poe put QUEUE -` reads lines; with --queue at a node of a cluster"
        raise typer.BadParameter(msg, param_hint="MESSAGE")
    due_us = time.time_ns() // 1000 + round(delay_s * 1e6)
    with endpoint.connect() as connection:
        found = connection.find_topic(topic, is_queue=True)
    is_queue = found is not None and found.queue is not None
    name, contents = topic, payloads_of(messages)
    if not is_queue:
        name, contents = target_and_payloads(topic, messages, None, endpoint)
    told = counted(len(messages), "message")
    terms: dict[str, Any] = {} if copies is None else {"copies": copies}
    with endpoint.connect() as connection:
        if delay_s:
            terms |= {"due_us": due_us, "queue": is_queue}
            connection.control("queue_put", topic=name, messages=contents, **terms)
            write_line(f"{told}, due in {delay_s:g} s")
        elif is_queue or copies is not None:
            stored = connection.control("queue_put", topic=name, messages=contents, **terms)
            write_line(f"{told}, last pointer {stored['pointer']}, {_copies(stored['copies'])}")
        else:
            write_line(f"{told}, last pointer {connection.write(name, contents)}")


@asks_server
def list_queues(*, output_format: FormatOption = Format.TEXT, endpoint: Endpoint) -> None:
    """List the queues of the cluster, one a line, with what the node that is asked holds."""
    with endpoint.looking() as connection:
        for told in connection.control("queues"):
            _tell(told, output_format)


@asks_server
def create(  # noqa: PLR0913 - a command line option each
    queue: QueueArgument,
    *,
    copies: CopiesOption = None,
    persist: Annotated[
        bool | None, typer.Option("--persist", help="Keep the copies on the nodes' disks, too.")
    ] = None,
    bytes_max: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            parser=number("--bytes-max", int, 1, _LIMIT_MAX),
            help="That a node holds of it.",
        ),
    ] = None,
    messages_max: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", parser=number("--messages-max", int, 1, _LIMIT_MAX), help="Likewise."
        ),
    ] = None,
    on_full: Annotated[
        OnFull | None,
        typer.Option(
            metavar="|".join(OnFull),
            parser=choice("--on-full", OnFull),
            help="What a node does with more: refuse it, or drop the oldest.",
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Make a queue of the cluster; without this its first put does, with the node's options."""
    given = {
        "copies": copies, "persist": persist, "bytes_max": bytes_max,
        "messages_max": messages_max, "on_full": on_full,
    }  # fmt: skip
    properties = {name: value for name, value in given.items() if value is not None}
    with endpoint.connect() as connection, named_as_typed(given):
        _tell(connection.control("queue_create", topic=queue, **properties), output_format)


@asks_server
def delete(
    queue: QueueArgument,
    *,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    endpoint: Endpoint,
) -> ExitCode:
    """Delete a queue of the cluster with all that it holds, on all nodes, and its groups."""
    if not is_confirmed and not is_terminal(sys.stdin):
        msg = "there is no terminal to ask on; give --yes to delete the queue"
        raise ConfigError(msg)
    with endpoint.connect() as connection:
        what = f"queue {topic_text(queue)}"
        if not is_confirmed and not says_yes(f"delete {what}?"):
            write_error("nothing was deleted")
            return ExitCode.FAILURE
        connection.control("queue_delete", topic=queue)
    write_line(f"{what}: deleted")
    return ExitCode.OK


@asks_server
def dump(
    queue: QueueArgument,
    *,
    output_format: Annotated[
        DumpFormat,
        typer.Option(
            "--format",
            metavar="|".join(DumpFormat),
            parser=choice("--format", DumpFormat),
            help="A message a line; or with stream and pointer; or the records as in files.",
        ),
    ] = DumpFormat.LINES,
    endpoint: Endpoint,
) -> None:
    """Write what a node holds of a queue of the cluster, and hand nothing out by that.

    It is told stream by stream: what one node has taken in, in its order.
    """
    with endpoint.connect() as connection:
        for unit, records in _held(connection, queue):
            if output_format is DumpFormat.RAW:
                write_bytes(records)
                continue
            for pointer, message in split_records(memoryview(records)):
                if output_format is DumpFormat.LINES:
                    write_bytes(message + b"\n")
                    continue
                place = {"stream": topic_text(unit), "pointer": pointer}
                write_line(json.dumps(place | _content(message), ensure_ascii=False))


def _held(connection: Socket, queue: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield what a node holds of a queue: streams, and records of them."""
    place: dict[str, Any] = {}
    while (told := connection.control("queue_dump", topic=queue, **place))["unit"]:
        yield told["unit"], told["records"]
        place = {"unit": told["unit"], "pointer": told["last"]}


def _tell(told: dict[str, Any], output_format: Format) -> None:
    if output_format is Format.JSON:
        write_json(told)
        return
    words = [_copies(told["copies"]), f"{counted(told['messages'], 'message')} here"]
    words += ["persistent"] * told["persist"] + [f"when full: {told['on_full']}"]
    words += [f"groups {', '.join(sorted(told['groups']))}"] * bool(told["groups"])
    write_line("\t".join([topic_text(told["name"]), *words]))


def _copies(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'}"


@asks_server
def dead(
    group: GroupArgument,
    *,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="COUNT",
            parser=number("--limit", int, 1, _LIMIT_MAX),
            help="The first so many.",
        ),
    ] = 100,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show the messages that a group has given up: where they were, how often tried, and why.

    Of a queue across nodes it shows what the nodes of --url hold: name all of them.
    """
    with endpoint.looking(CALL_TIMEOUT_S) as connection:
        told = connection.control("group", group=group)
        topic = dead_letter_topic(group, told["options"])
        if _is_queue(connection, topic):
            letters = _letters_held(endpoint, topic)
        else:
            letters = _read(connection, endpoint.partitions_of(topic).topics[0])
        for content in islice(letters, limit):
            with suppress(InvalidEnvelope):  # somebody has put something else there
                write_line(_told(DeadLetter.of(content), output_format))


def _read(connection: Socket, topic: bytes) -> Iterator[bytes]:
    """Yield the messages of a topic.

    The node puts dead letters onto the first partition, where somebody has made several.
    """
    pointer = 0
    while records := connection.read(topic, pointer, _BATCH):
        yield from (message for _, message in records)
        pointer = records[-1][0]


def _letters_held(endpoint: Endpoint, queue: bytes) -> Iterator[bytes]:
    """Yield the messages of a queue that the nodes of the url hold, each once."""
    seen: set[tuple[bytes, int]] = set()
    for connection in endpoint.all_reached():
        for unit, records in _held(connection, queue):
            for pointer, message in split_records(memoryview(records)):
                if (unit, pointer) not in seen:
                    seen.add((unit, pointer))
                    yield message


def _is_queue(connection: Socket, topic: bytes) -> bool:
    found = connection.find_topic(topic)
    return found is not None and found.queue is not None


@asks_server
def redrive(group: GroupArgument, *, reason: ReasonOption = "", endpoint: Endpoint) -> None:
    """Put the messages that a group has given up back where they were.

    With a reason those that were given up for another one go to the end of the topic.

    They stay in the dead letter topic, too; the group GROUP.redrive knows which were put back. What
    it is at when it is killed, up to 1000, is put back again the next time. A queue across nodes
    lets them go, once no other group wants them. Letters of topics from which the group takes
    nothing are passed over: counted, not put back, and not looked at again.
    """
    with endpoint.connect() as connection:
        dealt = redrive_all(connection, endpoint.url, group, endpoint.options, _choice(reason))
    told = f"{counted(dealt.done_count, 'message')} put back"
    if dealt.passed_count:
        letters = counted(dealt.passed_count, "letter")
        told += f"; {letters} passed over, of topics from which the group takes nothing"
    write_line(told)


@asks_server
def discard(group: GroupArgument, *, reason: ReasonOption = "", endpoint: Endpoint) -> None:
    """Have the messages that a group has given up until now not put back by any `redrive`.

    They stay in the dead letter topic until that is trimmed; a queue across nodes lets them go.
    """
    with endpoint.connect() as connection:
        count = discard_all(connection, endpoint.url, group, endpoint.options, _choice(reason))
    write_line(f"{counted(count, 'message')} discarded")


def _choice(reason: str) -> Choice | None:
    return Choice(reason=reason) if reason else None


def _told(letter: DeadLetter, output_format: Format) -> str:
    message = letter.message or b""
    if output_format is Format.TEXT:
        where = f"{topic_text(letter.topic)}\t{letter.pointer}"
        tried = counted(letter.attempts, "attempt")
        return f"{where}\t{tried}\t{printable(letter.reason)}\t{printable(topic_text(message))}"
    told = {**letter._asdict(), "topic": topic_text(letter.topic)}
    del told["message"], told["partition"]
    return json.dumps(told | _content(message), ensure_ascii=False)


def _content(message: bytes) -> dict[str, str]:
    """Return a message as JSON can hold it."""
    try:
        return {"message": message.decode()}
    except UnicodeDecodeError:
        return {"message_base64": b64encode(message).decode()}
