"""A real Chromium that looks at a real console; without one these tests skip themselves.

With SHOTS=FOLDER each page is written there as a picture, in both themes, for people.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poe.node import Node
from poe.protocol import socket as connect
from tests.gateway.console.conftest import Shown

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The browser, which the tests of a module share, and no other tests.

    While Playwright runs, an event loop runs in this thread, beside which no other may: a test with
    `asyncio.run` that came to this worker meanwhile would fail.
    """
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Iterator[Node]:
    """A node that all tests share; each has topics of its own."""
    with Node(dir=tmp_path_factory.mktemp("node"), port=0, names="escape") as node:
        for number in range(250):
            node.put("orders", b'{"id": %d}' % number)
        yield node


@pytest.fixture(scope="module")
def console(node, chromium) -> Iterator[Shown]:
    """A console that may do all."""
    with Shown(node, "--destructive") as console:
        assert node.address is not None
        made: dict[str, Any] = {"mode": "shared", "topics": [b"orders"], "options": {}}
        with connect("127.0.0.1", node.address[1]) as connection:
            connection.control("group_create", group="billing", **made)
        yield console


class View:
    """A tab that is logged in, and what went wrong in it."""

    def __init__(self, chromium, console, theme="light"):
        self.console = console
        self.context = chromium.new_context(
            color_scheme=theme, viewport={"width": 1200, "height": 800}, reduced_motion="reduce"
        )
        self.theme = theme
        cookies = [
            {"name": name, "value": value, "url": f"{console.base}/console"}
            for name, value in console.http.cookies.items()
        ]
        self.context.add_cookies(cookies)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.wrong: list[str] = []
        self.page.on("console", self._note_line)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._note_request)

    def show(self, page, text=None, /, **query):
        """Open a page, and wait until it shows a text: its title, or another."""
        given = "&".join(f"{name}={value}" for name, value in query.items())
        self.page.goto(f"{self.console.base}/console/{page}?{given}")
        self.page.get_by_role("heading", level=1).wait_for()
        if text is not None:
            self.page.get_by_text(text).first.wait_for()
        return self.page

    def shot(self, name):
        """Write a picture for people, where SHOTS says so."""
        if folder := os.environ.get("SHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}-{self.theme}.png")

    def close(self):
        self.context.close()
        assert not self.wrong, self.wrong

    def _note_line(self, line):
        # A refusal that a test asks for is told by the browser, too.
        if line.type in {"error", "warning"} and "Failed to load resource" not in line.text:
            self.wrong.append(line.text)

    def _note_request(self, request):
        if not request.url.startswith((self.console.base, "data:")):
            self.wrong.append(f"asks elsewhere: {request.url}")


@pytest.fixture
def view(chromium, console) -> Iterator[View]:
    """A tab; nothing may have gone wrong in it when the test has ended."""
    view = View(chromium, console)
    yield view
    view.close()


@pytest.fixture(params=["light", "dark"])
def themed(request, chromium, console) -> Iterator[View]:
    """The same in both themes."""
    view = View(chromium, console, request.param)
    yield view
    view.close()


def violations(page) -> list[SimpleNamespace]:
    """What axe finds wrong by WCAG A and AA."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = axe.Axe().run(page, options=options).response["violations"]
    return [
        SimpleNamespace(id=each["id"], nodes=[node["html"] for node in each["nodes"]])
        for each in found
    ]
