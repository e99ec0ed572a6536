"""`poe topic`: makes, changes, tells and deletes topics with what they know of themselves."""

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any, Final, TypeAlias

import typer

from poe.cli.argument import choice, flag_of, named_as_typed, topic_name
from poe.cli.delete import delete
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.option_help import field_docstrings
from poe.cli.output import counted, is_terminal, write_line
from poe.cli.parameters import option, with_parameters
from poe.errors import NotATopic, OptionError, UnknownTopic
from poe.option import allowed
from poe.protocol import DescribedPartition, DescribedTopic
from poe.topic_name import topic_text
from poe.topic_properties import TopicProperties

DEFAULT_WORD: Final = "default"
"""On the command line: the node's option holds."""


class Format(StrEnum):
    """How topics are told."""

    TEXT = "text"
    JSON = "json"


FormatOption: TypeAlias = Annotated[
    Format,
    typer.Option(
        "--format", metavar="|".join(Format), parser=choice("--format", Format),
        help="For people, or for programs.",
    ),
]  # fmt: skip
_NewTopic = Annotated[bytes, typer.Argument(metavar="TOPIC", parser=topic_name)]
_KnownTopic = Annotated[
    bytes, typer.Argument(metavar="TOPIC", parser=topic_name, autocompletion=complete_topic)
]


def topic_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Make, change, describe and delete topics.", no_args_is_help=True, add_completion=False
    )
    application.command("create")(asks_server(_with_properties(create, set())))
    application.command("alter")(asks_server(_with_properties(alter, {"envelope", "replicas"})))
    application.command("adopt")(asks_server(_with_properties(adopt, {"replicas"})))
    application.command("describe")(describe)
    application.command("list")(list_topics)
    application.command("delete")(delete)
    return application


def create(
    topic: _NewTopic,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
    **properties: Any,  # noqa: ANN401 - as typer has parsed them
) -> None:
    """Make a topic, and tell what it has.

    What is not given is as the options of the node say; partitions can be added later, and an
    envelope cannot.
    """
    given = _given(properties)
    with endpoint.connect() as connection, named_as_typed(given):
        _tell(connection.create_topic(topic, **given), output_format)


def alter(
    topic: _KnownTopic,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
    **properties: Any,  # noqa: ANN401 - as typer has parsed them
) -> None:
    """Change what a topic has, while it is used, and tell what it has then."""
    given = _given(properties)
    with endpoint.connect() as connection, named_as_typed(given):
        _tell(connection.alter_topic(topic, **given), output_format)


def adopt(
    topic: _NewTopic,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
    **properties: Any,  # noqa: ANN401 - as typer has parsed them
) -> None:
    """Take topics TOPIC-0, TOPIC-1 … for the partitions of one, with all that they hold.

    So producers with the option `partitions` have named them; say how many it was, and whether the
    option `envelope` was set. Nothing on the disk moves.
    """
    given = _given(properties)
    with endpoint.connect() as connection, named_as_typed(given):
        try:
            adopted = connection.adopt_topic(topic, **given)
        except UnknownTopic as error:
            name = topic_text(topic)
            wanted = f"how many of {name}-0, {name}-1 … there are, or 1 for {name} itself"
            raise OptionError("--partitions", given.get("partitions", 1), wanted) from error
        _tell(adopted, output_format)


@asks_server
def describe(
    topic: _KnownTopic,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Tell what a topic has, and what its partitions hold."""
    with endpoint.looking() as connection:
        found = connection.describe(topic)
    if found.queue is not None:
        raise NotATopic(topic)
    _tell(found, output_format)


@asks_server
def list_topics(
    *,
    are_all: Annotated[
        bool, typer.Option("--all", help="The node's own topics, too: their names begin with poe.")
    ] = False,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """List topics with their partitions, one a line.

    Partitions that are topics of their own to the files are not told.
    """
    with endpoint.looking() as connection:
        for each in connection.list_topics(are_all=are_all):
            if output_format is Format.JSON:
                write_line(json.dumps(_plain(each), ensure_ascii=False))
            else:
                write_line(_line(each))


def _with_properties(command: Callable[..., None], less: set[str]) -> Callable[..., None]:
    """Return a command with a parameter for each property, but for some."""
    texts = field_docstrings(TopicProperties)
    names = [each.name for each in fields(TopicProperties) if each.name not in less]
    made = (_parameter(name, texts.get(name, "")) for name in names)
    return with_parameters(command, "properties", made)


def _parameter(name: str, text: str) -> Parameter:
    """Return the parameter of a property."""
    flag = flag_of(name)
    kind: Any = Any
    if name == "envelope":
        kind, made = bool, typer.Option(flag, help=text)
    elif name == "keep_unread":
        kind = list[str]
        made = typer.Option(
            flag, help=f"{text}  [may be repeated; none: no group]", metavar="GROUP"
        )
    else:
        words = _words(name)
        made = typer.Option(
            flag, help=f"{text}  [{words}]", metavar="VALUE", parser=_parser(name, flag, words)
        )
    return option(name, Annotated[kind | None, made])


def _words(name: str) -> str:
    """Say what a property may be."""
    words = allowed(TopicProperties)[name].words(none=DEFAULT_WORD)
    return words.replace('"', "")


def _parser(name: str, flag: str, words: str) -> Callable[[str], object]:
    """Return what parses a property; it raises `OptionError`."""
    found = allowed(TopicProperties)[name]

    def parse(text: str) -> object:
        if text in found.choices or (text == DEFAULT_WORD and found.may_be_none):
            return text
        for kind in (int, float):
            try:
                value = kind(text)
            except ValueError:
                continue
            if found.range is not None and found.holds(value):
                return value
        raise OptionError(flag, text, words)

    return parse


def _given(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that were given, as the protocol has them."""
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "keep_unread" and value:
            groups = [group for words in value for group in words.split(",")]
            given[name] = () if groups == ["none"] else tuple(groups)
        elif value is not None and name != "keep_unread":
            given[name] = None if value == DEFAULT_WORD else value
    return given


def _tell(topic: DescribedTopic, output_format: Format) -> None:
    if output_format is Format.JSON:
        write_line(json.dumps(_plain(topic), ensure_ascii=False))
        return
    write_line(_line(topic))
    properties = topic.properties.as_map()
    for name, value in properties.items():
        is_default = value in (None, []) or (name, value) == ("replicas", 1)
        if name not in {"partitions", "envelope"} and not is_default:
            told = ", ".join(value) if isinstance(value, list) else value
            write_line(f"  {name} {told}")
    for number, each in enumerate(topic.partitions):
        write_line(_partition_line(number, each))


def _line(topic: DescribedTopic) -> str:
    name = topic_text(topic.name)
    if topic.error:
        return f"{name}\t{topic.error}"
    told = [counted(topic.properties.partitions, "partition")]
    if topic.properties.envelope:
        told.append("envelopes")
    if not topic.is_told:
        told.append("made by a put")
    return f"{name}\t{', '.join(told)}"


def _partition_line(number: int, partition: DescribedPartition) -> str:
    held = f"{counted(partition.messages, 'message')}, {counted(partition.bytes, 'byte')}"
    places = "" if partition.oldest is None else f", {partition.oldest} to {partition.newest}"
    first, behind = partition.first_ordinal, partition.next_ordinal
    if places and first is not None and behind is not None:
        places += f", ordinals {first} to {behind - 1}"
    segments = counted(partition.segments, "segment")
    indent = "  " if is_terminal(sys.stdout) else ""
    return f"{indent}{number}\t{topic_text(partition.topic)}\t{held} in {segments}{places}"


def _plain(topic: DescribedTopic) -> dict[str, Any]:
    """Return a topic as JSON can hold it."""
    if topic.error:
        return {"name": topic_text(topic.name), "error": topic.error}
    told = topic.as_map() | {"name": topic_text(topic.name), "id": topic.id.hex()}
    rows = [each | {"topic": topic_text(each["topic"])} for each in told["partitions"]]
    return told | {"partitions": rows}
