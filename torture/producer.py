"""Producers: threads that put as fast as the server takes it, and note what they were told."""

import threading
import time
from collections import deque
from random import Random

from poe.errors import ActorDead, CallTimeout, PoeError, SyncFailed
from poe.protocol import (
    FrameReader,
    PutId,
    PutReply,
    PutRequest,
    SequencedPutRequest,
    decode_reply,
)
from torture.checker import Journal, Put, Sender
from torture.server import Server

_WINDOW_COUNT = 32
_MAY_BE_STORED = frozenset({SyncFailed.code, ActorDead.code, CallTimeout.code})


class Producer(threading.Thread):
    """Puts onto one topic until it is stopped or the server is gone; owns one connection.

    It notes a put before it is sent, and its pointer when the reply is there. With a window of 1,
    `pause_s` is the time between a reply and the next put. As a `producer` of sequenced puts it
    numbers them by their places in `puts`.
    """

    def __init__(
        self,
        server: Server,
        journal: Journal,
        topic: bytes,
        random: Random,
        *,
        window: int = _WINDOW_COUNT,
        count_max: int = 20,
        length_max: int = 120,
        puts_max: int | None = None,
        pause_s: float = 0.0,
        producer: bytes | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.producer = producer
        self.puts: list[Put] = []
        """What it has sent as sequenced puts."""

        self.acked_count = 0
        self.refused: list[PoeError] = []
        self.is_gone = False
        self.waits: list[tuple[float, float]] = []
        """Of each reply: when its put was begun, and how many seconds the reply took."""

        self._sender = Sender(journal, random)
        self._sizes = {"count_max": count_max, "length_max": length_max}
        self._puts_left = puts_max if puts_max is not None else 1 << 60
        self._window = window
        self._has_to_stop = threading.Event()
        self._pause_s = pause_s
        self._under_way: deque[tuple[float, Put]] = deque()
        self._socket = server.connect_raw()
        self._reader = FrameReader()

    def stop(self) -> None:
        """Send no more, wait for the replies that are due."""
        self._has_to_stop.set()
        self.join(60)

    def run(self) -> None:
        """Send and receive."""
        with self._socket:
            try:
                while self._fill_window() or self._under_way:
                    self._receive()
            except (OSError, PoeError):
                self.is_gone = True

    def _fill_window(self) -> bool:
        """Send while replies to fewer than a window's puts are due; False when done."""
        frames = []
        while len(self._under_way) < self._window:
            if self._has_to_stop.is_set() or not self._puts_left:
                break
            self._has_to_stop.wait(self._pause_s)
            self._puts_left -= 1
            put = self._sender.begin(self.topic, **self._sizes)
            self._under_way.append((time.monotonic(), put))
            frames.append(self._frame_of(put))
        if frames:
            self._socket.sendall(b"".join(frames))
        return bool(frames)

    def _frame_of(self, put: Put) -> bytes:
        if self.producer is None:
            return PutRequest(self.topic, put.messages).encode()
        put_id = PutId(self.producer, 0, len(self.puts))
        self.puts.append(put)
        return SequencedPutRequest(self.topic, put.messages, put_id).encode()

    def _receive(self) -> None:
        while (frame := self._reader.next_frame()) is None:
            size = self._reader.receive(self._socket.recv_into)
            if not size:
                raise ConnectionError("the server closed the connection")
        begun_s, put = self._under_way.popleft()
        self.waits.append((begun_s, time.monotonic() - begun_s))
        reply = decode_reply(PutReply, *frame)
        if isinstance(reply, PutReply):
            put.pointer = reply.pointer
            put.acked_s = time.monotonic()
            self.acked_count += 1
            return
        self.refused.append(reply)
        put.is_refused = reply.code not in _MAY_BE_STORED
