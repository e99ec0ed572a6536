"""One request of a page: who asks, what was given, and the way to the node."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from poe.client.async_socket import AsyncSocket
from poe.errors import RequestRefused
from poe.errors.short_text import short_repr
from poe.gateway.console.deeds import Deeds
from poe.gateway.console.level import Level
from poe.gateway.console.look import Look
from poe.gateway.console.sessions import Session
from poe.gateway.http.body import once, parsed
from poe.gateway.http.group_fields import name_text
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import as_json
from poe.record import POINTER_MAX
from poe.topic_name import topic_text

Handler = Callable[["Visit"], Awaitable[object]]
"""What it returns is sent as JSON, or a Starlette `Response` as it is."""


class Row(NamedTuple):
    """One path below /console/api."""

    path: str
    levels: Mapping[str, Level]
    """What each method needs."""
    handler: Handler


class Visit:
    """One request of a page.

    Attributes:
        request: as Starlette has it.
        session: whose it is; None where a path needs none.
        level: what the session may do.
        deeds: what was done with this console.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that a request needs
        self,
        request: Request,
        session: Session | None,
        look: Look | None,
        level: Level,
        inflow: Inflow,
        deeds: Deeds,
    ) -> None:
        self.request = request
        self.session = session
        self.level = level
        self._look = look
        self._inflow = inflow
        self.deeds = deeds
        self._query: dict[str, str] | None = None

    @property
    def look(self) -> Look:
        """The console as this identity sees it."""
        assert self._look is not None, "a path that needs a session has one"
        return self._look

    @property
    def user(self) -> str | None:
        """Whose visit it is; None for who has shown the one-time token, and for strangers."""
        return None if self.session is None else self.session.user

    @property
    def address(self) -> str:
        """Where the browser is."""
        client = self.request.client
        return "an unknown address" if client is None else client.host

    def node(self) -> AbstractAsyncContextManager[AsyncSocket]:
        """Lend a connection to the node, as `Look.node`."""
        return self.look.node()

    def name(self, parameter: str) -> bytes:
        """Return what a parameter of the path names."""
        return unquote_to_bytes(self.request.path_params[parameter])

    def given(self, name: str) -> str | None:
        """Return a parameter of the query; None without one.

        Raises:
            RequestRefused: one is given twice, or the query is no UTF-8.
        """
        if self._query is None:
            try:
                found = once(self.request.scope["query_string"])
                self._query = {name.decode(): value.decode() for name, value in found}
            except UnicodeDecodeError as error:
                why = "the parameters are no UTF-8"
                raise RequestRefused(HTTPStatus.BAD_REQUEST, why) from error
        return self._query.get(name)

    def text(self, name: str, default: str = "") -> str:
        """Return a text of the query."""
        found = self.given(name)
        return default if found is None else found

    def choice(self, name: str, default: str, *others: str) -> str:
        """Return one of some texts of the query.

        Raises:
            RequestRefused: it is none of them.
        """
        found = self.text(name, default)
        if found not in {default, *others}:
            refuse(f"parameter {name} is {found!r:.100}; give {' or '.join((default, *others))}")
        return found

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number of the query.

        Raises:
            RequestRefused: it is none from `low` to `high`.
        """
        found = self.given(name)
        if found is None or not found:
            return default
        digits = found.removeprefix("-")
        is_whole = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(high))
        if not is_whole or not low <= int(found) <= high:
            refuse(f"parameter {name} is {found!r:.100}; give a whole number from {low} to {high}")
        return int(found)

    async def body(self) -> dict[str, Any]:
        """Return the object of JSON that a body is.

        Raises:
            RequestRefused: it is none, or too large.
        """
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            why = f"content type {kind!r:.100} is not served here; send application/json"
            raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)
        # What strangers send is to take no room that bodies of others need.
        limit = _STRANGER_BYTES if self.session is None else None
        content = await self._inflow.receive(self.request, limit)
        try:
            found = parsed(content, "the body")
        finally:
            self._inflow.release(len(content))
        if not isinstance(found, dict):
            refuse(f"the body is {short_repr(found)}; send an object")
        try:
            as_json(found)
        except UnicodeEncodeError:
            why = "the body has half of a surrogate pair in it, which is no character"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, why) from None
        return found

    def record(self, action: str, target: str) -> None:
        """Tell who does what, before it is done."""
        self.deeds.note(self.user, self.address, action, target)


def pointer_of(text: object) -> int | None:
    """Return the pointer that a text is; None where it is none."""
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal()
    if not is_number or len(str(text)) > len(str(POINTER_MAX)):
        return None
    pointer = int(str(text))
    return pointer if pointer <= POINTER_MAX else None


SEARCHED_MAX: Final = 1000
"""A node looks for no more bytes."""
_STRANGER_BYTES: Final = 16 * 1024
"""Of the body of who has no session: a token, or a name and a password."""


def searched_text(visit: Visit, *, is_short: bool = True) -> str:
    """Return the text that is to be found.

    Raises:
        RequestRefused: there is none, or it is longer than a node looks for.
    """
    text = visit.text("text")
    if not text:
        refuse("parameter text is empty; say what to find")
    if is_short and len(text.encode()) > SEARCHED_MAX:
        refuse(f"parameter text is longer than {SEARCHED_MAX} bytes; look for a part of it")
    return text


class Paged(NamedTuple):
    """Which part of a list a page shows."""

    filter: str
    sort: str
    is_descending: bool
    offset: int
    limit: int


ROWS_MAX: Final = 500
WHOLE_MAX: Final = 2**53 - 1
"""As far as JavaScript counts."""


def paged(visit: Visit, sort: str, *sorts: str) -> Paged:
    """Return what was asked of a list; the first of the sorts is the default.

    Raises:
        RequestRefused: a parameter is none.
    """
    return Paged(
        visit.text("filter"),
        visit.choice("sort", sort, *sorts),
        visit.choice("order", "asc", "desc") == "desc",
        visit.number("offset", 0, 0, 1 << 40),
        visit.number("limit", 100, 1, ROWS_MAX),
    )


def named(name: bytes) -> dict[str, str]:
    """Return a name as people read it, and the id that says it exactly."""
    return {"name": topic_text(name), "id": name_text(name)}


def group_name(visit: Visit) -> str:
    """Return the group that a path names.

    Raises:
        RequestRefused: it is no UTF-8, as names of groups are.
    """
    try:
        return visit.name("group").decode()
    except UnicodeDecodeError as error:
        why = "the name of a group is UTF-8, percent-encoded"
        raise RequestRefused(HTTPStatus.BAD_REQUEST, why) from error


def safe(value: Any) -> Any:  # noqa: ANN401 - as JSON has it
    """Return a value whose numbers JavaScript can hold: greater ones as text."""
    if isinstance(value, dict):
        return {name: safe(each) for name, each in value.items()}
    if isinstance(value, list):
        return [safe(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > WHOLE_MAX:
        return str(value)
    return value
