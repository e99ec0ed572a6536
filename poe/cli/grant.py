"""`poe grant` and `poe grants`: say who may do what, and explain why somebody may or may not."""

import os
from dataclasses import replace
from typing import Annotated

import typer

from poe.cli.exit_code import ExitCode
from poe.cli.node_place import node_path
from poe.cli.output import write_line
from poe.cli.users_file import TAKES_EFFECT, UsersOption, names, split, users_path, warn
from poe.errors import ConfigError, OptionError
from poe.security.policy import GROUP, NODE, NODE_OPERATIONS, OPERATIONS, TOPIC, Grant
from poe.security.security import read_security
from poe.security.user_file import changed_users
from poe.topic_name import topic_text

_OPERATIONS = ", ".join(OPERATIONS)

GrantTopics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="With its partitions; may be repeated."),
]
GrantPrefixes = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix",
        metavar="TEXT",
        help="All topics that begin so; an empty one: all but poe.*; may be repeated.",
    ),
]


def grant(  # noqa: PLR0913 - a command line option each
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a user; '*': of any.")],
    *,
    operations: Annotated[
        list[str] | None,
        typer.Option(metavar="OPERATION,…", help=f"Some of {_OPERATIONS}."),
    ] = None,
    topics: GrantTopics = None,
    prefixes: GrantPrefixes = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="May be repeated.")
    ] = None,
    group_prefixes: Annotated[
        list[str] | None,
        typer.Option("--group-prefix", metavar="TEXT", help="All groups that begin so."),
    ] = None,
    remove: Annotated[
        int | None,
        typer.Option("--remove", metavar="NUMBER", help="Take away what `poe grants` lists so."),
    ] = None,
    users: UsersOption = None,
) -> None:
    """Allow a user operations with topics and groups, or take a grant away.

    Nothing is allowed that no grant allows, and no grant takes away what another one gives. Read
    and write include describe. Operations `admin` and `authorize` concern the server, and take
    no names.
    """
    path = users_path(users)
    has_names = any((topics, prefixes, groups, group_prefixes))
    if remove is not None:
        if operations or has_names:
            raise OptionError("--remove", remove, "it alone: the number says which grant")
        with changed_users(path) as file:
            grants = file.security.policy.grants
            if not 1 <= remove <= len(grants) or name not in grants[remove - 1].principals:
                allowed = f"the number of a grant of {name} in {path}"
                raise OptionError("--remove", remove, allowed)
            found = grants[remove - 1]
            file.remove_grant(remove - 1)
            others = tuple(each for each in found.principals if each != name)
            if others:
                file.add_grant(replace(found, principals=others))
        write_line(f"{name} has no longer: {_text(found)}; {TAKES_EFFECT}")
        return
    made = Grant(
        principals=(name,),
        operations=split("operations", operations),
        topics=names(topics),
        prefixes=names(prefixes),
        groups=names(groups),
        group_prefixes=names(group_prefixes),
    )
    with changed_users(path) as file:
        if name != "*" and file.security.users.find(name) is None:
            raise OptionError("NAME", name, f"a user that {path} has; see poe user list")
        file.add_grant(made)
    write_line(f"{name} may {_text(made)}; {TAKES_EFFECT}")


def grants(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="With --may: what it concerns.")
    ] = None,
    *,
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Of one user.")] = None,
    may: Annotated[
        str | None,
        typer.Option("--may", metavar="OPERATION", help="Tell whether this is allowed, and why."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Instead of a topic.")
    ] = None,
    users: UsersOption = None,
) -> ExitCode:
    """List grants with their numbers, or explain what a user may do.

    As in `poe grants --as alice --may write orders`, of which the exit code is 1 when it is not
    allowed. What the file says is told, whether or not a running server has taken it already.
    """
    security = read_security(users_path(users), node_path("acl"))
    warn(security.warnings)
    if name is not None and security.users.find(name) is None:
        raise OptionError("--as", name, "a user of the file; see poe user list")
    if may is None:
        if topic is not None or group is not None:
            msg = "give --may OPERATION, too: what is to be done with it?"
            raise ConfigError(msg)
        for number, each in enumerate(security.policy.grants, 1):
            if name is None or {name, "*"} & set(each.principals):
                write_line(f"{number}\t{', '.join(each.principals)}\t{_text(each)}")
        return ExitCode.OK
    if name is None:
        msg = "give --as NAME, too: who is to do it?"
        raise ConfigError(msg)
    decision = security.policy.explain(name, may, *_resource(may, topic, group))
    write_line(decision.sentence)
    return ExitCode.OK if decision.allowed else ExitCode.FAILURE


def _resource(operation: str, topic: str | None, group: str | None) -> tuple[str, bytes]:
    """Return the kind and the name of what an operation is done with.

    Raises:
        OptionError, ConfigError: there is no such operation, or it concerns something else.
    """
    if operation not in OPERATIONS:
        raise OptionError("--may", operation, f"one of {_OPERATIONS}")
    if operation in NODE_OPERATIONS:
        if topic is not None or group is not None:
            raise OptionError("--may", operation, "it without a name: it concerns the server")
        return NODE, b""
    if (topic is None) == (group is None):
        msg = f"{operation} what? give a topic, or --group GROUP"
        raise ConfigError(msg)
    return (TOPIC, os.fsencode(topic)) if topic is not None else (GROUP, os.fsencode(group or ""))


def _text(each: Grant) -> str:
    """Say what a grant allows."""
    told = [
        f"{what} {topic_text(name)}"
        for what, found in (
            ("topic", each.topics),
            ("topics", tuple(name + b"*" for name in each.prefixes)),
            ("group", each.groups),
            ("groups", tuple(name + b"*" for name in each.group_prefixes)),
        )
        for name in found
    ]
    return f"{', '.join(each.operations)} {', '.join(told) or 'the server'}"
