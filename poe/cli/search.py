"""`poe search`: looks for messages in a topic, where they lie."""

import os
from typing import Annotated

import typer

from poe.cli.argument import number, topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.group import write_json
from poe.cli.output import write_error, write_line
from poe.cli.topic import Format, FormatOption
from poe.errors import OptionError
from poe.errors.short_text import printable
from poe.protocol.scan import Match
from poe.record import POINTER_MAX

_MATCHES_USUAL = 100
_SHOWN_BYTES = 200


@asks_server
def search(  # noqa: PLR0913 - the options of a command
    topic: Annotated[
        bytes, typer.Argument(metavar="TOPIC", parser=topic_name, autocompletion=complete_topic)
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the messages contain.")],
    *,
    regex: Annotated[
        bool, typer.Option("--regex", help="TEXT is a regular expression, as RE2 has them.")
    ] = False,
    after: Annotated[
        int,
        typer.Option(
            "--after", metavar="POINTER", parser=number("--after", int, 0, POINTER_MAX),
            help="Look behind this pointer only.",
        ),
    ] = 0,
    last: Annotated[
        int,
        typer.Option(
            "--last", metavar="POINTER", parser=number("--last", int, 0, POINTER_MAX),
            help="Look up to this pointer only.",
        ),
    ] = POINTER_MAX,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="COUNT", parser=number("--limit", int, 1),
            help="End after so many matches.",
        ),
    ] = _MATCHES_USUAL,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:  # fmt: skip
    """Look for messages of a topic that contain TEXT, oldest first, one a line.

    A line has pointer, ordinal, bytes and the message around the match. The server looks, some MiB
    at a time, so that others are served meanwhile. At the end standard error says how far it was
    looked; without a match the exit code is 0 all the same. Of a topic that has several partitions
    name one: TOPIC-0, TOPIC-1 …
    """
    if not text:
        raise OptionError("TEXT", text, "one character or more")
    content = os.fsencode(text)
    found_count, looked_bytes = 0, 0
    with endpoint.connect() as connection:
        while True:
            found = connection.scan(
                topic,
                after,
                last,
                contains=None if regex else content,
                regex=_expression(content) if regex else None,
                matches_max=min(limit - found_count, 1000),
            )
            for match in found.matches:
                _write(match, output_format)
            found_count += len(found.matches)
            looked_bytes += found.looked_bytes
            after = max(after, found.looked_up_to)
            if found.is_end or found_count >= limit:
                break
    end = "to the end" if found.is_end else f"up to pointer {after}; go on with --after {after}"
    write_error(_summary(found_count, looked_bytes, end))


def _expression(content: bytes) -> str:
    """Return a regular expression of the command line, whatever the locale.

    Raises:
        OptionError: it is no text.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise OptionError("TEXT", content, "a regular expression in UTF-8") from error


def _summary(count: int, looked_bytes: int, end: str) -> str:
    matches = "1 match" if count == 1 else f"{count} matches"
    return f"{matches} in {looked_bytes} bytes, looked {end}"


def _write(match: Match, output_format: Format) -> None:
    if output_format is Format.JSON:
        write_json(
            {**match._asdict(), "preview": match.preview.decode("utf-8", "backslashreplace")}
        )
        return
    begin = max(match.match_at - match.preview_at - _SHOWN_BYTES // 4, 0)
    shown = match.preview[begin : begin + _SHOWN_BYTES].decode("utf-8", "backslashreplace")
    write_line(f"{match.pointer}\t{match.ordinal}\t{match.size_bytes}\t{printable(shown)}")
