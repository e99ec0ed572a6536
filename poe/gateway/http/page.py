"""Turns the OpenAPI document into a page for people: HTML alone, with nothing from another host.

It has no script, so that its policy can forbid all of them, and works where there is no internet.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from typing import Any

Json = dict[str, Any]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
body { color: #222; background: #fff }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto }
h2 { font-size: 1.1em; margin: 2em 0 0 } h2 code { font-size: 1em }
table { border-collapse: collapse; width: 100% } caption { text-align: left; font-weight: bold }
td { border-top: 1px solid #ddd; padding: .2em 1em .2em 0; vertical-align: top }
td:first-child { width: 14em }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #111 } pre { background: #222 } td { border-color: #444 }
  a { color: #8bf }
}
"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
PAGE_HEADERS = {
    # The browser fetches nothing at all for this page; only this style, and no script, counts.
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page_of(document: Json) -> str:
    """Return the page of an OpenAPI document of ours."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return "".join(
        [
            "<!DOCTYPE html>\n",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n",
            f"<p>{escape(info['description'])} ",
            'For machines: <a href="/openapi.json">openapi.json</a>.</p>\n<ul>\n',
            *(_link(*each) for each in operations),
            "</ul>\n",
            *(part for each in operations for part in _operation(document, *each)),
            *_schemas(document["components"]["schemas"]),
            "</body></html>\n",
        ]
    )


def _link(path: str, method: str, operation: Json) -> str:
    name = f"{method.upper()} {path}"
    anchor, summary = escape(_anchor(name)), escape(operation["summary"])
    return f'<li><a href="#{anchor}"><code>{escape(name)}</code></a> {summary}</li>\n'


def _operation(document: Json, path: str, method: str, operation: Json) -> Iterator[str]:
    name = f"{method.upper()} {path}"
    yield f'<h2 id="{escape(_anchor(name))}"><code>{escape(name)}</code></h2>\n'
    yield f"<p>{escape(operation['summary'])}</p>\n"
    yield _table(
        "Parameters",
        {
            f"{each['name']} ({each['in']})": each.get("description", "") + _shape(each["schema"])
            for each in operation.get("parameters", [])
        },
    )
    body = operation.get("requestBody", {})
    kinds = {kind: _shape(each["schema"]) for kind, each in body.get("content", {}).items()}
    yield _table("Body", kinds)
    if "description" in body:
        yield f"<p>{escape(body['description'])}</p>\n"
    replies = {}
    for status, reply in operation["responses"].items():
        reference = reply.get("$ref", "").rpartition("/")[2]
        shared = document["components"]["responses"].get(reference, reply)
        kinds = shared.get("content", {}) if shared is reply else {}
        replies[status] = " ".join([shared["description"], *kinds])
    yield _table("Answers", replies)


def _schemas(schemas: Json) -> Iterator[str]:
    for name, schema in schemas.items():
        text = escape(json.dumps(schema, indent=1))
        yield f'<h2 id="{escape(name)}">{escape(name)}</h2>\n<pre>{text}</pre>\n'


def _table(caption: str, rows: dict[str, str]) -> str:
    if not rows:
        return ""
    cells = (
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>\n"
        for name, text in rows.items()
    )
    return f"<table><caption>{caption}</caption>\n{''.join(cells)}</table>\n"


def _shape(schema: Json) -> str:
    """Return the bounds of a value in words; those of bodies stand in the schemas below."""
    words = [schema["description"]] if "description" in schema else []
    words += [
        f"{word} {schema[key]}"
        for key, word in (
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("maxLength", "at most this long:"),
            ("default", "without it"),
        )
        if key in schema
    ]
    if "anyOf" in schema:
        words.append('{"records": [Record, …]}, or any other JSON as one message')
    return (" " + "; ".join(words)).rstrip()


def _anchor(name: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in name)
