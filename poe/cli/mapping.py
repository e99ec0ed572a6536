"""`poe mapping`: checks, tests, explains and runs mappings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from poe.cli.argument import topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.exit_code import ExitCode
from poe.cli.mapping_run import dry_run, list_mappings, run, show, stop
from poe.cli.output import counted, write_error, write_line
from poe.cli.topic import Format, FormatOption
from poe.errors import ConfigError, OptionError, UndecodableMessage
from poe.errors.short_text import printable
from poe.mapping import Message, load
from poe.mapping.checks import warnings
from poe.mapping.decoding import Decode
from poe.mapping.examples import batch_of, complaints, outcome
from poe.mapping.message import columns_of, topic_text
from poe.mapping.rule import Call
from poe.mapping.rule_set import OTHERWISE, Compiled, Explanation

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A mapping: .toml or .py.")]


def mapping_application() -> typer.Typer:
    """Return the group of commands."""
    application = typer.Typer(help="Check, test, explain and run mappings.", rich_markup_mode=None)
    commands: dict[str, Callable[..., Any]] = {
        "check": check,
        "test": run_tests,
        "explain": asks_server(explain),
        "run": asks_server(run),
        "dry-run": asks_server(dry_run),
        "stop": asks_server(stop),
        "list": asks_server(list_mappings),
        "show": asks_server(show),
    }
    for name, command in commands.items():
        application.command(name)(command)
    return application


def check(file: FileArgument, *, output_format: FormatOption = Format.TEXT) -> None:
    """Check a mapping; what is wrong is told with its line, and rules that nothing reaches."""
    rules = load(file)
    compiled = rules.compile()
    warned = warnings(rules)
    if output_format is Format.JSON:
        told = {
            "name": rules.name,
            "rules": [each.id for each in rules.rules],
            "tests": len(rules.examples),
            "hash": compiled.hash.hex(),
            "warnings": warned,
        }
        write_line(json.dumps(told, ensure_ascii=False))
        return
    counts = f"{counted(len(rules.rules), 'rule')}, {counted(len(rules.examples), 'test')}"
    write_line(f"{rules.name}\t{counts}")
    for each in warned:
        write_error(each)


def run_tests(file: FileArgument, *, output_format: FormatOption = Format.TEXT) -> ExitCode:
    """Run the tests that stand in a mapping; functions are called.

    The exit code is 1 where a message has become something else than its test expects.
    """
    rules = load(file)
    compiled = rules.compile()
    failed = 0
    for number, each in enumerate(rules.examples, start=1):
        wrong = complaints(compiled, each)
        failed += bool(wrong)
        where = each.place or f"test {number}"
        if output_format is Format.JSON:
            told = {"test": where, "ok": not wrong, "wrong": wrong}
            write_line(json.dumps(told, ensure_ascii=False))
        else:
            write_line(f"failed\t{where}" if wrong else f"ok\t{where}")
            for one in wrong:
                write_line(f"\t{printable(one)}")
    if not rules.examples and output_format is Format.TEXT:
        write_error(f"{file} has no tests; write [[test]] with `in` and `expect`")
    return ExitCode.FAILURE if failed else ExitCode.OK


def explain(  # noqa: PLR0913 - the options of a command
    file: FileArgument,
    *,
    topic: Annotated[
        bytes, typer.Option("--topic", metavar="TOPIC", parser=topic_name, help="Where it lies.")
    ],
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="The value of a message.")
    ] = None,
    pointer: Annotated[
        int | None, typer.Option("--pointer", metavar="P", help="Of a message on the server.")
    ] = None,
    message_key: Annotated[
        str | None, typer.Option("--message-key", metavar="TEXT", help="Its key, with --message.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=TEXT", help="Likewise; may be repeated."),
    ] = None,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Explain what becomes of a message, and why: each rule, clause by clause.

    Functions are not called.
    """
    if (message is None) == (pointer is None):
        raise ConfigError("give either --message TEXT or --pointer P")  # noqa: TRY003
    typed = [("--message-key", message_key), *(("--header", each) for each in header or ())]
    for flag, value in typed:
        if pointer is not None and value is not None:
            raise OptionError(flag, value, "it with --message")
    compiled = load(file).compile()
    decoding = compiled.rules.decode
    if pointer is None:
        headers = dict(_pair(each) for each in header or ())
        found = Message(
            topic_text(topic),
            1,
            str(message).encode("utf-8", "surrogateescape"),
            None if message_key is None else message_key.encode("utf-8", "surrogateescape"),
            headers,
            decoding,
        )
    else:
        found = _stored(endpoint, topic, pointer, decoding)
    try:
        explanation = compiled.explain(found)
    except UndecodableMessage as error:
        explanation = Explanation([])
        write_error(str(error))
    becomes = _becomes(compiled, explanation, found)
    if output_format is Format.JSON:
        told = {"rules": [_as_map(each) for each in explanation.tried], "becomes": becomes}
        write_line(json.dumps(told, ensure_ascii=False))
        return
    for line in explanation_lines(explanation):
        write_line(line)
    write_line(f"becomes\t{printable(becomes)}")


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return what is told of each rule, and below it of each clause."""
    lines = []
    for each in explanation.tried:
        verdict = {True: "met", False: "not met", None: "error"}[each.is_met]
        error = f"\t{printable(each.error)}" if each.error else ""
        lines.append(f"{each.rule}\t{verdict}{error}")
        for place, is_met, wanted, shown in each.clauses:
            found = f", is {printable(shown)}" if shown else ""
            lines.append(f"\t{'yes' if is_met else 'no'}\t{place}: {printable(wanted)}{found}")
    return lines


def _becomes(compiled: Compiled, explanation: Explanation, message: Message) -> str:
    fates = {each.id: each.fate for each in compiled.rules.rules}
    called = [fate.name for fate in map(fates.get, explanation.met) if isinstance(fate, Call)]
    if called:
        return f"what {called[0]} returns"
    told = outcome(compiled.decide(batch_of(message)))
    onto = f" {', '.join(told['to'])}" if told["to"] else ""
    why = f": {told['why']}" if told["why"] else ""
    by = "no rule is met" if told["rule"] == OTHERWISE else f"rule {told['rule']}"
    return f"{told['action']}{onto}{why} ({by})"


def _as_map(tried: Any) -> dict[str, Any]:  # noqa: ANN401 - a named tuple
    return {**tried._asdict(), "clauses": [each._asdict() for each in tried.clauses]}


def _stored(endpoint: Endpoint, topic: bytes, pointer: int, decoding: Decode) -> Message:
    """Return a message that lies on the server, in whichever partition of the topic.

    Raises:
        OptionError: there is none at the pointer, or one in each of several partitions.
    """
    with endpoint.looking() as connection:
        found = connection.find_topic(topic)
        names, has_envelope = [topic], False
        if found is not None and found.is_told:
            names = [each.topic for each in found.partitions]
            has_envelope = found.properties.envelope
        messages = [
            bytes(message)
            for name in names
            for at, message in connection.read(name, max(pointer - 1, 0), 1)
            if at == pointer
        ]
    if len(messages) > 1:
        allowed = "that of one message: several partitions have it; type the value with --message"
        raise OptionError("--pointer", pointer, allowed)
    if not messages:
        raise OptionError("--pointer", pointer, "that of a message of the topic")
    columns = columns_of(topic, [pointer], messages, is_enveloped=has_envelope)
    return columns.message(0, decoding)


def _pair(text: str) -> tuple[str, bytes]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise OptionError("--header", text, "NAME=TEXT")
    return name, value.encode("utf-8", "surrogateescape")
