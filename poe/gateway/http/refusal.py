"""Refuses requests that are wrong."""

from http import HTTPStatus
from typing import NoReturn

from poe.errors import RequestRefused


def refuse(why: str) -> NoReturn:
    """Refuse a request as wrong.

    Raises:
        RequestRefused: always.
    """
    raise RequestRefused(HTTPStatus.BAD_REQUEST, why)
