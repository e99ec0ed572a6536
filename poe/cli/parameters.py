"""Parameters that several commands have, and those that are made at run time, for typer to read."""

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer

from poe.cli.log import LEVELS

T = TypeVar("T")
LogLevelOption: TypeAlias = Annotated[
    str, typer.Option(metavar="|".join(LEVELS), help="How much the log tells.")
]


def option(name: str, annotation: object) -> inspect.Parameter:
    """Return the parameter of an option that may be left out, and is None then."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def with_parameters(
    command: Callable[..., T],
    instead_of: str,
    made: Iterable[inspect.Parameter],
    call: Callable[..., T] | None = None,
) -> Callable[..., T]:
    """Return a command with other parameters in the place of one, behind the rest.

    Args:
        command: its name, text and other parameters stay.
        instead_of: its parameter that they stand for.
        made: the others.
        call: what takes them all; the command itself, where that parameter is its `**`.
    """
    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    own = [
        each.replace(annotation=hints.get(each.name, each.annotation))
        for each in signature.parameters.values()
        if each.name != instead_of
    ]
    parameters = [*own, *made]

    def with_made(**values: Any) -> T:  # noqa: ANN401 - as typer has parsed them
        return (call or command)(**values)

    with_made.__name__, with_made.__doc__ = command.__name__, command.__doc__
    with_made.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    with_made.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_made
