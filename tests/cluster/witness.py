"""Clients of a cluster that note what they do and see, and a judge of all of it.

Each client is a thread with a socket to one node, so that it is known which node did what; the
history is that of `torture/cluster_history.py`, and its rules judge it.
"""

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from poe import protocol
from poe.errors import PoeError, QueueBusy, TooFewNodes, UnderCopies
from poe.protocol import Done, LeaseReply, LeaseRequest, Socket
from poe.record import RECORD_HEADER_BYTES
from tests.cluster.nodes import PORT, Nodes, RunningNode
from tests.waiting import wait_until
from torture.cluster_history import Event, History, Kind, make_body, message_of
from torture.cluster_rules import broken

CALL_S = 6
AGREED_S = 30
"""How long nodes may take to know the same."""
LOOK_S = 0.5
"""Between two looks at what nodes have told each other."""
PAUSE_S = 0.05
"""After an error, before the next try."""
BYTES_MAX = 1 << 20
WAIT_S = 0.2
"""How long a worker waits for jobs; what it has done is told no later."""


class Witness:
    """What is known of one queue of a running cluster, and one group of it."""

    queue = "jobs"
    group = "workers"

    def __init__(
        self, nodes: Nodes, copies: int = 2, group_options: dict[str, Any] | None = None
    ) -> None:
        self.nodes = nodes
        self.copies = copies
        """How many each put wants that does not say so."""
        self.group_options = group_options or {}
        self.errors: list[Exception] = []
        """What ended a client, though it is none that a client must expect."""
        self.has_unanswered = False
        """Whether a request for jobs was not answered."""
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._lives = {node.name: 1 for node in nodes}
        self._ops = itertools.count(1)
        self._names: dict[tuple[bytes, int], str] = {}
        self._producers: list[threading.Thread] = []
        self._workers: list[threading.Thread] = []
        self.is_enough = threading.Event()
        """Whether producers are to end."""
        self._is_over = threading.Event()
        """Whether all are."""
        for node in nodes:
            self.note("start", node)

    def note(self, kind: Kind, node: RunningNode | None = None, **fields: Any) -> None:
        """Add an event, now unless `at_us` is given."""
        if node is not None:
            fields = {"node": node.name, "life": self._lives[node.name], **fields}
        event = Event(**{"at_us": now_us(), "kind": kind, **fields})
        with self._lock:
            self._events.append(event)

    # --- What is done to nodes -------------------------------------------------------------------

    def kill(self, node: RunningNode, *, is_kept: bool = False) -> None:
        """End a life of a node at once; `is_kept`: the queue lies on its disk."""
        node.kill()
        self.note("kill", node, state="kept" if is_kept else "lost")

    def start(self, node: RunningNode) -> None:
        """Begin another one."""
        self._lives[node.name] += 1
        self.note("start", node)
        node.start()

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """Have the block do something bad to the network, or to a node, and undo it."""
        number = next(self._ops)
        self.note("fault", text=what, op=number)
        yield
        self.note("heal", text=what, op=number)

    # --- Clients ---------------------------------------------------------------------------------

    def make_queue(self, node: RunningNode, **properties: Any) -> None:
        """Make the group, and the queue that it takes from."""
        if properties:
            node.control("queue_create", topic=self.queue, **properties)
        with self.member(node) as (socket, member):
            self.note("group", node, client="maker", queue=self.queue, group=self.group,
                      state=self.group_options.get("delivery", "at-least-once"))  # fmt: skip
            socket.control("group_leave", group=self.group, member=member)

    def put(self, node: RunningNode, count: int = 1, copies: int | None = None) -> str:
        """Put some messages, and return what that was answered: ok, under, busy or refused."""
        with connect(node) as socket:
            return self._put(node, socket, "putter", count, copies)

    def produce(self, node: RunningNode, count: int = 5, pause_s: float = 0.02) -> None:
        """Have a client put batches through a node, until the end."""
        client = f"producer of {node.name}"

        def put(socket: Socket) -> None:
            self._put(node, socket, client, count, None)
            self.is_enough.wait(pause_s)

        self._producers.append(self._run(client, self.is_enough, lambda: connect(node), put))

    def work(self, node: RunningNode, limit: int = 20, hold_s: float = 0) -> None:
        """Have a client take jobs from a node and acknowledge them, until the end.

        While there are producers it holds jobs for `hold_s` before it does so.
        """
        worker = Worker(self, node, limit, hold_s)
        self._workers.append(
            self._run(worker.client, self._is_over, lambda: self.member(node), worker.take)
        )

    def end_puts(self) -> None:
        """End all producers, with what they are putting just now; workers go on."""
        self.is_enough.set()
        for producer in self._producers:
            producer.join()

    def stop(self) -> None:
        """End all clients; raise what should not have happened to one."""
        self.end_puts()
        self._is_over.set()
        for worker in self._workers:
            worker.join()
        if self.errors:
            raise self.errors[0]

    def drain(self, timeout_s: float = 40) -> None:
        """Wait until all that was promised is done."""
        wait_until(lambda: not self.open(), timeout_s)

    def open(self) -> set[str]:
        """The messages that some node holds, by what was answered, and no worker calls done."""
        history = self.history()
        promised = {
            message for put in history.puts if put.promised for message in put.asked.messages
        }
        return promised - {message for event in history.of("ack") for message in event.messages}

    def _run(
        self,
        name: str,
        end: threading.Event,
        enter: Callable[[], Any],
        act: Callable[[Any], None],
    ) -> threading.Thread:
        """Have a thread that does something again and again, with a new socket after an error."""

        def run() -> None:
            while not end.is_set():
                try:
                    with enter() as entered:
                        while not end.is_set():
                            act(entered)
                except PoeError:
                    end.wait(PAUSE_S)
                except Exception as error:  # noqa: BLE001 - for the test's own thread to raise
                    self.errors.append(error)
                    return

        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread

    def _put(
        self, node: RunningNode, socket: Socket, client: str, count: int, copies: int | None
    ) -> str:
        op = next(self._ops)
        bodies = [make_body(f"m{op}x{number}") for number in range(count)]
        copies = copies or self.copies
        asked = {"client": client, "queue": self.queue, "op": op, "wanted": copies}
        self.note("put", node, messages=tuple(map(message_of, bodies)), **asked)
        state, made = "", 0
        try:
            told = socket.control("queue_put", topic=self.queue, messages=bodies, copies=copies)
            state, made = "ok", told["copies"]
        except UnderCopies as error:
            state, made = "under", error.made
        except TooFewNodes:
            state = "refused"
        except QueueBusy:
            state = "busy"
        self.note("answered", node, state=state, made=made, **asked)
        return state

    @contextmanager
    def member(self, node: RunningNode) -> Iterator[tuple[Socket, bytes]]:
        """Join the group at a node."""
        member = os.urandom(16)
        with connect(node) as socket:
            socket.control(
                "group_join", group=self.group, member=member, mode="shared",
                topics=[self.queue], options=self.group_options,
            )  # fmt: skip
            yield socket, member

    def came(self, unit: bytes, pointer: int, message: str) -> None:
        """Remember where a message stands, as reports tell of it."""
        self._names[unit, pointer] = message

    def wait_until_equal(self, timeout_s: float = AGREED_S) -> None:
        """Wait until all nodes that run know that all is done, and keep nothing of it."""
        running = [node for node in self.nodes if node.program is not None]
        wait_until(lambda: not any(self.kept(node) for node in running), timeout_s)
        for node in running:
            self.note("kept", node, queue=self.queue)

    def kept(self, node: RunningNode) -> int:
        """Return how many messages of the queue a node holds."""
        rows = {row["name"]: row for row in node.control("queues")}
        return int(rows[self.queue.encode()]["messages"]) if rows else 0

    # --- The judge -------------------------------------------------------------------------------

    def note_reports(self) -> None:
        """Ask all nodes that run which messages may have come twice."""
        for node in self.nodes:
            if node.program is None:
                continue
            named: dict[str, list[str]] = defaultdict(list)
            for row in node.control("cluster_report", topic=self.queue.encode()):
                if row["group"] == self.group:
                    named[row["certainty"]] += self._named(row)
            for certainty, messages in named.items():
                # Clients know nothing of what was handed out by an answer that was lost.
                state = "may" if self.has_unanswered else certainty
                self.note("report", node, queue=self.queue, group=self.group,
                          messages=tuple(messages), state=state)  # fmt: skip
            self.note("report", node, queue=self.queue, group=self.group)

    def _named(self, row: dict[str, Any]) -> Iterator[str]:
        wanted = f"{self.queue}@{row['stream']}".encode()
        for (unit, pointer), message in self._names.items():
            if unit == wanted and row["after"] < pointer <= row["last"]:
                yield message

    def history(self) -> History:
        """All that has been seen so far."""
        with self._lock:
            return History(list(self._events))

    def judge(self) -> None:
        """Stop, and hold what was seen against the rules.

        Nodes may take a while to tell each other what they have handed out during a fault.
        """
        self.stop()
        end_us = now_us() + AGREED_S * 1_000_000
        told = self._judge()
        while told and now_us() < end_us:
            time.sleep(LOOK_S)
            told = self._judge()
        assert not told, "\n".join(told)

    def _judge(self) -> list[str]:
        with self._lock:
            self._events = [event for event in self._events if event.kind != "report"]
        self.note_reports()
        return broken(self.history())


class Worker:
    """A client that takes jobs from a node, and tells with the next request that they are done."""

    def __init__(self, witness: Witness, node: RunningNode, limit: int, hold_s: float) -> None:
        self._hold_s = hold_s
        self.client = f"worker of {node.name}"
        self._witness = witness
        self._node = node
        self._limit = limit
        self._held: tuple[int, tuple[str, ...]] | None = None
        self._who = {"client": self.client, "queue": witness.queue, "group": witness.group}

    def take(self, entered: tuple[Socket, bytes]) -> None:
        """Tell what is done, and take some more."""
        socket, member = entered
        held, self._held = self._held, None
        if held is not None:
            self._witness.is_enough.wait(self._hold_s)
            self._note("ack", held[1])
        asked_us = now_us()
        done = [] if held is None else [Done(held[0])]
        request = LeaseRequest(
            self._witness.group, member, self._limit, BYTES_MAX, wait_s=WAIT_S, done=done
        )
        try:
            reply = socket.lease(request)
        except PoeError:
            self._witness.has_unanswered = True
            raise
        if held is not None and held[0] not in reply.lease.lost:
            self._note("acked", held[1])
        if reply.lease.id:
            # The node handed them out after it was asked; the answer came some time later.
            self._held = reply.lease.id, self._messages(reply)
            self._note("handed", self._held[1], asked_us)

    def _messages(self, reply: LeaseReply) -> tuple[str, ...]:
        records = reply.records
        starts = records.starts.tolist()
        messages = tuple(
            message_of(bytes(records.data[begin + RECORD_HEADER_BYTES : end]))
            for begin, end in itertools.pairwise(starts)
        )
        for pointer, message in zip(records.pointers.tolist(), messages, strict=True):
            self._witness.came(reply.lease.topic, pointer, message)
        return messages

    def _note(self, kind: Kind, messages: tuple[str, ...], at_us: int | None = None) -> None:
        self._witness.note(
            kind, self._node, messages=messages, at_us=at_us or now_us(), **self._who
        )


def connect(node: RunningNode) -> Socket:
    """Connect to a node."""
    return protocol.socket(node.host.client_address, PORT, timeout_s=CALL_S)


def now_us() -> int:
    """The time of all events."""
    return time.monotonic_ns() // 1000
