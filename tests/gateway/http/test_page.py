"""The page of the routes: all of them, and nothing from another host."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from poe.gateway.http import GatewayOptions
from poe.gateway.http.openapi import document
from poe.gateway.http.page import page_of


class _Elements(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.slow
def test_the_page_is_served_with_a_policy_that_forbids_all_but_its_style(front):
    reply = front.http.get("/docs")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(
        part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";")
    )
    (style,) = re.findall(r"<style>(.*?)</style>", reply.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == f"'sha256-{digest}'", "the browser would drop the style"
    assert policy.keys() == {"default-src", "style-src", "base-uri", "form-action",
                             "frame-ancestors"}  # fmt: skip
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert front.http.head("/docs").status_code == 200
    assert reply.text == page_of(document(GatewayOptions()))


def test_the_page_needs_nothing_but_itself():
    found = _Elements(page_of(document(GatewayOptions())))
    assert not {"script", "link", "img", "iframe", "base", "form", "object"} & set(found.tags)
    loaded = [value for name, value in found.attributes if name in {"href", "src"}]
    assert all(each.startswith("#") or each == "/openapi.json" for each in loaded)
    assert not re.search(r"https?://|@import|url\(", page_of(document(GatewayOptions())))


def test_each_route_has_its_place_and_each_link_an_end():
    text = document(GatewayOptions())
    found = _Elements(page_of(text))
    for path, methods in text["paths"].items():
        for method, operation in methods.items():
            assert found.texts.count(f"{method.upper()} {path}") == 2, "in the list, and below"
            assert f" {operation['summary']}" in found.texts
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = {v for name, v in found.attributes if name == "href" and v.startswith("#")}
    assert {each.removeprefix("#") for each in links} <= set(ids)


def test_what_stands_in_the_document_is_text_and_no_markup():
    text = document(GatewayOptions())
    text["info"]["title"] = "<script>alert(1)</script>&"
    text["paths"]['/<b>"'] = {"get": {"summary": "<i>", "responses": {}}}
    found = _Elements(page_of(text))
    assert not {"script", "b", "i"} & set(found.tags)
    assert "<i>" in "".join(found.texts)
