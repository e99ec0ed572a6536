"""The parameters of a request, behind the `?` of its URL."""

from http import HTTPStatus

from starlette.requests import Request

from poe.errors import RequestRefused
from poe.gateway.http.body import once
from poe.gateway.http.refusal import refuse


def parameters_of(request: Request, known: set[str]) -> dict[str, str]:
    """Return the parameters of a request.

    Raises:
        RequestRefused: there are others than the known ones, one twice, or one that is no text.
    """
    try:
        given = {
            name.decode(): value.decode() for name, value in once(request.scope["query_string"])
        }
    except UnicodeDecodeError as error:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "the parameters are no UTF-8") from error
    for name in given.keys() - known:
        allowed = ", ".join(sorted(known)) or "none"
        refuse(f"parameter {name!r:.100} is not known; there are: {allowed}")
    return given
