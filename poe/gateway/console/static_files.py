"""The files that pages are made of: in the wheel, read once, and sent compressed where they may be.

They hold nothing of the node, and need no session.
"""

import gzip
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from poe.errors import RequestRefused

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
INDEX: Final = "index.html"


class StaticFile(NamedTuple):
    """One file, as it is sent."""

    content: bytes
    packed: bytes
    media_type: str
    tag: str
    """By which a browser knows whether it has it."""


class StaticFiles:
    """All files below `static/`."""

    def __init__(self) -> None:
        self._files = dict(_found(files("poe.gateway.console") / "static"))

    def reply(self, name: str, request: Request) -> Response:
        """Return a file; 304 where the browser has it.

        Raises:
            RequestRefused: 404, there is none.
        """
        found = self._files.get(name)
        if found is None:
            why = f"the console has no file {name!r:.100}"
            raise RequestRefused(HTTPStatus.NOT_FOUND, why)
        headers = {"ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        content = found.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            content = found.packed
        return Response(content, headers=headers, media_type=found.media_type)


def _found(folder: Traversable, above: str = "") -> list[tuple[str, StaticFile]]:
    rows = []
    for each in folder.iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if each.is_dir():
            rows += _found(each, f"{above}{each.name}/")
        elif kind is not None:
            content = each.read_bytes()
            tag = f'"{sha256(content).hexdigest()[:32]}"'
            packed = gzip.compress(content, mtime=0)
            rows.append((above + each.name, StaticFile(content, packed, kind, tag)))
    return rows
