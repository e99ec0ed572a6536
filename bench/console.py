"""Measures the console: what open ones cost the node, and how soon a page is seen.

A node is loaded in turns, beside a console with five open tabs and beside one that is stopped; of
a round the best turn counts. The tabs are streams as browsers hold them, which ask for the list of
topics whenever a state comes, as its page does. The first paint is a real Chromium's, of the page
of topics of a node that has 10 000: without Chromium that part is left out.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import rounds
from bench.build import ROOT, build
from bench.processes import HOST, Running, poe, started
from bench.row import Sample
from bench.security import Best, Way, load
from poe import protocol

TABS = 5
VIEWS = ("overview", "tree", "events")
TURNS = 7
TOPICS, QUICK_TOPICS = 10_000, 500
CALLS = (("put, 100 per call", "write", 100), ("get, 100 per call", "read", 100))
FIRST_PAINT_JS = """() => new Promise(done => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    const rows = document.querySelectorAll("tbody tr").length;
    if (paint && rows) done([paint.startTime, performance.now()]);
    else setTimeout(look, 5);
  };
  look();
})"""


class Console(NamedTuple):
    """A console that runs, and a session of it."""

    process: subprocess.Popen[str]
    port: int
    cookie: str


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Start node and console, round by round."""
    not_built = build()
    for _ in range(count):
        samples: list[Sample] = []
        with (
            tempfile.TemporaryDirectory(prefix="poe-bench-") as data,
            poe(Path(data), ()) as node,
            console(node) as shown,
        ):
            if "poeload" in not_built:
                print(f"no rates: {not_built}", file=sys.stderr)
            else:
                samples += cost_samples(node, shown, 0.2 if quick else 1.0)
            samples += paint_samples(node, shown, QUICK_TOPICS if quick else TOPICS)
        yield samples


@contextlib.contextmanager
def console(node: Running) -> Iterator[Console]:
    """Run `poe console` in front of a node, and log in."""
    command = [sys.executable, "-m", "poe", "console", "--port", "0"]
    command += ["--broker", f"poe://{HOST}:{node.port}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with started(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, ""):
            if line.startswith("console at "):
                break
        url = line.split()[2]
        port, token = int(url.split(":")[2].partition("/")[0]), url.partition("#")[2]
        asked = http.client.HTTPConnection(HOST, port, timeout=10)
        head = {"Content-Type": "application/json"}
        asked.request("POST", "/console/api/login", json.dumps({"token": token}), head)
        reply = asked.getresponse()
        cookie = str(reply.headers["Set-Cookie"]).partition(";")[0]
        asked.close()
        try:
            yield Console(process, port, cookie)
        finally:
            process.send_signal(signal.SIGCONT)


# ---- what it costs the node ---------------------------------------------------------------------


def cost_samples(node: Running, shown: Console, turn_s: float) -> list[Sample]:
    """The rates of a node beside five tabs, and beside none."""
    way = Way("poeload", node, node.port)
    load(way, "write", 100, 0.5)
    samples = []
    with tabs(shown):
        for what, mode, batch in CALLS:
            best = {is_open: Best() for is_open in (True, False)}
            for turn in range(TURNS):
                for is_open in (True, False) if turn % 2 else (False, True):
                    shown.process.send_signal(signal.SIGCONT if is_open else signal.SIGSTOP)
                    before_s = node.cpu_s()
                    calls_s = load(way, mode, batch, turn_s)["calls_s"]
                    cpu_s = (node.cpu_s() - before_s) / (calls_s * turn_s)
                    best[is_open].take(calls_s, cpu_s)
            shown.process.send_signal(signal.SIGCONT)
            rate = best[True].calls_s / best[False].calls_s
            cpu = best[True].cpu_s / best[False].cpu_s
            name = f"node beside {TABS} open consoles, {what}"
            samples += [
                Sample.at_least(f"{name}, rate", rate, "× without", 0.97),
                Sample.at_most(f"{name}, processor time", cpu, "× without", 1.03),
            ]
    return samples


@contextlib.contextmanager
def tabs(shown: Console) -> Iterator[None]:
    """Hold streams open, each in a thread.

    Raises:
        RuntimeError: one has ended before, so that what was measured means nothing.
    """
    query = "&".join(f"view={each}" for each in VIEWS)
    streams = [http.client.HTTPConnection(HOST, shown.port, timeout=30) for _ in range(TABS)]
    with concurrent.futures.ThreadPoolExecutor(TABS) as threads:
        watching = []
        try:
            for stream in streams:
                head = {"Cookie": shown.cookie}
                stream.request("GET", f"/console/api/stream?{query}", headers=head)
                reply = stream.getresponse()
                stream.sock.settimeout(None)
                watching.append(threads.submit(watch, shown, reply))
            yield
            if any(each.done() for each in watching):
                msg = "a stream of the console has ended"
                raise RuntimeError(msg)
        finally:
            for stream in streams:
                if stream.sock is not None:
                    with contextlib.suppress(OSError):  # it has ended
                        stream.sock.shutdown(socket.SHUT_RDWR)


def watch(shown: Console, stream: http.client.HTTPResponse) -> None:
    """Be a tab: take what comes, and ask for the list of topics with each state of the node."""
    asked = http.client.HTTPConnection(HOST, shown.port, timeout=30)
    with contextlib.closing(asked), contextlib.suppress(http.client.IncompleteRead):
        while line := stream.readline():
            if line.startswith(b"event: overview"):
                asked.request(
                    "GET", "/console/api/topics?limit=100", headers={"Cookie": shown.cookie}
                )
                asked.getresponse().read()


# ---- how soon it is seen ------------------------------------------------------------------------


def paint_samples(node: Running, shown: Console, topics: int) -> list[Sample]:
    """How long Chromium takes until it shows something, and until it shows the list."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of an extra
    except ImportError:
        chromium = None
    if chromium is None:
        print("no first paint: needs chromium and playwright", file=sys.stderr)
        return []
    with protocol.socket(HOST, node.port) as connection:
        for number in range(topics):
            connection.write(b"topic-%05d" % number, [b"x"])
    time.sleep(1)
    name, _, value = shown.cookie.partition("=")
    base = f"http://{HOST}:{shown.port}/console"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        context.add_cookies([{"name": name, "value": value, "url": base}])
        page = context.new_page()
        page.goto(f"{base}/topics")  # the browser's own first time
        page.evaluate(FIRST_PAINT_JS)
        page.goto("about:blank")
        page.goto(f"{base}/topics")
        paint_ms, rows_ms = page.evaluate(FIRST_PAINT_JS)
        browser.close()
    return [
        Sample.at_most(f"first paint, {topics} topics", paint_ms, "ms", 300),
        Sample.at_most(f"list of topics is shown, {topics} topics", rows_ms, "ms", 1000),
    ]


if __name__ == "__main__":
    rounds.main(measure_rounds)
